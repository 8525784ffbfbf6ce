"""Admission: may one more live stream be promised real time? Pure: measured costs in."""

from dataclasses import dataclass

from playhead.engine.profile import Profile
from playhead.engine.units import FRAME_S


@dataclass(slots=True)
class StepCosts:
    """What a step costs, learned from the steps themselves.

    A frame batch of B rows is taken as fixed + per_row * B, a codec batch as per-frame time:
    both are nearly linear on every device measured (docs/architecture.md, Numbers).
    """

    frame_fixed_s: float = 0.012
    frame_row_s: float = 0.005
    codec_frame_s: float = 0.010
    smoothing: float = 0.05

    def saw_frame(self, rows: int, took_s: float) -> None:
        """Learn from one frame batch (normalised least mean squares over 1 and rows)."""
        gain = 4 * self.smoothing * (took_s - self.frame_s(rows)) / (1 + rows * rows)
        self.frame_fixed_s += gain
        self.frame_row_s += gain * rows
        self.frame_row_s = max(self.frame_row_s, 1e-6)
        self.frame_fixed_s = max(self.frame_fixed_s, 1e-6)

    def saw_codec(self, frames: int, took_s: float) -> None:
        """Learn from one codec batch of `frames` frames over all rows."""
        self.codec_frame_s += self.smoothing * (took_s / frames - self.codec_frame_s)

    def frame_s(self, rows: int) -> float:
        """Predict a frame batch."""
        return self.frame_fixed_s + self.frame_row_s * rows


def busy_share(num_live: int, costs: StepCosts, profile: Profile) -> float:
    """Share of time the device works to keep `num_live` streams in real time."""
    if num_live == 0:
        return 0.0
    rows = min(num_live, profile.max_rows)
    return num_live * (costs.frame_s(rows) / rows + costs.codec_frame_s) / FRAME_S


def retry_s(num_live: int, free_slots: int, costs: StepCosts, profile: Profile) -> float | None:
    """Return None to accept one more stream, else the seconds after which to ask again.

    The first live stream is always accepted: only its own steps can correct costs that a busy
    moment made look too high.
    """
    if free_slots > 0 and num_live == 0:
        return None
    over = busy_share(num_live + 1, costs, profile) - profile.busy_limit
    if free_slots > 0 and over <= 0:
        return None
    return min(1.0 + 4.0 * max(over, 0.0), 10.0)
