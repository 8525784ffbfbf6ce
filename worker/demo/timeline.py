"""What the demo saw of one utterance: clock events, words, gaps; a row for people; pure."""

from dataclasses import dataclass, field
from typing import Any

HEADER = (
    "   time   token→audio   token→heard     pushed      heard      slack   gaps   words heard\n"
    "   ────   ───────────   ───────────   ────────   ────────   ────────   ────   ───────────"
)


@dataclass(frozen=True, slots=True)
class ClockPoint:
    """One clock event of the worker, in seconds; `at_s` is the host's monotonic clock."""

    at_s: float
    pushed_s: float
    exited_s: float
    heard_s: float
    slack_s: float
    num_gaps: int
    chunk_frames: int


@dataclass(slots=True)
class Timeline:
    """Everything about one utterance, filled as events come."""

    first_token_s: float = 0.0
    audio_s: float | None = None
    """When the speaker said that the first sample is on its way."""
    heard_s: float | None = None
    """When the first audible sample came out of the listener's jitter buffer."""
    points: list[ClockPoint] = field(default_factory=list)
    words: list[dict[str, Any]] = field(default_factory=list)
    outcome: dict[str, Any] = field(default_factory=dict)
    """The event that ended it."""

    def take(self, event: dict[str, Any]) -> None:
        """Take an event of `playhead.events` about this utterance."""
        kind = event["type"]
        if kind == "started":
            self.audio_s = event["at_s"]
        elif kind == "words":
            self.words.extend(event["words"])
        elif kind == "clock":
            self.points.append(
                ClockPoint(
                    at_s=event["clock_s"],
                    pushed_s=event["pushed_s"],
                    exited_s=event["exited_s"],
                    heard_s=event["heard_s"],
                    slack_s=event["slack_s"],
                    num_gaps=event["gaps"],
                    chunk_frames=event["chunk_frames"],
                )
            )
        elif kind in ("finished", "interrupted", "error"):
            self.outcome = event

    @property
    def num_gaps(self) -> int:
        """Return the gaps that the speaker counted."""
        if "gaps" in self.outcome:
            return int(self.outcome["gaps"])
        return self.points[-1].num_gaps if self.points else 0

    def heard_words(self) -> str:
        """Return the words that have begun to sound at the listener."""
        heard_s = self.points[-1].heard_s if self.points else 0.0
        begun = [word["text"] for word in self.words if word["start_s"] <= heard_s]
        return "".join(begun).strip()

    def row(self, now_s: float) -> str:
        """Return one row of the live table."""
        last = self.points[-1] if self.points else None
        words = self.heard_words()
        return "  ".join(
            (
                f"{now_s - self.first_token_s:6.1f}s",
                _ms(self.audio_s, self.first_token_s),
                _ms(self.heard_s, self.first_token_s),
                f"{last.pushed_s:8.2f}s" if last else "        –",
                f"{last.heard_s:8.2f}s" if last else "        –",
                f"{last.slack_s:8.2f}s" if last else "        –",
                f"{self.num_gaps:5d}",
                f" …{words[-38:]}" if len(words) > 38 else f" {words}",
            )
        )


def _ms(moment_s: float | None, since_s: float) -> str:
    return f"{'–':>12}" if moment_s is None else f"{(moment_s - since_s) * 1000:9.0f} ms"
