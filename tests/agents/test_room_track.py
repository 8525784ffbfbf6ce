"""Replies of a word's length through our track in a real room: no beginning is lost."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from livekit import rtc
from livekit.plugins.playhead.room_track import RoomTrack

from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.demo.server import Access
from playhead.worker.listener import Listener
from tests.agents.fakes import until

pytestmark = [pytest.mark.livekit, pytest.mark.slow]

BETWEEN_S = [5.0] * 10
ONSET_S = 0.1
LEAST_ENERGY = 0.9
FLOOR_ENERGY = 0.6
"""Of the first turn, whose packets a receiver that just began may fade in, and of a stalled one."""
STALLS = 1
"""Turns that may meet a stall of a busy machine, which the receiver conceals."""
ONSET_ERROR_S = 0.03
WORD_S, ATTACK_S = 0.5, 0.005


@pytest.mark.timeout(300)
async def test_one_word_replies_keep_their_first_sample(
    livekit_server: Access, room_name: str
) -> None:
    rooms = await asyncio.gather(
        *(turns_heard(livekit_server, f"{room_name}-{n}", BETWEEN_S) for n in range(2))
    )
    turns = [turn for room in rooms for turn in room]
    shares = [turn.share_of_onset() for turn in turns]
    later = sorted(turn.share_of_onset() for room in rooms for turn in room[1:])
    assert min(shares) >= FLOOR_ENERGY and later[STALLS] >= LEAST_ENERGY, shares
    off_s = sorted(abs(turn.late_s()) for turn in turns)
    assert off_s[-1 - STALLS] <= ONSET_ERROR_S, off_s


async def turns_heard(access: Access, room_name: str, between_s: Sequence[float]) -> list["Heard"]:
    """Speak a word before anybody is there and one after each pause; return what was heard."""
    spoken = sharp_word()
    room, listener = rtc.Room(), Listener()
    track = RoomTrack(room)
    lengths = []
    try:
        await room.connect(access.url, access.token("a", room_name, kind="agent"))
        early = asyncio.create_task(speak(track, spoken))
        await listener.join(access.url, access.token("listener", room_name))
        await asyncio.wait_for(early, 30)
        for pause_s in between_s:
            await asyncio.sleep(pause_s)
            lengths.append(len(listener.recording.pcm()))
            await speak(track, spoken)
        await until(lambda: len(listener.recording.pcm()) > lengths[-1] + 2 * len(spoken))
        heard = listener.recording.pcm()
    finally:
        await track.aclose()
        await listener.leave()
        await room.disconnect()
    return [Heard(spoken, turn) for turn in np.split(heard, lengths)]


async def speak(track: RoomTrack, samples: np.ndarray) -> None:
    for piece in np.split(samples, range(1920, len(samples), 1920)):
        frame = rtc.AudioFrame(piece.tobytes(), SAMPLE_RATE_HZ, 1, len(piece))
        await track.output.capture_frame(frame)
    track.output.flush()
    await track.output.wait_for_playout()


def sharp_word() -> np.ndarray:
    """Return a tone that rises in pitch and begins at full loudness, as no voice does."""
    time_s = np.arange(int(WORD_S * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    phase = 2 * np.pi * (200 * time_s + 1300 * time_s**2)
    return (8000 * np.minimum(time_s / ATTACK_S, 1) * np.sin(phase)).astype("<i2")


class Heard:
    """A word found in what was heard."""

    def __init__(self, spoken: np.ndarray, heard: np.ndarray) -> None:
        size = len(heard) + len(spoken)
        spectra = np.fft.rfft(heard, size) * np.conj(np.fft.rfft(spoken, size))
        start = int(np.argmax(np.fft.irfft(spectra, size)[: len(heard)]))
        self.spoken = spoken.astype(float)
        self.heard = heard[start : start + len(spoken)].astype(float)

    def share_of_onset(self) -> float:
        """How much of the energy of its first 100 ms is there."""
        count = int(ONSET_S * SAMPLE_RATE_HZ)
        return float(np.sum(self.heard[:count] ** 2) / np.sum(self.spoken[:count] ** 2))

    def late_s(self) -> float:
        """How much later it becomes audible than it was spoken."""
        floor = 0.1 * np.abs(self.spoken).max()
        spoken, heard = (np.flatnonzero(np.abs(x) > floor)[0] for x in (self.spoken, self.heard))
        return float(heard - spoken) / SAMPLE_RATE_HZ
