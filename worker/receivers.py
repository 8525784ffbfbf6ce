"""Receivers: what the listeners of one room report of their playback, and whose report counts.

A report changes only the estimate of the participant that sent it. Heard follows the linked
participant, else the slowest listener that reports; deadlines take the shortest bridge of all.
Pure but for its caller's clock; on the room's loop. Reports over the rate cost one comparison.
"""

import json
from dataclasses import dataclass, fields
from typing import Literal

from playhead.engine.receiver import ReceiverEstimate, ReceiverReport

MAX_REPORT_BYTES = 512
MAX_LISTENING_BYTES = 64
MAX_REPORTS_PER_S = 10.0
"""The helpers send 4 a second."""
_FIELDS = frozenset(field.name for field in fields(ReceiverReport))

ListenerKind = Literal["web", "phone"]


@dataclass(slots=True)
class _Listener:
    estimate: ReceiverEstimate
    budget: float = MAX_REPORTS_PER_S
    budget_at_s: float = 0.0
    listening: bool = True


class Receivers:
    """The listeners of one room."""

    def __init__(self) -> None:
        """Start with nobody there."""
        self.linked: str | None = None
        self._listeners: dict[str, _Listener] = {}
        self._nobody = ReceiverEstimate()

    def add(self, identity: str, kind: ListenerKind) -> None:
        """A listener is there; until it reports, the prior of its kind stands in."""
        self._listeners.setdefault(identity, _Listener(ReceiverEstimate(kind)))

    def remove(self, identity: str) -> None:
        """A listener left."""
        self._listeners.pop(identity, None)

    def __len__(self) -> int:
        """Return how many listeners there are."""
        return len(self._listeners)

    @property
    def deaf(self) -> bool:
        """Return whether all who are there have told that they do not listen."""
        there = self._listeners.values()
        return bool(there) and not any(each.listening for each in there)

    def take(self, identity: str, payload: bytes, now_s: float) -> bool:
        """Take a report, or the word that one listens or not, as it came from the network.

        False if it was dropped: over the rate, malformed, absurd, or from nobody who listens.
        """
        listener = self._listeners.get(identity)
        if listener is None or not _within_rate(listener, now_s):
            return False
        if (told := parse_listening(payload)) is not None:
            listener.listening = told
            return True
        report = parse_report(payload)
        if report is None or report.problem() is not None:
            return False
        listener.estimate.report(report, now_s)
        return True

    def estimate(self, now_s: float) -> ReceiverEstimate:
        """Return the estimate that `heard` follows at this moment."""
        linked = self._listeners.get(self.linked or "")
        if linked is not None:
            return linked.estimate
        estimates = [listener.estimate for listener in self._listeners.values()]
        reporting = [each for each in estimates if each.source(now_s) == "reported"]
        candidates = reporting or estimates or [self._nobody]
        return max(candidates, key=lambda each: each.delay_s(now_s))

    def bridge_s(self, now_s: float) -> float:
        """Return how long every listener's buffer hides withheld packets."""
        bridges = (each.estimate.bridge_s(now_s) for each in self._listeners.values())
        return min(bridges, default=0.0)

    def set_publisher_rtt_s(self, rtt_s: float) -> None:
        """Tell how far this worker is from the media server."""
        for listener in self._listeners.values():
            listener.estimate.publisher_rtt_s = rtt_s


def parse_listening(payload: bytes) -> bool | None:
    """Return what a packet tells of listening; None if it is something else."""
    text = payload[:MAX_LISTENING_BYTES].replace(b" ", b"")
    return {b'{"listening":true}': True, b'{"listening":false}': False}.get(text)


def parse_report(payload: bytes) -> ReceiverReport | None:
    """Return the report in a packet, or None if it is not one; ranges are the caller's to check."""
    if len(payload) > MAX_REPORT_BYTES:
        return None
    try:
        body = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or not body.keys() <= _FIELDS:
        return None
    values = {name: _number(value) for name, value in body.items()}
    if any(value is None for value in values.values()):
        return None
    try:
        return ReceiverReport(
            **{name: value for name, value in values.items() if value is not None}
        )
    except TypeError:
        return None  # a required field is missing


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _within_rate(listener: _Listener, now_s: float) -> bool:
    gained = (now_s - listener.budget_at_s) * MAX_REPORTS_PER_S
    listener.budget = min(listener.budget + gained, MAX_REPORTS_PER_S)
    listener.budget_at_s = now_s
    if listener.budget < 1.0:
        return False
    listener.budget -= 1.0
    return True
