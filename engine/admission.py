"""Admission: may one more live stream be promised real time? Pure: measured costs in."""

from collections.abc import Sequence
from dataclasses import dataclass

from playhead.engine.profile import Profile
from playhead.engine.units import FRAME_S

SMOOTHING = 0.05
"""Share of the newest batch in what is known."""

ROUNDS = 60
"""Looks at one measurement until the guesses are forgotten."""

MOST_SPREAD = 2.0
"""A batch that takes longer than so many times its prediction met a stall, not its own size."""

OVERLAP_SMOOTHING = 0.01
"""Share of the newest batch in what is known of the overlap."""
OVERLAP_CREDIT = 0.7
"""Share of the overlap that is promised to streams; the rest is for those who join. On a simulated
device at four times its load, three seeds of 40 s, all of it left late chunks with each, 0.7 none.
"""
OVERLAP_PRIOR_S = 0.5
"""Work taken as done one batch after another before anything was seen."""

OFFLINE_RETRY_S = 2.0
"""A refused offline request has no deadline to be told about."""


@dataclass(slots=True)
class _Line:
    """Least squares of a batch's time over its size; old batches fade.

    A guess of the slope stands until sizes differ: it counts like sizes half a row apart.
    """

    slope_s: float
    mean_size: float | None = None
    mean_s: float = 0.0
    variance: float = 0.25
    covariance: float = 0.0

    def saw(self, size: int, took_s: float) -> tuple[float, float]:
        """Take one batch; return fixed and slope, neither below 0."""
        if self.mean_size is None:
            self.mean_size, self.mean_s = float(size), took_s
            self.covariance = self.slope_s * self.variance
        off, off_s = size - self.mean_size, took_s - self.mean_s
        self.mean_size += SMOOTHING * off
        self.mean_s += SMOOTHING * off_s
        self.variance = (1 - SMOOTHING) * (self.variance + SMOOTHING * off * off)
        self.covariance = (1 - SMOOTHING) * (self.covariance + SMOOTHING * off * off_s)
        slope_s = max(self.covariance / max(self.variance, 1e-12), 1e-9)
        slope_s = min(slope_s, self.mean_s / self.mean_size)
        return self.mean_s - slope_s * self.mean_size, slope_s


class StepCosts:
    """What a step costs, learned from the steps themselves.

    A frame batch of B rows is taken as fixed + per_row * B, a codec batch as fixed + per_frame *
    its frames over all rows: both are nearly linear on every device measured
    (docs/architecture.md, Numbers).
    """

    def __init__(
        self,
        frame_fixed_s: float = 0.012,
        frame_row_s: float = 0.005,
        codec_frame_s: float = 0.010,
        codec_fixed_s: float = 0.0,
        prompt_row_s: float = 0.001,
    ) -> None:
        """Begin with guesses; the defaults are those of a slow CPU."""
        self.frame_fixed_s, self.frame_row_s = frame_fixed_s, frame_row_s
        self.codec_fixed_s, self.codec_frame_s = codec_fixed_s, codec_frame_s
        self.prompt_row_s = prompt_row_s
        self.codec_spread = 1.0
        """How many times its prediction the longest codec batch of late took; it fades."""
        self.overlap = 1.0
        """Time in which the device worked, for each second that its batches took: below 1 where
        frames and codec run beside each other and so take longer each."""
        self._frames, self._codecs = _Line(frame_row_s), _Line(codec_frame_s)
        self._took_s = self._busy_s = OVERLAP_PRIOR_S

    @classmethod
    def measured(
        cls, frames: Sequence[tuple[int, float]], codecs: Sequence[tuple[int, float]]
    ) -> "StepCosts":
        """Begin with what batches of (rows, seconds) and (frames, seconds) took beforehand."""
        costs = cls()
        for _ in range(ROUNDS):
            for rows, took_s in frames:
                costs.saw_frame(rows, took_s)
            for num_frames, took_s in codecs:
                costs.saw_codec(num_frames, took_s)
        return costs

    def saw_frame(self, rows: int, took_s: float) -> None:
        """Learn from one frame batch."""
        self.frame_fixed_s, self.frame_row_s = self._frames.saw(rows, took_s)

    def saw_codec(self, frames: int, took_s: float) -> None:
        """Learn from one codec batch of `frames` frames over all rows."""
        share = min(took_s / max(self.codec_s(frames), 1e-9), MOST_SPREAD)
        faded = 1.0 + (1 - SMOOTHING / 4) * (self.codec_spread - 1.0)
        self.codec_spread = max(share, faded)
        self.codec_fixed_s, self.codec_frame_s = self._codecs.saw(frames, took_s)

    def saw_work(self, took_s: float, passed_s: float) -> None:
        """Learn from one batch of any kind: while something flew, `passed_s` went by since the
        last one landed."""
        self._took_s += took_s - OVERLAP_SMOOTHING * self._took_s
        self._busy_s += passed_s - OVERLAP_SMOOTHING * self._busy_s
        self.overlap = min(self._busy_s / self._took_s, 1.0)

    def saw_prompt(self, rows: int, took_s: float) -> None:
        """Learn from one prefill that ran `rows` prompt rows; 0 rows were copied."""
        if rows:
            self.prompt_row_s += 4 * SMOOTHING * (took_s / rows - self.prompt_row_s)

    def frame_s(self, rows: int) -> float:
        """Predict a frame batch."""
        return self.frame_fixed_s + self.frame_row_s * rows

    def codec_s(self, frames: int) -> float:
        """Predict a codec batch of so many frames over all rows."""
        return self.codec_fixed_s + self.codec_frame_s * frames


def busy_share(num_live: int, costs: StepCosts, profile: Profile) -> float:
    """Share of time the device works to keep `num_live` streams in real time.

    Held back, streams are stepped together: one round of full batches a frame time. Batches that
    run beside each other take longer, so most of what they overlap is counted once.
    """
    if num_live == 0:
        return 0.0
    rows = min(num_live, profile.max_rows)
    round_s = num_live / rows * costs.frame_s(rows) + costs.codec_s(num_live)
    return (1.0 - OVERLAP_CREDIT * (1.0 - costs.overlap)) * round_s / FRAME_S


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


def offline_retry_s(num_offline: int, free_slots: int, profile: Profile) -> float | None:
    """Return None to accept one more request without a listener: they take half the slots."""
    allowed = max(profile.max_streams // 2, 1)
    return None if free_slots > 0 and num_offline < allowed else OFFLINE_RETRY_S
