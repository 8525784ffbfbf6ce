"""EngineMetrics: counters and windows of one engine as plain data; written by the engine thread."""

from collections import deque
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Window:
    """The most recent values of a measure; quantiles on demand."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=512))

    def add(self, value: float) -> None:
        """Take one value."""
        self.values.append(value)

    def quantile(self, share: float) -> float:
        """Return a nearest-rank quantile, 0 when empty."""
        ordered = sorted(self.values)
        if not ordered:
            return 0.0
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@dataclass(slots=True)
class EngineMetrics:
    """Counts since start, and windows over recent steps."""

    accepted: int = 0
    refused: int = 0
    done: int = 0
    cancelled: int = 0
    failed: int = 0
    live: int = 0
    frame_steps: int = 0
    frame_rows: int = 0
    prefill_rows: int = 0
    codec_steps: int = 0
    codec_frames: int = 0
    published_samples: int = 0
    trimmed_samples: int = 0
    unheard_samples: int = 0
    """Published and dropped unheard by interruptions."""
    text_wait_s: float = 0.0
    """Time live streams stood still because their text had not come."""
    late_s: float = 0.0
    """Time by which chunks missed their soft deadline, text waits apart."""
    late_chunks: int = 0
    first_audio_s: Window = field(default_factory=Window)
    """From the first speakable text to the first published sample."""
    frame_s: Window = field(default_factory=Window)
    codec_s: Window = field(default_factory=Window)
    step_s: Window = field(default_factory=Window)

    def saw_frames(self, num_rows: int, took_s: float) -> None:
        """Count one frame batch."""
        self.frame_steps += 1
        self.frame_rows += num_rows
        self.frame_s.add(took_s)

    def saw_codec(self, num_frames: int, took_s: float) -> None:
        """Count one codec batch of so many frames over all its rows."""
        self.codec_steps += 1
        self.codec_frames += num_frames
        self.codec_s.add(took_s)

    def snapshot(self) -> dict[str, float]:
        """Return name -> number: counters as they are, windows as _p50 and _p99."""
        out: dict[str, float] = {}
        for spec in fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, Window):
                out[f"{spec.name}_p50"] = value.quantile(0.5)
                out[f"{spec.name}_p99"] = value.quantile(0.99)
            else:
                out[spec.name] = float(value)
        return out
