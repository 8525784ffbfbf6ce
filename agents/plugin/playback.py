"""Segment: what a sink plays of one stream: its clock, its words, and whom to tell; one loop."""

import bisect
from dataclasses import dataclass, replace

from livekit import rtc
from livekit.plugins.playhead.attempt import Attempt
from livekit.plugins.playhead.streams import USERDATA_ATTEMPT

from playhead.engine.clock import PlaybackClock
from playhead.engine.receiver import ReceiverEstimate
from playhead.engine.units import s_to_samples, samples_to_s
from playhead.worker.heard import heard_text

TICK_S = 0.08
"""Playback is told to the engine once a codec frame."""


@dataclass(frozen=True, slots=True)
class Run:
    """Part of a segment that left the sender without a break."""

    started_s: float
    """When its first sample left, on the monotonic clock."""
    offset_s: float
    duration_s: float


class Segment:
    """Audio between two flushes of a sink: one stream of the framework, ours or another's."""

    def __init__(self, frame: rtc.AudioFrame, receiver: ReceiverEstimate, now_s: float) -> None:
        """Take the first frame, which says whose speech it is."""
        attempt = frame.userdata.get(USERDATA_ATTEMPT)
        self._attempt = attempt if isinstance(attempt, Attempt) else None
        self.clock = PlaybackClock(self._attempt.request_id if self._attempt else "", receiver)
        self.num_samples = 0
        """Captured so far, at the engine's rate."""
        self.flushed = False
        """No more of it comes."""
        self.started = False
        """The framework was told that it sounds."""
        self._run_sample = 0
        """Where the run begins that has not been told of."""
        self._run_after_s = now_s
        """It began after this moment."""

    def report(self, now_s: float, bridge_s: float = 0.0) -> None:
        """Tell the engine where playback stands; `bridge_s` is what a withheld sender gains."""
        if self._attempt is not None:
            self._attempt.report(replace(self.clock.snapshot(now_s), bridge_s=bridge_s))

    def take_runs(self, now_s: float, *, over: bool = False) -> list[Run]:
        """Return the runs that ended since the last call.

        `over`: the last one ends with what was pushed, by a pause, a cut or the segment's end.
        """
        clock, runs = self.clock, []
        last = clock.pushed_samples if over else clock.exited_samples(now_s)
        breaks = (*clock.gaps, *clock.stretches, *clock.text_waits)
        ends = {each.at_sample for each in breaks} | ({last} if over else set())
        for end in sorted(end for end in ends if self._run_sample < end <= last):
            num_samples = end - self._run_sample
            runs.append(
                Run(
                    self._exit_s(self._run_sample, now_s),
                    samples_to_s(self._run_sample),
                    samples_to_s(num_samples),
                )
            )
            self._run_sample, self._run_after_s = end, runs[-1].started_s
        return runs

    def _exit_s(self, sample: int, now_s: float) -> float:
        """Return when a sample left, at the latest a second from now."""
        after_s = self._run_after_s
        moments = range(s_to_samples(now_s + 1.0 - after_s))
        first = bisect.bisect_right(
            moments, sample, key=lambda at: self.clock.exited_samples(after_s + samples_to_s(at))
        )
        return after_s + samples_to_s(first)

    def heard_s(self, now_s: float) -> float:
        """Return how much of it reached the ear."""
        return samples_to_s(self.clock.heard_samples(now_s))

    def heard_text(self, now_s: float) -> str | None:
        """Return the words that reached the ear; None where nobody timed them."""
        if self._attempt is None or not self._attempt.words:
            return None
        return heard_text(self._attempt.words, self.heard_s(now_s))
