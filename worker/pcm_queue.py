"""PcmQueue: the samples of a room's speeches that its sender has not got yet, in order; pure.

What both pumps share: speeches follow one another, each says whether more of it comes, and sound
that begins again after an unplanned silence rises instead of clicking.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from playhead.engine.clock import PlaybackClock
from playhead.engine.units import SAMPLE_BYTES, s_to_samples

FADE_S = 0.005
FADE_SAMPLES = s_to_samples(FADE_S)
TICK_S = 0.01
TICK_SAMPLES = s_to_samples(TICK_S)
"""Senders take whole frames of this."""


@dataclass(slots=True)
class Line:
    """Samples of one speech that the sender has not got yet."""

    clock: PlaybackClock
    pcm: bytearray = field(default_factory=bytearray)
    sealed: bool = False
    """Nothing follows."""
    starved: bool = False
    """All text so far is spoken: what follows may be long in coming."""
    rises: bool = False
    """The speech went silent after a fade: its next samples rise again."""

    @property
    def num_samples(self) -> int:
        """Return how many samples wait."""
        return len(self.pcm) // SAMPLE_BYTES

    def take(self, num_samples: int) -> bytes:
        """Remove and return the next samples."""
        num_bytes = num_samples * SAMPLE_BYTES
        pcm = bytes(self.pcm[:num_bytes])
        del self.pcm[:num_bytes]
        return pcm


class PcmQueue:
    """Speeches in the order in which they are heard, told apart by their clocks."""

    def __init__(self) -> None:
        """Start held: nothing is handed over before `resume`."""
        self._lines: deque[Line] = deque()
        self.held = True

    def push(self, clock: PlaybackClock, pcm: bytes) -> None:
        """Add samples of a speech behind all that wait."""
        line = self._line(clock)
        assert not line.sealed, clock.request_id
        if line.rises and not line.pcm:
            pcm = fade_start(pcm)
            line.rises = False
        line.pcm += pcm
        line.starved = False

    def starve(self, clock: PlaybackClock) -> None:
        """Nothing follows before more text comes; silence after it is no gap."""
        line = self._line(clock)
        line.starved = True
        if not line.pcm:
            clock.starve()

    def end(self, clock: PlaybackClock) -> None:
        """Nothing follows at all."""
        self._line(clock).sealed = True
        self._drop_finished()

    def resume(self) -> None:
        """Hand over again."""
        for clock in self._clocks():
            clock.resume()
        self.held = False

    def _clocks(self) -> list[PlaybackClock]:
        return [line.clock for line in self._lines]

    def _line(self, clock: PlaybackClock) -> Line:
        if not self._lines or self._lines[-1].clock is not clock:
            assert not self._lines or self._lines[-1].sealed, "speeches do not overlap"
            self._lines.append(Line(clock))
        return self._lines[-1]

    def _drop_finished(self) -> None:
        while self._lines and self._lines[0].sealed and not self._lines[0].pcm:
            self._lines.popleft()


def fade_end(pcm: bytes) -> bytes:
    """Fade the last 5 ms (or all, if shorter) to zero."""
    samples = np.frombuffer(pcm, "<i2").copy()
    num = min(FADE_SAMPLES, len(samples))
    if num:
        samples[-num:] = _scaled(samples[-num:], np.linspace(1.0, 0.0, num))
    return samples.tobytes()


def fade_start(pcm: bytes) -> bytes:
    """Let the first 5 ms rise from zero."""
    samples = np.frombuffer(pcm, "<i2").copy()
    num = min(FADE_SAMPLES, len(samples))
    samples[:num] = _scaled(samples[:num], np.linspace(0.0, 1.0, num))
    return samples.tobytes()


def fade_after(pcm: bytes) -> bytes:
    """Return 5 ms (or as much as there is) that let a sound end: its last samples, backwards."""
    samples = np.frombuffer(pcm, "<i2")[::-1][:FADE_SAMPLES]
    return _scaled(samples, np.linspace(1.0, 0.0, len(samples))).tobytes()


def _scaled(samples: NDArray[np.int16], gain: NDArray[np.float64]) -> NDArray[np.int16]:
    return np.rint(samples * gain).astype("<i2")
