"""Pump: carries PCM from a room's speeches into its LiveKit audio track; on the room's loop."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from livekit import rtc

from playhead.engine.clock import PlaybackClock
from playhead.engine.units import SAMPLE_BYTES, SAMPLE_RATE_HZ, s_to_samples
from playhead.worker.feed import START_S, Cut, FeedLine
from playhead.worker.pcm_queue import TICK_S

QUEUE_MS = 1000
"""Native queue; a multiple of 10 or the SDK panics. Far above the lead, so captures never block."""
NUM_PROBES = 8
CLOSE_S = 0.001
"""Completions arrive 0.05 to 0.5 ms after their tick, on a busy machine some much later."""
AFTER_TICK_S = 0.0005
"""A cut waits so long after a tick, to be clear of it."""
TRACK_NAME = "playhead"

PumpKind = Literal["queued", "direct"]
"""How sound leaves: through the SDK's native queue, or frame by frame (direct_pump)."""


class Pump(Protocol):
    """The last part before the network; one per room. Speeches are told apart by their clock."""

    async def run(self) -> None:
        """Feed the track until cancelled."""

    def push(self, clock: PlaybackClock, pcm: bytes) -> None:
        """Queue samples of a speech behind all others; booked in its clock as they are sent."""

    def starve(self, clock: PlaybackClock) -> None:
        """Say that silence after the speech's last sample is awaited text."""

    def end(self, clock: PlaybackClock) -> None:
        """Say that nothing of the speech follows."""

    def clear(self) -> None:
        """Silence the track now; what has not left is dropped from the clocks."""

    def pause(self) -> None:
        """Silence the track now and keep what has not left."""

    def resume(self) -> None:
        """Send again; a new pump is paused until its first resume."""

    async def settle(self) -> None:
        """Wait until the last `clear` or `pause` has reached the sender."""

    def bridge_s(self, now_s: float) -> float:
        """Return how long the sender, once dry, may send nothing before silence begins."""


class Source(Protocol):
    """The part of rtc.AudioSource in use."""

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Hand samples to the native queue."""

    def clear_queue(self) -> None:
        """Drop the native queue."""


class QueuedPump:
    """Feeds an AudioSource that has a native queue, keeping at most the lead in it."""

    def __init__(
        self,
        source: Source,
        on_restart: Callable[[], None] = lambda: None,
        start_s: Callable[[], float] = lambda: START_S,
    ) -> None:
        """Take a source; `on_restart` is called when sound begins after a dry queue.

        `start_s` says how much of a speech has to wait before it begins.
        """
        self._source = source
        self._on_restart = on_restart
        self._line = FeedLine(start_s)
        self._wake = asyncio.Event()
        self._cutting: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Feed the source until cancelled."""
        self._line.tick_s = await find_tick_s(self._source)
        while True:
            self._wake.clear()
            await self.settle()
            piece = self._line.take(time.monotonic())
            if piece is None:
                await self._wait()
                continue
            if piece.restart:
                self._on_restart()
            await self._source.capture_frame(audio_frame(piece.pcm))

    def push(self, clock: PlaybackClock, pcm: bytes) -> None:
        """Queue samples of a speech."""
        self._line.push(clock, pcm)
        self._wake.set()

    def starve(self, clock: PlaybackClock) -> None:
        """Say that more text is awaited."""
        self._line.starve(clock)
        self._wake.set()

    def end(self, clock: PlaybackClock) -> None:
        """Say that nothing of the speech follows."""
        self._line.end(clock)
        self._wake.set()

    def clear(self) -> None:
        """Silence the track now."""
        self._cut(self._line.clear(time.monotonic()))

    def pause(self) -> None:
        """Silence the track now and keep what has not left."""
        if not self._line.held:
            self._cut(self._line.pause(time.monotonic()))

    def resume(self) -> None:
        """Send again."""
        self._line.resume()
        self._wake.set()

    async def settle(self) -> None:
        """Wait for the cut under way."""
        while self._cutting is not None and not self._cutting.done():
            await asyncio.shield(self._cutting)

    def bridge_s(self, now_s: float) -> float:
        """Return nothing: a dry native queue sends silence at once."""
        return 0.0

    async def _wait(self) -> None:
        """Sleep until something changed or the native queue has room again."""
        timer = None
        next_s = self._line.next_s(time.monotonic())
        if next_s is not None:
            delay_s = max(next_s - time.monotonic(), 0.001)
            timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _cut(self, cut: Cut | None) -> None:
        if cut is not None:
            before = self._cutting
            work = self._make_cut(cut, before)
            self._cutting = asyncio.get_running_loop().create_task(work)
            self._wake.set()

    async def _make_cut(self, cut: Cut, before: asyncio.Task[None] | None) -> None:
        """Clear and fade in one step of the loop, between two ticks."""
        if before is not None:
            await before
        await asyncio.sleep(cut.at_s - TICK_S + AFTER_TICK_S - time.monotonic())
        self._source.clear_queue()
        if cut.tail:
            await self._source.capture_frame(audio_frame(cut.tail))


async def find_tick_s(source: Source) -> float:
    """Return a moment at which the source's native queue gave up a frame.

    A capture that overfills the queue completes at the first tick that makes room.
    """
    num_samples = s_to_samples(QUEUE_MS / 1000 + TICK_S / 2)
    silence = audio_frame(bytes(num_samples * SAMPLE_BYTES))
    moments: list[float] = []
    for _ in range(NUM_PROBES):
        await source.capture_frame(silence)
        moments.append(time.monotonic())
        source.clear_queue()
    return tick_of(moments)


def tick_of(moments_s: Sequence[float]) -> float:
    """Return the tick that most moments follow closely; late ones may be late by anything."""

    def distance_s(one_s: float) -> float:
        return sum(abs(math.remainder(other_s - one_s, TICK_S)) for other_s in moments_s)

    middle_s = min(moments_s, key=distance_s)
    lags_s = [math.remainder(moment_s - middle_s, TICK_S) for moment_s in moments_s]
    return middle_s + min(lag_s for lag_s in lags_s if lag_s > -CLOSE_S)


def audio_frame(pcm: bytes) -> rtc.AudioFrame:
    """Return samples as the SDK takes them."""
    return rtc.AudioFrame(pcm, SAMPLE_RATE_HZ, 1, len(pcm) // SAMPLE_BYTES)


def track_options() -> rtc.TrackPublishOptions:
    """Return how a speaking track is published.

    Silence is sent like speech (no DTX): a receiver fades in what follows a pause of the packets,
    and a sharp onset kept 0.71 to 0.97 of the energy of its first 100 ms; it keeps 1.0 so.
    """
    return rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE, dtx=False)


def make_source() -> rtc.AudioSource:
    """Return the source of a room's track; on the room's loop."""
    return rtc.AudioSource(SAMPLE_RATE_HZ, 1, queue_size_ms=QUEUE_MS)
