"""The pure parts of `playhead bench serve`: parts, the search for the highest rate, price."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from playhead.engine.errors import ConfigError
from playhead.worker.bench.chart import draw_serve, series_of
from playhead.worker.bench.serve import next_rate, parse_parts, price
from playhead.worker.bench.server import GpuWatch, engine_busy_s, parse_metrics


@pytest.mark.parametrize("limit", [0.3, 7.0, 80.0, 123.0, 500.0])
def test_the_search_ends_at_the_highest_rate_that_is_carried(limit: float) -> None:
    tried: dict[float, bool] = {}
    while (rate := next_rate(tried, 80.0)) is not None:
        assert rate not in tried and len(tried) < 25
        tried[rate] = rate <= limit
    best = max(rate for rate, ok in tried.items() if ok)
    assert limit / 1.08 < best <= limit


def test_the_search_gives_up_where_nothing_is_carried() -> None:
    tried: dict[float, bool] = {}
    while (rate := next_rate(tried, 1.0)) is not None:
        tried[rate] = False
    assert 0 < min(tried) <= 0.1


def test_parts_are_named_or_refused() -> None:
    assert parse_parts("10rps, burst-2.5rps,max") == ["10rps", "burst-2.5rps", "max"]
    with pytest.raises(ConfigError, match="10rpm"):
        parse_parts("wall,10rpm")


def test_price_of_a_full_card() -> None:
    """57 k characters a second cost two cents a million (facts of the price comparison)."""
    told = price(3900.0)
    assert told["chars_per_s"] == pytest.approx(56_940) and told["usd_per_1m_chars"] == 0.0209


def test_metrics_are_read_without_labels() -> None:
    page = '# HELP playhead_a x\nplayhead_a 3\nplayhead_b{route="x"} 4\nplayhead_engine_c 1e-3\n'
    assert parse_metrics(page) == {"a": 3.0, "engine_c": 0.001}


def test_busy_time_is_steps_times_their_length() -> None:
    before = {"engine_frame_steps": 10.0, "engine_codec_steps": 5.0}
    after = {"engine_frame_steps": 110.0, "engine_codec_steps": 55.0}
    after |= {"engine_frame_s_p50": 0.005, "engine_codec_s_p50": 0.002}
    assert engine_busy_s(before, after) == pytest.approx(0.6)


def test_the_driver_is_asked_about_the_gpu_that_torch_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under CUDA_VISIBLE_DEVICES=1 torch's GPU 0 is the driver's GPU 1: both know the uuid."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "$@" > "$0.args"\necho "50, 1000"\nexec sleep 60\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr(
        "torch.cuda.get_device_properties", lambda index: SimpleNamespace(uuid=f"of-{index}")
    )
    with GpuWatch(0) as watch:
        deadline_s = time.monotonic() + 30
        while not watch.figures():
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    assert watch.figures() == {"gpu_busy_share": 0.5, "gpu_memory_mib": 1000.0}
    assert "--id=GPU-of-0" in (tmp_path / "nvidia-smi.args").read_text().split()
    with GpuWatch(1) as none:
        assert none.figures() == {}


@pytest.mark.slow
def test_a_chart_has_a_line_for_each_prefix_and_percentile(tmp_path: Path) -> None:
    figures = {
        f"{prefix}first_pcm_{percentile}_ms_{rate}rps": 10.0 + rate
        for prefix in ("", "silent1_")
        for percentile in ("p50", "p95")
        for rate in (1, 10, 80)
    }
    series = series_of({**figures, "ready_s": 3.0, "first_pcm_idle_ms": 2.0})
    assert len(series) == 4 and series["silent1_", "p95"][-1] == (80.0, 90.0)
    pytest.importorskip("matplotlib")
    path = tmp_path / "chart.png"
    assert draw_serve(figures, "x", path) == str(path)
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
    assert "no rate" in draw_serve({"ready_s": 1.0}, "x", path)
