"""One-word replies through our track in a real room: no beginning is lost after a silence."""

import asyncio

import numpy as np
import pytest
from livekit import rtc
from livekit.plugins import playhead
from livekit.plugins.playhead.room_track import RoomTrack

from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.demo.server import Access
from playhead.worker.listener import Listener
from tests.agents.conftest import RealEngine
from tests.agents.fakes import until

pytestmark = [pytest.mark.livekit, pytest.mark.slow]

TURNS = 6
BETWEEN_S = 3.0
ONSET_S = 0.1
LEAST_ENERGY = 0.6
"""0.75 was the least seen: a receiver plays the first packets after a silence softly."""
USUAL_ENERGY = 0.9


async def test_one_word_replies_keep_their_first_sample(
    real_engine: RealEngine, livekit_server: Access, room_name: str
) -> None:
    word = await playhead.TTS(engine=real_engine.client).synthesize("Yes.").collect()
    spoken = np.frombuffer(bytes(word.data), "<i2")
    room, listener = rtc.Room(), Listener()
    track = RoomTrack(room)
    lengths = []
    try:
        await room.connect(livekit_server.url, livekit_server.token("a", room_name, kind="agent"))
        early = asyncio.create_task(speak(track, spoken))  # said before anybody is there
        await listener.join(livekit_server.url, livekit_server.token("listener", room_name))
        await asyncio.wait_for(early, 30)
        for _ in range(TURNS - 1):
            await asyncio.sleep(BETWEEN_S)
            lengths.append(len(listener.recording.pcm()))
            await speak(track, spoken)
        await until(lambda: len(listener.recording.pcm()) > lengths[-1] + 2 * len(spoken))
        heard = listener.recording.pcm()
    finally:
        await track.aclose()
        await listener.leave()
        await room.disconnect()
    shares = [share_of_onset(spoken, turn) for turn in np.split(heard, lengths)]
    assert min(shares) >= LEAST_ENERGY and np.median(shares) >= USUAL_ENERGY, shares


async def speak(track: RoomTrack, samples: np.ndarray) -> None:
    for piece in np.split(samples, range(1920, len(samples), 1920)):
        frame = rtc.AudioFrame(piece.tobytes(), SAMPLE_RATE_HZ, 1, len(piece))
        await track.output.capture_frame(frame)
    track.output.flush()
    await track.output.wait_for_playout()


def share_of_onset(spoken: np.ndarray, heard: np.ndarray) -> float:
    """Find the word in what was heard; return how much of its first 100 ms is there."""
    likeness = np.correlate(heard.astype(float), spoken.astype(float), "valid")
    start = int(np.argmax(likeness))
    count = int(ONSET_S * SAMPLE_RATE_HZ)
    found = heard[start : start + count].astype(float)
    return float(np.sum(found**2) / np.sum(spoken[:count].astype(float) ** 2))
