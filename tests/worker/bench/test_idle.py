"""Idle time of a device between frames of the real loop: all of it, and nothing else."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from playhead.engine.admission import StepCosts
from playhead.engine.flight import Flight
from playhead.engine.models.loader import Model
from playhead.engine.profile import Profile, load_profile
from playhead.engine.runner import FrameResult, Runner
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.host import FreeRunner
from playhead.worker.bench.idle import IdleBench

FRAME_S, GAP_S = 0.004, 0.001


class _Mark:
    """A mark of a device whose batches lie GAP_S apart, whenever they were launched."""

    def __init__(self, device_s: float, due_s: float) -> None:
        self._device_s, self._due_s = device_s, due_s

    def query(self) -> bool:
        return time.monotonic() >= self._due_s

    def synchronize(self) -> None:
        time.sleep(max(self._due_s - time.monotonic(), 0.0))

    def elapsed_time(self, end: Any) -> float:
        return float(end._device_s - self._device_s) * 1e3


class GapRunner(FreeRunner):
    """Tells times of a device of its own."""

    device_s = 5.0

    def costs(self) -> StepCosts:
        return StepCosts(FRAME_S, 0.0, 0.0)  # those of a CPU would refuse most streams

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        made = super().launch_frame(slots, text_ids, may_end).result()
        now_s = time.monotonic()
        began = _Mark(self.device_s + GAP_S, now_s)
        self.device_s += GAP_S + FRAME_S
        return Flight(lambda: made, _Mark(self.device_s, now_s + 0.0005), began)


@pytest.mark.slow
@pytest.mark.parametrize("streams", [4, 24])
def test_the_ratio_is_gaps_over_gaps_and_frames(tmp_path: Path, streams: int) -> None:
    def make(model: Model, profile: Profile) -> Runner:
        return GapRunner(model.config.num_codes, profile.max_rows)

    folder = checkpoint("tiny", tmp_path)
    bench = IdleBench(folder, load_profile("balanced"), "cpu", 8, 24, make)
    with bench.thread:
        found = bench.run(streams)
    assert found.ratio == pytest.approx(GAP_S / (GAP_S + FRAME_S))
    assert found.p99_gap_ms == pytest.approx(GAP_S * 1e3)
    assert found.num_live == streams and found.steps >= 100
    assert found.mean_rows == min(streams, 8), "every batch that is counted is full"
