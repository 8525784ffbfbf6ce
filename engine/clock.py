"""PlaybackClock: what of one request was pushed, left the sender, was heard; pure, one thread.

The sender's queue empties in real time, so each pushed chunk becomes a run: samples that leave
one after another from a known moment. Everything else is reading runs: exited samples, the moment
the queue is dry, the breaks between runs, and the sample at the ear a path delay later. A break is
a gap (the listener heard silence that nobody asked for), a stretch (the sender sent nothing, so
that the receiver lengthened the sound) or a wait for text; pauses and cuts are none of these.
Time enters as `now_s` on the monotonic clock; counts are post-trim samples of the request.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from playhead.engine.messages import ClockState, PlaybackSnapshot
from playhead.engine.receiver import ReceiverEstimate
from playhead.engine.units import s_to_samples, samples_to_s

GAP_FLOOR_S = 0.002
"""A later start than this after the queue ran dry is a gap; less is rounding of a 10 ms tick."""


@dataclass(slots=True)
class _Run:
    """Consecutive samples leaving the sender in real time."""

    start_sample: int
    num_samples: int
    exit_s: float

    def exited(self, now_s: float) -> int:
        return min(max(s_to_samples(now_s - self.exit_s), 0), self.num_samples)

    @property
    def end_s(self) -> float:
        return self.exit_s + samples_to_s(self.num_samples)


@dataclass(frozen=True, slots=True)
class Break:
    """Time inside a request in which nothing of it left the sender."""

    at_sample: int
    duration_s: float


def total_s(breaks: Iterable[Break]) -> float:
    """Return how long breaks lasted together."""
    return sum(each.duration_s for each in breaks)


class PlaybackClock:
    """Playback of one request at one sender, heard by one listener."""

    def __init__(self, request_id: str, receiver: ReceiverEstimate) -> None:
        """Start waiting: nothing plays until `start`."""
        self.request_id = request_id
        self.receiver = receiver
        self.pushed_samples = 0
        self.gaps: list[Break] = []
        self.stretches: list[Break] = []
        self.text_waits: list[Break] = []
        self.makes_good = False
        """A sender that sent nothing while it had nothing sends all it missed at once: what comes
        late leaves as if it had come in time."""
        self._runs: list[_Run] = []
        self._state: ClockState = "waiting"
        self._asked_for: Literal["text", "cut"] | None = None
        """What explains silence after the last run."""
        self._floor_heard = 0

    @property
    def state(self) -> ClockState:
        """Waiting until a listener is subscribed, then playing, paused or gone."""
        return self._state

    def start(self) -> None:
        """A listener is there: what is pushed is played."""
        if self._state == "waiting":
            self._state = "playing"

    def push(
        self, num_samples: int, exit_s: float, now_s: float, *, withheld: bool = False
    ) -> None:
        """Take a chunk handed to the sender whose first sample leaves at `exit_s` (>= now).

        `withheld`: since the last sample the sender sent nothing at all, not silence.
        """
        assert num_samples > 0 and self._state in ("playing", "paused"), self._state
        exit_s = max(exit_s, now_s)
        last = self._runs[-1] if self._runs else None
        if last is not None and exit_s - last.end_s <= GAP_FLOOR_S:
            last.num_samples += num_samples
        else:
            if last is not None:
                self._note(Break(self.pushed_samples, exit_s - last.end_s), withheld)
            self._runs.append(_Run(self.pushed_samples, num_samples, exit_s))
        self.pushed_samples += num_samples
        self._asked_for = None

    def _note(self, ended: Break, withheld: bool) -> None:
        if self._asked_for == "text":
            self.text_waits.append(ended)
        elif self._asked_for is None:
            (self.stretches if withheld else self.gaps).append(ended)

    def starve(self) -> None:
        """All text so far is spoken: silence until the next push is awaited text, not a gap."""
        self._asked_for = "text"

    def clear(self, now_s: float) -> int:
        """Drop what has not left the sender; return the samples dropped.

        The counts go back as if the dropped samples had never been pushed.
        """
        kept = self.exited_samples(now_s)
        dropped = self.pushed_samples - kept
        while self._runs and self._runs[-1].start_sample >= kept:
            self._runs.pop()
        if self._runs:
            self._runs[-1].num_samples = kept - self._runs[-1].start_sample
        self.pushed_samples = kept
        self._asked_for = "cut"
        return dropped

    def pause(self, now_s: float) -> int:
        """Stop at once; return the samples taken back from the sender, to be pushed on resume."""
        if self._state != "playing":
            return 0
        self._state = "paused"
        return self.clear(now_s)

    def resume(self) -> None:
        """Go on after a pause; the silence in between is no gap."""
        if self._state == "paused":
            self._state = "playing"

    def leave(self) -> None:
        """No listener is left."""
        self._state = "gone"

    def exited_samples(self, now_s: float) -> int:
        """Return how many samples have left the sender."""
        for run in reversed(self._runs):
            if run.exit_s <= now_s:
                return run.start_sample + run.exited(now_s)
        return 0

    def heard_samples(self, now_s: float) -> int:
        """Return how many samples have reached the ear; never falls."""
        heard = self.exited_samples(now_s - self.receiver.delay_s(now_s))
        self._floor_heard = max(self._floor_heard, heard)
        return min(self._floor_heard, self.pushed_samples)

    def dry_at_s(self, now_s: float) -> float:
        """Return when the last pushed sample leaves the sender; now if it has left.

        Where time is made good, when it left: what follows is late since then.
        """
        if not self._runs:
            return now_s
        end_s = self._runs[-1].end_s
        return end_s if self.makes_good else max(end_s, now_s)

    def snapshot(self, now_s: float) -> PlaybackSnapshot:
        """Freeze the clock for the engine."""
        receiver = self.receiver
        return PlaybackSnapshot(
            request_id=self.request_id,
            at_s=now_s,
            pushed_samples=self.pushed_samples,
            exited_samples=self.exited_samples(now_s),
            dry_at_s=self.dry_at_s(now_s),
            bridge_s=receiver.bridge_s(now_s),
            heard_samples=self.heard_samples(now_s),
            state=self._state,
            source=receiver.source(now_s),
        )
