"""An engine too slow for real time: the gaps the clock counts are the gaps in the waveform."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from livekit import api, rtc

from playhead.engine.messages import Pcm, Result, Word, Words
from playhead.worker.client import EngineClient
from playhead.worker.demo.align import align
from playhead.worker.demo.server import Access, LocalServer
from playhead.worker.permissions import RoomPolicy
from playhead.worker.session import RoomSession
from playhead.worker.thread_carrier import ThreadCarrier
from tests.e2e.rig import HeardSpeech, Spoken, run_listener
from tests.fakes import FRAMES_PER_WORD, TARGET_S, WORD_S, ScriptedEngine

pytestmark = [pytest.mark.livekit, pytest.mark.slow]

TEXT = " ".join(f"word{n}" for n in range(36))
STALLS = {6: 1.9, 14: 1.7, 15: 0.5, 22: 2.2, 30: 3.0}
"""Seconds that the engine thinks before a word; the others follow at once, a second ahead."""


def voice_like(num_samples: int) -> np.ndarray:
    """Return a sound in which no half second is like another."""
    rng = np.random.default_rng(5)
    pitch_hz = np.interp(
        np.arange(num_samples),
        np.arange(0, num_samples, 2400),
        rng.uniform(90, 220, -(-num_samples // 2400)),
    )
    phase = np.cumsum(2 * np.pi * pitch_hz / 24_000)
    sound = sum(rng.uniform(0.2, 1) * np.sin(k * phase + k) for k in range(1, 12))
    return np.asarray(sound / np.abs(sound).max() * 9_000, "<i2")


WORD_SAMPLES = 5760
SOUND = voice_like(36 * WORD_SAMPLES)


class SlowEngine(ScriptedEngine):
    """Speaks SOUND word by word, at most a second ahead, and stalls before some of them."""

    def __init__(self, on_results: Callable[[list[Result]], None]) -> None:
        super().__init__(on_results)
        self._stalled: set[int] = set()

    def _speak(self, spoken: Any, results: list[Result]) -> None:
        number, request_id = spoken.num_words, spoken.submit.request_id
        if not spoken.words:
            if spoken.closed:
                super()._speak(spoken, results)
            return
        if spoken.ahead_s(time.monotonic()) > TARGET_S:
            return
        if number in STALLS and number not in self._stalled:
            self._stalled.add(number)
            time.sleep(STALLS[number])
        word = Word(spoken.words.popleft(), number * WORD_S, (number + 1) * WORD_S)
        part = SOUND[spoken.num_samples : spoken.num_samples + WORD_SAMPLES]
        results.append(Words(request_id, (word,), False))
        results.append(Pcm(request_id, spoken.num_samples, part.tobytes(), FRAMES_PER_WORD))
        spoken.num_words += 1
        spoken.num_samples += len(part)


async def test_counted_gaps_are_the_gaps_of_the_waveform_when_the_engine_stalls(
    room_name: str, tmp_path: Path
) -> None:
    with LocalServer() as server:  # its own: the session's worker would come to the room as well
        heard = await _hear_slow_engine(server.access, room_name, tmp_path)
    counted = heard.end_of("slow")["gaps"]
    gaps = align(SOUND, heard.pcm, piece_s=0.2).pauses(0.03)
    print(f"counted {counted}, in the waveform {gaps}")
    assert counted == len(gaps) and counted == len(STALLS)


async def _hear_slow_engine(access: Access, room_name: str, folder: Path) -> HeardSpeech:
    client = EngineClient(ThreadCarrier(SlowEngine))  # type: ignore[arg-type]
    client.start()
    room = rtc.Room()
    session = RoomSession(room, client, RoomPolicy(), clock_events=True)
    grants = api.VideoGrants(room_join=True, room=room_name, agent=True)
    token = api.AccessToken(access.key, access.secret).with_identity("speaker")
    await room.connect(access.url, token.with_grants(grants).with_kind("agent").to_jwt())
    serving = asyncio.create_task(session.run())
    try:
        heard = await asyncio.to_thread(
            run_listener, access, room_name, [Spoken("slow", TEXT)], folder
        )
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        await room.disconnect()
        client.close()
    return heard
