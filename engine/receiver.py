"""What a listener's receiver adds between the sender's queue and the ear; pure, any thread.

A receiver report says how long its jitter buffer holds audio and how far away it is. Reports are
noisy in round-trip time and smooth in buffer delay, so the estimate is a median over a window;
without reports a prior stands in. Constants are measured: docs/architecture.md, section Numbers.
"""

from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Literal

from playhead.engine.messages import ClockSource

PACKET_PATH_S = 0.017
"""Exit to ear on a clean link less the jitter buffer: encoder, 20 ms packet, tick, frame."""
RTT_WINDOW_S = 5.0
BUFFER_WINDOW_S = 1.0
MIN_AUDIO_S = 0.1
"""Less than that in a report tells of the silence between speeches: receivers were seen to hold
20 ms then, and 100 ms from the first packets of the next speech on."""
REPORT_LIFE_S = 3.0
"""A listener silent for longer is estimated from its prior again."""
MAX_DELAY_S = 2.0
BRIDGE_PRIOR_S = 0.02
EXPAND_S = 0.08
"""How much a receiver lengthens the last sound beyond its buffer before that is heard."""
MAX_BRIDGE_S = 0.1
"""Withheld so long and all of it then sent at once, 3 of 20 stalls amid speech left 15 to 20 ms of
silence at a listener, and 3 of 20 of 90 ms left 10 ms; of 120 ms 4 of 10, of 140 ms 9 of 10 did. Of
215 of 80 ms none did."""
PRIOR_S: dict[str, float] = {"web": 0.120, "phone": 0.200}


@dataclass(frozen=True, slots=True)
class ReceiverReport:
    """One report of one listener; all durations in seconds."""

    jitter_buffer_s: float
    """Mean time a sample spent in the jitter buffer since the last report."""
    target_s: float
    """The buffer level the receiver aims at."""
    rtt_s: float
    """Round trip between the receiver and its server."""
    playout_s: float = 0.0
    """Output delay after the jitter buffer (device), where the receiver knows it."""
    concealed_s: float = 0.0
    """Audio concealed since the last report."""
    audio_s: float = 0.25
    """Audio from packets since the last report; a silent sender sends few."""

    def problem(self) -> str | None:
        """Return what makes the report absurd, or None."""
        for name in ("jitter_buffer_s", "target_s", "rtt_s", "playout_s", "concealed_s", "audio_s"):
            value = getattr(self, name)
            if not 0.0 <= value <= MAX_DELAY_S:  # also refuses NaN
                return f"{name} is {value}, allowed is 0 to {MAX_DELAY_S}"
        return None


class ReceiverEstimate:
    """Delay from the sender's queue to one listener's ear, and what its buffer can bridge."""

    def __init__(self, kind: Literal["web", "phone"] = "web", publisher_rtt_s: float = 0.0) -> None:
        """Start from the prior of a kind of listener."""
        self.kind = kind
        self.publisher_rtt_s = publisher_rtt_s
        self._rtt: deque[tuple[float, float]] = deque()
        self._buffer: deque[tuple[float, float]] = deque()
        self._sounded = False
        self._target_s = 0.0
        self._playout_s = 0.0
        self._concealed_s = 0.0
        self._last_s: float | None = None

    def report(self, report: ReceiverReport, now_s: float) -> None:
        """Take a report; the caller has checked `report.problem()` and its sender."""
        self._rtt.append((now_s, report.rtt_s))
        _drop_before(self._rtt, now_s - RTT_WINDOW_S)
        sounding = report.audio_s >= MIN_AUDIO_S
        if sounding or not self._sounded:
            if sounding and not self._sounded:
                self._buffer.clear()
            self._sounded = sounding
            self._buffer.append((now_s, report.jitter_buffer_s))
            _drop_before(self._buffer, now_s - BUFFER_WINDOW_S)
            self._target_s = report.target_s
        self._playout_s = report.playout_s
        self._concealed_s = report.concealed_s
        self._last_s = now_s

    def source(self, now_s: float) -> ClockSource:
        """Say what the estimate rests on at this moment."""
        if self._last_s is not None and now_s - self._last_s <= REPORT_LIFE_S:
            return "reported"
        return "assumed"

    def delay_s(self, now_s: float) -> float:
        """Return the time from leaving the sender's queue to the ear."""
        if self.source(now_s) == "assumed":
            return PRIOR_S[self.kind]
        rtt_s = median(value for _, value in self._rtt)
        buffer_s = median(value for _, value in self._buffer)
        delay_s = PACKET_PATH_S + (self.publisher_rtt_s + rtt_s) / 2 + buffer_s + self._playout_s
        return min(delay_s, MAX_DELAY_S)

    def bridge_s(self, now_s: float) -> float:
        """Return how long the receiver's buffer hides withheld packets."""
        if self.source(now_s) == "assumed":
            return BRIDGE_PRIOR_S
        if self._concealed_s > 0.02:
            return 0.0
        return min(self._target_s + EXPAND_S, MAX_BRIDGE_S)


def _drop_before(window: deque[tuple[float, float]], oldest_s: float) -> None:
    while len(window) > 1 and window[0][0] < oldest_s:
        window.popleft()
