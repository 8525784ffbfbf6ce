"""The engine's own step, timed with a runner that costs nothing."""

from pathlib import Path

import pytest

from playhead.engine.profile import Profile
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.host import HostBench


@pytest.mark.slow
def test_every_stream_is_live_and_every_timed_step_has_a_full_batch(tmp_path: Path) -> None:
    bench = HostBench(checkpoint("tiny", tmp_path), Profile(), rows=8, streams=40)
    took = bench.run(warm=30, steps=60)
    assert took.num_live == 40 == bench.engine.metrics.live
    assert took.steps >= 30 and 4 <= took.mean_rows <= 8
    assert 0 < took.median_ms <= took.p99_ms
    metrics = bench.engine.metrics
    assert metrics.failed == metrics.cancelled == metrics.done == 0
    assert metrics.codec_frames > 40, "chunks go through the codec and out"
    assert set(bench._pushed) == {f"r{i}" for i in bench_ids(bench)}, "each is heard and reports"


def bench_ids(bench: HostBench) -> list[int]:
    return sorted(int(name[1:]) for name in bench.engine._requests)
