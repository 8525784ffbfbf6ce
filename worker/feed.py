"""FeedLine: which samples go to the sender's native queue when, and when each leaves; pure.

Speech waits here and is handed over so that at most `LEAD_S` of it lies in the native queue:
pausing or clearing then loses little. The last 5 ms known are kept back, to be faded out if
nothing follows. The native queue empties in whole frames at ticks 10 ms apart whose phase the
pump measures, so each handover is booked in the speech's PlaybackClock with its exact exit, and a
cut falls on a frame's border: the fade that replaces the rest joins without a click.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from playhead.engine.clock import PlaybackClock
from playhead.engine.units import SAMPLE_BYTES, s_to_samples, samples_to_s
from playhead.worker.pcm_queue import (
    FADE_SAMPLES,
    TICK_S,
    TICK_SAMPLES,
    Line,
    PcmQueue,
    fade_end,
    fade_start,
)

LEAD_S = 0.25
"""Most audio in the native queue; 100 ms pieces with 300 ms ahead held 40 rooms per process."""
PIECE_S = 0.08
"""The native queue is refilled once it has room for this much."""
TAIL_S = 0.015
"""With less than this left in the native queue, the kept back end goes out faded."""
START_S = 0.045
"""A speech begins with so much at least. The trim leaves 25 to 35 ms of a tenth of first chunks and
the second comes 16 to 20 ms later (one stream, two cores): by then the kept back end would be due.
"""
HANDOVER_S = (0.000001, 0.001)
"""Shortest and longest way of a piece into the native queue: whether it meets a tick in between
nobody can say."""
PAST_TICK_S = 0.0001
"""So long after a tick none is near."""
CUT_S = 0.002
"""From a decision to the call into the SDK that acts on it, with room to spare."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A piece in the native queue."""

    clock: PlaybackClock
    exit_s: float
    pcm: bytes

    @property
    def end_s(self) -> float:
        return self.exit_s + samples_to_s(len(self.pcm) // SAMPLE_BYTES)


@dataclass(frozen=True, slots=True)
class Cut:
    """How to silence the sender: after the tick before `at_s`, clear its queue and send `tail`."""

    at_s: float
    tail: bytes
    """One frame that fades out; empty if nothing sounded."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What to hand to the sender now."""

    pcm: bytes
    restart: bool
    """The sender was dry before it."""


class FeedLine(PcmQueue):
    """Everything between a room's speeches and its sender's native queue."""

    def __init__(self, start_s: Callable[[], float] = lambda: START_S) -> None:
        """Start held: nothing is handed over before `resume`.

        A speech begins once `start_s` of it waits, or so long after its first samples came.
        """
        super().__init__()
        self._start_s = start_s
        self._begins: tuple[Line, float] | None = None
        """A speech that could begin, and the last moment at which it does."""
        self._sent: deque[_Sent] = deque()
        self._dry_s = 0.0
        self._cut_s = 0.0
        """When the last cut takes effect: what leaves until then can't be taken back."""
        self._fed_samples = 0
        self.tick_s = 0.0
        """Some tick of the native queue."""

    def dry_s(self, now_s: float) -> float:
        """Return when the native queue runs dry; now if it is."""
        return max(self._dry_s, now_s)

    def end(self, clock: PlaybackClock) -> None:
        """Nothing follows at all: fade the end of the speech out."""
        line = self._line(clock)
        line.pcm[:] = fade_end(bytes(line.pcm))
        super().end(clock)

    def take(self, now_s: float) -> Piece | None:
        """Return what the sender must get now, or None; booked as handed over."""
        self._forget_exited(now_s)
        if self.held or not self._lines:
            return None
        line = self._lines[0]
        exit_s = self._exit_s(now_s)
        num_samples = self._allowed(line, now_s)
        if num_samples == 0 or exit_s is None:
            return None
        restart = exit_s > self._dry_s
        pcm = line.take(num_samples)
        if not line.pcm and not line.sealed:
            pcm = fade_end(pcm)
            line.rises = True
        self._book(line.clock, pcm, exit_s, now_s)
        if not line.pcm and line.starved:
            line.clock.starve()
        self._drop_finished()
        return Piece(pcm + self._padding(), restart)

    def next_s(self, now_s: float) -> float | None:
        """Return when `take` may give something next; None: only after a push or resume."""
        if self.held or not self._lines or not self._lines[0].pcm:
            return None
        if self._too_short(self._lines[0], now_s):
            return self._begins[1] if self._begins is not None else None
        if self._exit_s(now_s) is None:
            return self._next_tick_s(now_s) + PAST_TICK_S
        line = self._lines[0]
        free = line.num_samples - self._kept_back(line)
        return self._dry_s - ((LEAD_S - PIECE_S) if free > 0 else TAIL_S)

    def clear(self, now_s: float) -> Cut | None:
        """Drop everything that has not left; None if the sender has nothing to drop."""
        cut = self._cut(now_s)
        for clock in self._clocks():
            clock.clear(cut.at_s if cut else max(now_s, self._cut_s))
        self._lines.clear()
        self._reset(cut)
        return cut

    def pause(self, now_s: float) -> Cut | None:
        """Take back what has not left and hold it; None if the sender has nothing to drop."""
        cut = self._cut(now_s)
        back: list[Line] = []
        for clock in self._clocks():
            sent = b"".join(piece.pcm for piece in self._sent if piece.clock is clock)
            at_s = cut.at_s if cut else max(now_s, self._cut_s)
            num_bytes = clock.pause(at_s) * SAMPLE_BYTES
            if num_bytes:
                pcm = bytearray(fade_start(sent[len(sent) - num_bytes :]))
                back.append(Line(clock, pcm, sealed=True))
        for line in reversed(back):
            if self._lines and self._lines[0].clock is line.clock:
                self._lines[0].pcm[:0] = line.pcm
            else:
                self._lines.appendleft(line)
        self.held = True
        self._reset(cut)
        return cut

    def _clocks(self) -> list[PlaybackClock]:
        return list(dict.fromkeys([piece.clock for piece in self._sent] + super()._clocks()))

    def _too_short(self, line: Line, now_s: float) -> bool:
        """Return whether a speech waits for more before it begins: a trim may leave it little."""
        if self._begins is not None and self._begins[0] is not line:
            self._begins = None
        if line.clock.pushed_samples or line.sealed or line.starved:
            return False
        if line.num_samples < s_to_samples(START_S):
            return True
        start_s = self._start_s()
        if self._begins is None:
            self._begins = line, now_s + start_s
        return line.num_samples < s_to_samples(start_s) and now_s < self._begins[1]

    def _kept_back(self, line: Line) -> int:
        return 0 if line.sealed or line.starved else FADE_SAMPLES

    def _allowed(self, line: Line, now_s: float) -> int:
        """Return how many samples of the line may go now."""
        if self._too_short(line, now_s):
            return 0
        queued_s = max(self._dry_s - now_s, 0.0)
        free = line.num_samples - self._kept_back(line)
        if free <= 0:
            return line.num_samples if queued_s <= TAIL_S else 0
        if queued_s > LEAD_S - PIECE_S:
            return 0
        return min(free, s_to_samples(LEAD_S - queued_s))

    def _exit_s(self, now_s: float) -> float | None:
        """Return when a sample leaves that is handed over now.

        Behind all that lies there, or at the next tick where the last one found less than a frame
        (that rest leaves first). None: a tick is so near that nobody can say.
        """
        rest_s = samples_to_s(self._fed_samples % TICK_SAMPLES)
        soonest_s, latest_s = (
            max(self._dry_s, self._next_tick_s(now_s + way_s) + rest_s) for way_s in HANDOVER_S
        )
        return latest_s if latest_s - soonest_s < TICK_S / 2 else None

    def _book(self, clock: PlaybackClock, pcm: bytes, exit_s: float, now_s: float) -> None:
        num_samples = len(pcm) // SAMPLE_BYTES
        clock.push(num_samples, exit_s, now_s)
        self._sent.append(_Sent(clock, exit_s, pcm))
        self._dry_s = exit_s + samples_to_s(num_samples)
        self._fed_samples += num_samples

    def _padding(self) -> bytes:
        """Fill the last tick with silence if nothing waits behind it."""
        rest = -self._fed_samples % TICK_SAMPLES
        if rest == 0 or any(line.pcm for line in self._lines):
            return b""
        self._fed_samples += rest
        self._dry_s += samples_to_s(rest)
        return bytes(rest * SAMPLE_BYTES)

    def _forget_exited(self, now_s: float) -> None:
        while self._sent and self._sent[0].end_s <= now_s:
            self._sent.popleft()

    def _cut(self, now_s: float) -> Cut | None:
        """Cut at the next tick that can still be met: frames before it have left, none after."""
        self._forget_exited(now_s)
        if not self._sent:  # dry, or nothing but the fade of a cut before
            return None
        at_s = self._next_tick_s(now_s + CUT_S)
        playing = next((piece for piece in self._sent if piece.end_s > at_s + 1e-6), None)
        if playing is None or playing.exit_s > at_s + 1e-6:
            return Cut(at_s, b"")
        start = s_to_samples(at_s - playing.exit_s) * SAMPLE_BYTES
        faded = fade_end(playing.pcm[start : start + FADE_SAMPLES * SAMPLE_BYTES])
        return Cut(at_s, faded + bytes(TICK_SAMPLES * SAMPLE_BYTES - len(faded)))

    def _reset(self, cut: Cut | None) -> None:
        """Note that the native queue holds nothing but the fade."""
        if cut is not None:
            self._sent.clear()
            self._cut_s = cut.at_s
            self._fed_samples = 0
            self._dry_s = cut.at_s + (TICK_S if cut.tail else 0.0)

    def _next_tick_s(self, after_s: float) -> float:
        """Return the first tick not before a moment."""
        num_ticks = math.ceil((after_s - self.tick_s) / TICK_S - 1e-6)
        return self.tick_s + num_ticks * TICK_S
