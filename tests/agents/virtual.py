"""Virtual time: a loop that jumps over waits, and a sender's native queue that empties on ticks.

Everything that asks `time.monotonic` or the loop sees the same clock, so hours pass in no time and
a busy machine changes nothing.
"""

import asyncio
import math
import selectors
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from livekit import rtc

from playhead.engine.units import SAMPLE_BYTES
from playhead.worker.pcm_queue import TICK_S, TICK_SAMPLES
from playhead.worker.track import QUEUE_MS

_TICK_BYTES = TICK_SAMPLES * SAMPLE_BYTES


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: the time it was asked to wait has passed at once."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        events = super().select(0)
        if not events and timeout:
            self.now_s += timeout
        return events


def run_virtual(work: Coroutine[Any, Any, None]) -> None:
    """Run on a loop of its own whose time is virtual."""
    selector = _JumpingSelector()
    real_s = time.time() - selector.now_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: selector.now_s)
        patch.setattr(time, "time", lambda: real_s + selector.now_s)
        loop = asyncio.SelectorEventLoop(selector)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(work)


class NativeQueue:
    """The SDK's audio source without its room: whole frames leave at ticks 10 ms apart.

    A thread of the SDK's own takes a frame at each tick, or sends silence where less than one
    lies there. What is captured comes there a moment later, by another thread: it can miss a
    tick that had not come when it was captured.
    """

    def __init__(self, delay_s: float = 0.0005) -> None:
        self.played = bytearray()
        """What left, without the silence in between."""
        self._delay_s = delay_s
        self._queue = bytearray()
        self._at_tick = self._ticks()
        self._from_tick = 0
        """The first tick that takes what came into the empty queue."""
        self.num_tails = 0
        """Frames that left and only faded out what a cut took back."""
        self._cleared = self._tail_first = False

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        self._settle()
        if frame.samples_per_channel > 24 * QUEUE_MS:  # the pump looks for a tick
            await asyncio.sleep((self._at_tick + 1) * TICK_S - time.monotonic())
            return
        if not self._queue:
            self._from_tick = math.ceil((time.monotonic() + self._delay_s) / TICK_S - 1e-6)
            self._tail_first = self._cleared and frame.samples_per_channel == TICK_SAMPLES
        self._cleared = False
        self._queue += bytes(frame.data)

    def clear_queue(self) -> None:
        self._settle()
        self._queue.clear()
        self._cleared, self._tail_first = True, False

    def _ticks(self) -> int:
        return int(time.monotonic() / TICK_S + 1e-6)

    def _settle(self) -> None:
        """Let leave what the ticks since the last look took."""
        now = self._ticks()
        for tick in range(self._at_tick + 1, now + 1):
            if tick >= self._from_tick and len(self._queue) >= _TICK_BYTES:
                self.played += self._queue[:_TICK_BYTES]
                del self._queue[:_TICK_BYTES]
                self.num_tails += self._tail_first
                self._tail_first = False
        self._at_tick = now

    def samples(self) -> bytes:
        """All samples that left so far."""
        self._settle()
        return bytes(self.played)
