"""RoomCounters: what the rooms of one process did, as plain numbers; any thread."""

import threading

from playhead.worker.events import Finished, Interrupted, SpeakerEvent, SpeechError, Started


class RoomCounters:
    """Counts since start, shared by every room of a process."""

    def __init__(self) -> None:
        """Start at zero."""
        self._lock = threading.Lock()
        self._counts: dict[str, float] = dict.fromkeys(
            ("rooms", "started", "finished", "interrupted", "errors", "unauthorized"), 0.0
        )
        self._counts |= dict.fromkeys(
            ("heard_s", "underruns", "gap_s", "stretched_s", "text_wait_s", "reports_dropped"), 0.0
        )

    def add(self, name: str, value: float = 1.0) -> None:
        """Add to one counter."""
        with self._lock:
            self._counts[name] += value

    def event(self, event: SpeakerEvent) -> None:
        """Count what a speaker told its room."""
        if isinstance(event, Started):
            self.add("started")
        elif isinstance(event, SpeechError):
            self.add("errors")
        elif isinstance(event, Finished | Interrupted):
            self.add("finished" if isinstance(event, Finished) else "interrupted")
            self.add("underruns", event.gaps)
            for name in ("heard_s", "gap_s", "stretched_s", "text_wait_s"):
                self.add(name, getattr(event, name))

    def snapshot(self) -> dict[str, float]:
        """Return name -> count."""
        with self._lock:
            return dict(self._counts)
