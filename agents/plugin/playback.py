"""Segment: what a sink plays of one stream: its clock, its words, and whom to tell; one loop."""

from dataclasses import replace

from livekit import rtc
from livekit.plugins.playhead.attempt import Attempt
from livekit.plugins.playhead.streams import USERDATA_ATTEMPT

from playhead.engine.clock import PlaybackClock
from playhead.engine.receiver import ReceiverEstimate
from playhead.engine.units import samples_to_s
from playhead.worker.heard import heard_text

TICK_S = 0.08
"""Playback is told to the engine once a codec frame."""


class Segment:
    """Audio between two flushes of a sink: one stream of the framework, ours or another's."""

    def __init__(self, frame: rtc.AudioFrame, receiver: ReceiverEstimate) -> None:
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

    def report(self, now_s: float, bridge_s: float = 0.0) -> None:
        """Tell the engine where playback stands; `bridge_s` is what a withheld sender gains."""
        if self._attempt is not None:
            self._attempt.report(replace(self.clock.snapshot(now_s), bridge_s=bridge_s))

    def heard_s(self, now_s: float) -> float:
        """Return how much of it reached the ear."""
        return samples_to_s(self.clock.heard_samples(now_s))

    def heard_text(self, now_s: float) -> str | None:
        """Return the words that reached the ear; None where nobody timed them."""
        if self._attempt is None or not self._attempt.words:
            return None
        return heard_text(self._attempt.words, self.heard_s(now_s))
