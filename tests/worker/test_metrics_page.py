"""The two /metrics pages against docs/metrics.md: every name with its type, on both sides."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from playhead.engine.metrics import EngineMetrics, Window, describe
from playhead.engine.profile import Profile
from playhead.worker.app import WorkerApp, WorkerOptions
from playhead.worker.client import EngineClient
from playhead.worker.http.prometheus import (
    HttpCounters,
    config_exposition,
    engine_exposition,
)
from playhead.worker.thread_carrier import ThreadCarrier
from tests.fakes import ScriptedEngine

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| `(playhead_\w+)` \| (counter|gauge) \| (.+) \|$", re.MULTILINE)


@pytest.fixture
def worker_page() -> Iterator[Callable[[], str]]:
    options = WorkerOptions(url="ws://nowhere", api_key="k", api_secret="s" * 32)
    app = WorkerApp(options)
    app.client = EngineClient(ThreadCarrier(ScriptedEngine))  # type: ignore[arg-type]
    app.client.start()
    yield app._metrics
    app.client.close()


def serve_page() -> str:
    counters = HttpCounters()
    counters.requests["/v1/audio/speech", 200] += 1
    counters.problems["busy"] += 1
    page = counters.exposition(True) + config_exposition(Profile())
    return page + engine_exposition(EngineMetrics().snapshot(), 0.5)


def names(page: str) -> dict[str, str]:
    """Return the type of every name that has a value; names without HELP or TYPE fail."""
    found = {}
    for family in text_string_to_metric_families(page):
        assert family.documentation, f"{family.name} has no HELP"
        assert family.type in ("counter", "gauge"), f"{family.name} has no TYPE"
        for sample in family.samples:
            found[sample.name.removesuffix("_total")] = family.type
    return found


def section(title: str) -> dict[str, str]:
    part = DOCUMENT.split(f"## {title}")[1].split("\n## ")[0]
    return {name: kind for name, kind, _ in _ROW.findall(part)}


def test_every_name_of_the_worker_is_documented_and_back(worker_page: Callable[[], str]) -> None:
    assert names(worker_page()) == section("Engine") | section("Rooms")


def test_every_name_of_the_service_is_documented_and_back() -> None:
    assert names(serve_page()) == section("Engine") | section("Service")


def test_names_in_the_prose_exist() -> None:
    known = section("Engine") | section("Rooms") | section("Service")
    for name in re.findall(r"playhead_[a-z0-9_]+", DOCUMENT):
        assert name in known, name


def test_names_of_the_dashboard_exist() -> None:
    known = section("Engine") | section("Rooms") | section("Service")
    dashboard = (ROOT / "deploy" / "grafana" / "playhead.json").read_text(encoding="utf-8")
    used = set(re.findall(r"playhead_[a-z0-9_]+", dashboard)) - {"playhead_worker_url"}
    assert used and used <= known.keys(), used - known.keys()


def test_first_audio_is_the_sum_of_its_stages() -> None:
    metrics = EngineMetrics()
    metrics.saw_first_audio(10.0, 10.02, 10.05, 10.06)
    snapshot = metrics.snapshot()
    stages = [snapshot[f"first_{stage}_s_p50"] for stage in ("queue", "frame", "codec")]
    assert stages == pytest.approx([0.02, 0.03, 0.01])
    assert snapshot["first_audio_s_p50"] == pytest.approx(sum(stages))
    metrics.saw_first_audio(20.0, None, 20.04, 20.05)
    assert len(metrics.first_frame_s.values) == 1 and len(metrics.first_queue_s.values) == 2


def test_slack_is_told_from_below() -> None:
    metrics = EngineMetrics()
    for value in range(100):
        metrics.slack_s.add(value / 100)
    snapshot = metrics.snapshot()
    assert snapshot["slack_s_p01"] == pytest.approx(0.01)
    assert "slack_s_p99" not in snapshot


def test_a_window_keeps_the_newest_values() -> None:
    window = Window()
    for value in range(2_000):
        window.add(float(value))
    assert len(window.values) == 512
    assert window.quantile(0.0) >= 2_000 - 512 - 16


def test_an_unknown_name_of_a_newer_engine_is_passed_on() -> None:
    assert describe("invented") == ("gauge", "Not known to this version.")
    page = engine_exposition({"invented": 1.0}, 0.0)
    assert "playhead_engine_invented 1\n" in page
