"""Reports of other plugins' users that no other file here covers; docs/plugin.md lists all."""

import asyncio
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from livekit.agents import tts
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.plugins import playhead

from playhead.worker.demo.server import Access
from tests.agents.conftest import RealEngine
from tests.agents.test_embedded_voice import PATIENT, TEXT
from tests.worker.people import Person
from tests.worker.test_worker import ready, worker

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

LOOK_S = 0.005
NUM_STREAMS = 8
MINUTE = 24
"""Times a sentence is said in more than a minute."""
WITHOUT_SOUND = ["...", "\U0001f642", "**", "```\nx = 1\n```"]
WITH_SOUND = ["https://example.com/a?b=1", "| a | b |\n|---|---|\n| one | two |\n"]
FIGURES, AS_WORDS = "It is $1,000,000.", "It is one million dollars."
"""How other figures are read: tests/text/test_reader.py."""


async def speak(voice: playhead.TTS, text: str) -> list[tts.SynthesizedAudio]:
    async with voice.stream(conn_options=PATIENT) as stream:
        if text:
            stream.push_text(text)
        stream.end_input()
        return [audio async for audio in stream]


def test_the_page_names_a_test_that_is_there_for_every_report() -> None:
    page = (ROOT / "docs" / "plugin.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| (`tests/.*) \|$", page.split("reported, as tests\n")[1], re.M)
    assert len(rows) == 17
    for row in rows:
        text = ""
        for name in re.findall(r"`([^`]+)`", row):
            if name.startswith("tests/"):
                text = (ROOT / name).read_text(encoding="utf-8")
            else:
                assert f"def test_{name.removesuffix('...')}" in text, name


async def test_eight_streams_leave_the_loop_free(real_engine: RealEngine) -> None:
    """What the loop's thread computes between two looks of a task that looks every 5 ms."""
    voice = playhead.TTS(engine=real_engine.client)
    await speak(voice, "Yes.")  # what is made once is made
    busy_s: list[float] = []

    async def look() -> None:
        while True:
            before_s = time.thread_time()
            await asyncio.sleep(LOOK_S)
            busy_s.append(time.thread_time() - before_s)

    looking = asyncio.create_task(look())
    await asyncio.gather(*(speak(voice, TEXT) for _ in range(NUM_STREAMS)))
    looking.cancel()
    await asyncio.wait([looking])
    assert len(busy_s) > 100
    assert np.quantile(busy_s, 0.99) < 0.020, sorted(busy_s)[-5:]


@pytest.mark.parametrize("text", ["", " ", *WITHOUT_SOUND, *WITH_SOUND])
async def test_text_of_marks_is_no_error_and_the_next_turn_speaks(
    real_engine: RealEngine, text: str
) -> None:
    voice = playhead.TTS(engine=real_engine.client)
    events: list[tts.TTSError] = []
    voice.on("error", events.append)
    spoken_s = sum(audio.frame.duration for audio in await speak(voice, text))
    if not text.strip():
        assert spoken_s == 0.0
    elif text in WITHOUT_SOUND:
        assert 0.01 <= spoken_s < 1.0
    else:
        assert 0.3 < spoken_s < 12.0
    assert sum(audio.frame.duration for audio in await speak(voice, "Yes.")) > 0.2
    assert events == []


async def test_figures_are_said_as_words_and_captions_keep_them(real_engine: RealEngine) -> None:
    voice = playhead.TTS(engine=real_engine.client, aligned_transcript=True)
    read = await speak(voice, FIGURES)
    words = [word for audio in read for word in audio.frame.userdata[USERDATA_TIMED_TRANSCRIPT]]
    assert "".join(words) == FIGURES
    as_words = await speak(voice, AS_WORDS)
    lengths = [sum(audio.frame.samples_per_channel for audio in each) for each in (read, as_words)]
    assert lengths[0] == lengths[1] > 12_000


@pytest.mark.livekit
@pytest.mark.timeout(300)
async def test_a_draining_worker_ends_with_its_last_room_and_takes_no_other(
    livekit_server: Access, room_name: str, tmp_path: Path
) -> None:
    async with worker(livekit_server, tmp_path) as running:
        async with (
            Person(livekit_server, room_name, "ann") as ann,
            Person(livekit_server, f"{room_name}-2", "bob") as bob,
        ):
            for person in (ann, bob):
                await person.until(lambda person=person: person.worker, 30)
            await bob.say("This goes on while the other room ends. " * MINUTE, "r1")
            await bob.told("r1", "started")
            running.process.send_signal(signal.SIGTERM)
            await running.until(lambda: ready(running.port)[0] == 503)
            await ann.leave()
            async with Person(livekit_server, f"{room_name}-3", "cy") as late:
                end = await bob.end_of("r1", limit_s=120)
                assert late.worker is None
            assert end["type"] == "finished" and end["heard_text"].count("other room") == MINUTE
            assert end["heard_s"] >= 60.0
        await running.until(lambda: running.process.poll() is not None)
    assert running.process.returncode == 0
