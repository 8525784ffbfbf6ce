"""DirectPump: a pump without a native queue, which can send nothing at all; on the room's loop.

A queue that runs dry sends silence, so the listener hears a hole. Here nobody but this pump sends:
10 ms frames in real time, silence included. When the engine is late inside a speech it sends
nothing, the stream's own time stands still, and the receiver lengthens the last sound instead.
That goes unheard up to `bridge_s`; all that was missed is then sent at once. A receiver that has
lengthened a sound until it faded goes on only when it holds half of its target again, which stalls
raise: given 40 ms at once it let silence be heard. Past `bridge_s`, at the end of a speech, at a
cut, a pause, or where text is awaited, the sound fades within 5 ms and silence is sent, from then
on in real time.

DirectLine is the pure part: which frame goes when, and how it is booked.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

from livekit import rtc

from playhead.engine.clock import Break, PlaybackClock
from playhead.engine.receiver import MAX_BRIDGE_S
from playhead.engine.units import SAMPLE_BYTES, SAMPLE_RATE_HZ, samples_to_s
from playhead.worker.feed import Piece
from playhead.worker.pcm_queue import (
    FADE_SAMPLES,
    TICK_S,
    TICK_SAMPLES,
    Line,
    PcmQueue,
    fade_after,
    fade_start,
)
from playhead.worker.track import Source, audio_frame

SLIP_S = MAX_BRIDGE_S + TICK_S
"""Of sound that waits, so much missed time is made good by sending frames at once."""
JITTER_S = 0.02
"""A frame late by less is no stretch: every receiver holds a packet of this length."""
REPORTS_S = 0.6
"""So long after a stretch what receivers report to have concealed may be that stretch: a report
tells of 250 ms."""

_FRAME_BYTES = TICK_SAMPLES * SAMPLE_BYTES
_FADE_BYTES = FADE_SAMPLES * SAMPLE_BYTES


class DirectLine(PcmQueue):
    """Everything between a room's speeches and a sender that takes a frame every 10 ms."""

    def __init__(self, now_s: float = 0.0) -> None:
        """Start held, in silence, with a frame due now."""
        super().__init__()
        self.due_s = now_s
        """When the next frame leaves if all is in time; stands still while nothing is sent."""
        self.withholding = False
        self._behind_s = 0.0
        """How late the last frame left."""
        self._bridge_s = 0.0
        """How long the receiver hides that nothing comes, as it was before nothing came."""
        self._told_until_s = 0.0
        """Till then what the receiver reports may tell of the last stretch."""
        self._sounding: Line | None = None
        """The speech whose samples were the last thing sent."""
        self._last = b""
        """The end of them, to be faded out."""
        self._tail = b""
        """A fade on its way out."""

    def take(self, now_s: float, bridge_s: float) -> Piece | None:
        """Return the frame to send now, booked; None while nothing must be sent.

        `bridge_s` is how long the receiver hides that nothing comes.
        """
        late_s = now_s - self.due_s
        if late_s < 0.0:
            return None
        if not self._is_told_of_it(now_s):
            self._bridge_s = bridge_s
        gives_up = late_s >= self._bridge_s
        is_dry = self._is_dry()
        self.withholding = is_dry and not gives_up
        if self.withholding:
            return None
        hidden = late_s <= self._bridge_s + TICK_S
        start_s = now_s if is_dry else max(self.due_s, now_s - SLIP_S)
        missed_s, self._behind_s = late_s - self._behind_s, now_s - start_s
        if hidden and not is_dry and missed_s > JITTER_S and self._sounding is not None:
            clock = self._sounding.clock
            clock.stretches.append(Break(clock.pushed_samples, missed_s))
            if now_s >= self._told_until_s:
                self._told_until_s = now_s + REPORTS_S
        silent_before = self._sounding is None
        pcm = self._tail[:_FRAME_BYTES]
        self._tail = self._tail[_FRAME_BYTES:]
        if not pcm:
            pcm = self._sound(start_s, hidden, gives_up)
        if len(pcm) < _FRAME_BYTES:
            self._fall_silent()
            pcm += self._tail
            self._tail = pcm[_FRAME_BYTES:]
            pcm = pcm[:_FRAME_BYTES].ljust(_FRAME_BYTES, b"\0")
        self.due_s = start_s + TICK_S
        began = self._sounding is not None and (silent_before or missed_s > JITTER_S)
        return Piece(pcm, restart=began)

    def bridge_now_s(self, now_s: float, bridge_s: float) -> float:
        """Return how long after `due_s` nothing may be sent; 0 in silence."""
        if self._sounding is None:
            return 0.0
        return self._bridge_s if self._is_told_of_it(now_s) else bridge_s

    def clear(self, now_s: float) -> None:
        """Drop everything that has not left."""
        for clock in self._clocks():
            clock.clear(max(self.due_s, now_s))
        self._lines.clear()
        self._fall_silent()

    def pause(self, now_s: float) -> None:
        """Hold everything that has not left."""
        for clock in self._clocks():
            clock.pause(max(self.due_s, now_s))
        self._fall_silent()
        self.held = True

    def tail(self) -> bytes:
        """Return the fade that has not been sent yet, as a frame; empty if there is none."""
        tail, self._tail = self._tail, b""
        return tail.ljust(_FRAME_BYTES, b"\0") if tail else b""

    def _clocks(self) -> list[PlaybackClock]:
        """A speech counts until its last frame has left."""
        sounding = [self._sounding.clock] if self._sounding is not None else []
        return list(dict.fromkeys(sounding + super()._clocks()))

    def _is_told_of_it(self, now_s: float) -> bool:
        """Say whether the sound that a receiver reports to have missed may be what we withheld."""
        return self.withholding or now_s < self._told_until_s

    def _is_dry(self) -> bool:
        """Say whether a speech that sounds has no frame ready and owes one."""
        line = self._sounding
        return (
            line is not None
            and not (line.sealed or line.starved)
            and line.num_samples < TICK_SAMPLES
        )

    def _sound(self, start_s: float, hidden: bool, gives_up: bool) -> bytes:
        """Take up to a frame of what waits and book it; less of it means that silence follows."""
        pcm = b""
        while not self.held and self._lines and len(pcm) < _FRAME_BYTES:
            line = self._lines[0]
            wanted = TICK_SAMPLES - len(pcm) // SAMPLE_BYTES
            num_samples = min(wanted, line.num_samples)
            ends = line.sealed or line.starved or (gives_up and line is self._sounding)
            if num_samples == 0 or (num_samples < wanted and not ends):
                break
            exit_s = start_s + samples_to_s(len(pcm) // SAMPLE_BYTES)
            withheld = hidden and line is self._sounding
            line.clock.push(num_samples, exit_s, exit_s, withheld=withheld)
            pcm += line.take(num_samples)
            line.clock.makes_good = True
            self._sounding = line
            if line.starved and not line.pcm:
                line.clock.starve()
            self._drop_finished()
        self._last = (self._last + pcm)[-_FADE_BYTES:]
        return pcm

    def _fall_silent(self) -> None:
        """Let the sound end: what follows of the same speech rises again."""
        line, self._sounding = self._sounding, None
        self.withholding = False
        if line is None:
            return
        line.clock.makes_good = False
        self._tail = fade_after(self._last)
        self._last = b""
        if line.pcm:
            line.pcm[:] = fade_start(bytes(line.pcm))
        else:
            line.rises = True


class DirectPump:
    """Feeds an AudioSource without a native queue, frame by frame."""

    def __init__(
        self,
        source: Source,
        bridge_s: Callable[[float], float],
        on_restart: Callable[[], None] = lambda: None,
    ) -> None:
        """Take a source, how long its receivers bridge at a moment, and who is told of restarts.

        `on_restart` is called when sound begins after silence or after a stretch.
        """
        self._source = source
        self._bridge_s = bridge_s
        self._on_restart = on_restart
        self._line = DirectLine()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Feed the source until cancelled."""
        self._line.due_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            piece = self._line.take(now_s, self._bridge_s(now_s))
            if piece is None:
                await self._wait(now_s)
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
        self._line.clear(time.monotonic())
        self._wake.set()

    def pause(self) -> None:
        """Silence the track now and keep what has not left."""
        if not self._line.held:
            self._line.pause(time.monotonic())
            self._wake.set()

    def resume(self) -> None:
        """Send again."""
        self._line.resume()

    async def settle(self) -> None:
        """Send the fade of the last cut, if `run` has not."""
        tail = self._line.tail()
        if tail:
            await self._source.capture_frame(audio_frame(tail))

    def bridge_s(self, now_s: float) -> float:
        """Return how long the receivers hide that nothing is sent; 0 while silence is."""
        return self._line.bridge_now_s(now_s, self._bridge_s(now_s))

    async def _wait(self, now_s: float) -> None:
        """Sleep until the next frame is due; while withholding, until something changed."""
        line = self._line
        if not line.withholding:
            await asyncio.sleep(line.due_s - now_s)
            return
        self._wake.clear()
        until_s = line.due_s + line.bridge_now_s(now_s, self._bridge_s(now_s))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), max(until_s - now_s, 0.0))


def make_direct_source() -> rtc.AudioSource:
    """Return a source without a native queue; on the room's loop."""
    return rtc.AudioSource(SAMPLE_RATE_HZ, 1, queue_size_ms=0)
