"""The process that makes voices: it stays, and what breaks it harms one caller alone."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from playhead.engine.errors import CheckpointError, InputError
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.reference_audio import BadReference
from playhead.engine.voice_store import StoredVoice, VoiceExists, VoiceStore
from playhead.worker.voice_making import HEADROOM_BYTES
from playhead.worker.voice_process import VoiceProcess, VoiceProcessLate, VoiceProcessLost
from tests.engine.test_reference_audio import encoded
from tests.voices import TRANSCRIPT, reference_wave

pytestmark = pytest.mark.slow

OWNER = "name x"


def recording(number: int, length_s: float = 2.0) -> bytes:
    return encoded(reference_wave(number, length_s)[None], 24_000, "wav")


class Desk:
    """A process and the store it fills."""

    def __init__(self, model: Path, store: VoiceStore) -> None:
        self.process, self.store = VoiceProcess(str(model)), store
        self.tasks: list[asyncio.Task[StoredVoice]] = []

    async def make(self, name: str, audio: bytes, transcript: str = "") -> StoredVoice:
        return await self.process.make(self.store, OWNER, name, audio, transcript)

    def begun(self, name: str, audio: bytes) -> "asyncio.Task[StoredVoice]":
        self.tasks.append(asyncio.create_task(self.make(name, audio)))
        return self.tasks[-1]

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    async def asked(self, name: str, audio: bytes) -> "asyncio.Task[StoredVoice]":
        """Ask the loaded process; return once the recording is on its way."""
        task = self.begun(name, audio)
        while self.process._owed_until_s is None:
            await asyncio.sleep(0.01)
        return task

    def names(self) -> set[str]:
        return {voice.name for voice in self.store.voices(OWNER)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("base"), "tiny-base", dtype=torch.float32)


@pytest.fixture
async def desk(model: Path, tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(model, VoiceStore(tmp_path / "voices"))
    yield made
    await asyncio.gather(*made.tasks, return_exceptions=True)
    await made.process.close()


async def test_one_process_makes_every_voice_within_its_memory(desk: Desk) -> None:
    await desk.process.begin()
    first = desk.process.pid
    made = await desk.make("anna", recording(1), TRANSCRIPT)
    assert (made.name, made.in_context, made.reference_s) == ("anna", True, 2.0)
    with pytest.raises(BadReference, match="no known format"):
        await desk.make("b", b"no sound")
    with pytest.raises(BadReference, match="truncated"):
        await desk.make("b", recording(2)[:30_000])
    with pytest.raises(VoiceExists):
        await desk.make("anna", recording(2))
    with pytest.raises(InputError, match="voice name"):
        await desk.make("a/b", recording(2))
    both = await asyncio.gather(desk.make("b", recording(2)), desk.make("c", recording(3, 3.0)))
    assert [voice.name for voice in both] == ["b", "c"] and len({v.id for v in both}) == 2
    assert desk.process.pid == first and desk.names() == {"anna", "b", "c"}

    limits = Path(f"/proc/{first}/limits").read_text().splitlines()
    [most] = [line.split()[3] for line in limits if line.startswith("Max data size")]
    assert HEADROOM_BYTES < int(most) < 2 * HEADROOM_BYTES
    running = desk.process._process
    assert running is not None and running.stdin is not None
    running.stdin.close()  # as when its parent is killed
    assert await running.wait() == 0


async def test_a_killed_process_is_told_to_one_caller(desk: Desk) -> None:
    await desk.make("a", recording(1))
    first = desk.process.pid
    desk.signal(signal.SIGSTOP)
    lost = await desk.asked("b", recording(2))
    waits = desk.begun("c", recording(3))
    desk.signal(signal.SIGKILL)
    with pytest.raises(VoiceProcessLost, match=r"ended \(-9\) while it read this recording"):
        await lost
    assert (await waits).name == "c", "who waited behind it gets a fresh process"
    assert desk.process.pid not in (first, None) and desk.names() == {"a", "c"}
    desk.signal(signal.SIGKILL)
    while desk.process.pid is not None:
        await asyncio.sleep(0.01)
    assert (await desk.make("d", recording(4))).name == "d", "it died while nobody asked"


async def test_a_caller_who_leaves_or_is_late_costs_nobody_an_answer(desk: Desk) -> None:
    await desk.make("a", recording(1))
    first = desk.process.pid
    desk.signal(signal.SIGSTOP)
    gone = await desk.asked("b", recording(2, 29.0))
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    desk.signal(signal.SIGCONT)
    assert (await desk.make("c", recording(3))).name == "c"
    assert desk.process.pid == first and desk.names() == {"a", "b", "c"}

    desk.signal(signal.SIGSTOP)
    desk.process._limit_s = 0.2
    with pytest.raises(VoiceProcessLate, match=r"within 0\.2 s"):
        await desk.make("d", recording(4))
    desk.process._limit_s = 120.0
    assert (await desk.make("e", recording(5))).name == "e"
    assert desk.process.pid != first and desk.names() == {"a", "b", "c", "e"}


async def test_a_checkpoint_without_encoders_is_named(tmp_path: Path) -> None:
    plain = write_checkpoint(tmp_path / "plain", "tiny", dtype=torch.float32)
    desk = Desk(plain, VoiceStore(tmp_path / "voices"))
    with pytest.raises(CheckpointError, match="has no speaker encoder"):
        await desk.make("a", recording(1))
    assert desk.process.pid is None
    await desk.process.close()
