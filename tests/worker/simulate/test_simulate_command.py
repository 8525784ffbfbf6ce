"""`playhead simulate`: figures go to a result file, wrong arguments are told."""

import json
from pathlib import Path

import pytest

from playhead.worker.cli import main


def test_a_small_fleet_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--parts", "fleet", "--gpus", "2", "--seconds", "2", "--rate", "6"]
    flags += ["--times", "h100_scaled"]
    assert main(["simulate", *flags, "--out", str(tmp_path)]) == 0
    told = json.loads((tmp_path / "simulate-none.json").read_text())
    figures = told["figures"]
    assert told["command"].startswith("playhead")
    assert figures["fleet_2gpus_calls"] > 10
    assert figures["fleet_2gpus_underruns"] == 0
    assert 5.0 < figures["fleet_2gpus_p95_ms"] < 60.0  # virtual time: no machine changes it
    assert "planned, not measured" in capsys.readouterr().out


@pytest.mark.slow
def test_a_recorded_run_is_replayed_to_the_same_plans_and_results(tmp_path: Path) -> None:
    flags = ["--parts", "trace", "--seconds", "2", "--rate", "10", "--out", str(tmp_path)]
    assert main(["simulate", *flags]) == 0
    figures = json.loads((tmp_path / "simulate-none.json").read_text())["figures"]
    assert figures["trace_plans_same"] == figures["trace_plans"] > 200
    assert figures["trace_results_same"] == 1.0


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--parts", "fleets"], "allowed are policies"),
        (["--times", "h300"], "h200"),
        (["--gpus", "0"], "at least 1"),
        (["--parts", "measured", "--measured", "/nowhere.json"], "nowhere.json"),
    ],
)
def test_wrong_arguments_are_told(
    flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *flags]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_a_measured_run_is_compared_on_the_same_arrivals(tmp_path: Path) -> None:
    """The edge is the median's difference at the lowest rate, and serves the others as it is."""
    measured = tmp_path / "serve-h200.json"
    told = {"first_pcm_p50_ms_10rps": 16.0, "first_pcm_p95_ms_10rps": 20.0}
    measured.write_text(json.dumps({"figures": told}))
    flags = ["--parts", "measured", "--measured", str(measured), "--out", str(tmp_path)]
    assert main(["simulate", *flags]) == 0
    figures = json.loads((tmp_path / "simulate-none.json").read_text())["figures"]
    assert 5.0 < figures["sim_edge_ms"] < 13.0  # the table gives medians of about 6 ms
    assert 0.3 < figures["sim_vs_measured_p95_error_engine_alone"] < 0.9
    engine_ms = 20.0 * (1 - figures["sim_vs_measured_p95_error_engine_alone"])
    error = abs(engine_ms + figures["sim_edge_ms"] - 20.0) / 20.0
    assert figures["sim_vs_measured_p95_error"] == pytest.approx(error, abs=0.01)


def test_a_measured_run_without_its_medians_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = tmp_path / "serve-h200.json"
    measured.write_text('{"figures": {"first_pcm_p95_ms_10rps": 20.0}}')
    assert main(["simulate", "--parts", "measured", "--measured", str(measured)]) == 2
    assert "no first_pcm_p50_ms and _p95_ms" in capsys.readouterr().err
