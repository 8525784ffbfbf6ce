"""`playhead bench` end to end on this CPU: the figures exist, are finite, and nothing is lost."""

import json
import math
from pathlib import Path

import pytest

from playhead.worker.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


def bench(part: str, out: Path, *flags: str) -> dict[str, float]:
    assert main(["bench", part, "--device", "cpu", "--out", str(out), *flags]) == 0
    return figures_of(out / f"{part}-cpu.json")


def figures_of(path: Path) -> dict[str, float]:
    record = json.loads(path.read_text())
    assert {"benchmark", "device", "commit", "command", "date", "figures"} <= record.keys()
    figures: dict[str, float] = record["figures"]
    assert all(math.isfinite(value) for value in figures.values())
    return figures


def test_engine_tells_every_part(tmp_path: Path, weights: Path) -> None:
    flags = ["--shape", "tiny", "--checkpoints", str(weights), "--batches", "1,2", "--steps", "4"]
    told = bench("engine", tmp_path, *flags, "--contexts", "24,30", "--streams", "30")
    wanted = {"frame_ms_b1", "frame_ms_b2", "frame_ms_b1_ctx30", "codec_ms_fixed"}
    wanted |= {"codec_ms_per_frame", "prefix_copy_ms_b1", "host_ms_per_step", "first_pcm_idle_ms"}
    wanted |= {"host_ms_per_step_b64_few", "host_ms_per_step_b256"}
    wanted |= {"captures_after_ready", "eager_frame_ms_b2"}
    assert wanted <= told.keys() and told["captures_after_ready"] == 0
    assert told["frame_ms_b1"] > told["frame_floor_ms_b1"] > 0
    assert told["codec_ms_1x1"] > told["codec_floor_ms_1x1"] > 0
    assert told["host_live"] == told["host_live_b256"] == 30
    assert min(told["first_pcm_idle_ms"], told["host_ms_per_step"]) > 0


@pytest.mark.parametrize("target", ["http", "ws", "inprocess"])
def test_serve_counts_every_planned_request(tmp_path: Path, weights: Path, target: str) -> None:
    flags = ["--shape", "tiny", "--checkpoints", str(weights), "--target", target, "--seeds", "1"]
    flags += ["--warm-up-s", "0.5", "--window-s", "4", "--frames", "6", "--clients", "2"]
    flags += ["--silent", "1"] if target == "http" else []
    parts = "1rps,wall" if target == "http" else "1rps"
    told = bench("serve", tmp_path, *flags, "--parts", parts)
    prefix = {"http": "silent1_", "ws": "ws_", "inprocess": "inprocess_"}[target]
    counts = {
        name: told[f"{prefix}{name}_1rps"]
        for name in ("planned", "refused", "failed", "short", "lost")
    }
    assert counts["planned"] >= 2, counts
    assert counts["failed"] == counts["short"] == counts["lost"] == 0, counts
    assert counts["refused"] < counts["planned"], counts
    assert told[f"{prefix}audio_s_per_s_1rps"] > 0
    if counts["refused"] == 0:
        assert 0 < told[f"{prefix}first_pcm_p50_ms_1rps"] <= told[f"{prefix}first_pcm_max_ms_1rps"]
    if target != "inprocess":
        assert told["ready_s"] > 0 and told[f"{prefix}server_cpu_cores_1rps"] > 0
    if target == "http":
        assert told["silent1_wall_s_15s"] > 0


def test_first_audio_tells_its_four_parts(tmp_path: Path) -> None:
    flags = ["--shape", "embedded", "--requests", "4", "--interval-ms", "400"]
    code = main(["bench", "first-audio", "--device", "cpu", "--out", str(tmp_path), *flags])
    told = figures_of(tmp_path / "first-audio-cpu.json")
    for part in ("text", "acoustic", "codec"):
        assert told[f"{part}_failures"] == 0
        assert told[f"{part}_mean_ms"] > 0 and told[f"{part}_sd_ms"] >= 0
        assert told[f"{part}_peak_memory_mib"] > 10
    assert code == int(told["end_to_end_failures"] > 0), "refused on a busy machine counts"
    assert told["end_to_end_failures"] < 4


@pytest.mark.parametrize(
    "flags",
    [["engine", "--parts", "frames"], ["engine", "--batches", "0"], ["serve", "--parts", "fast"],
     ["serve", "--silent", "9", "--shape", "tiny"], ["first-audio", "--requests", "1"],
     ["engine", "--device", "gpu"]],
)  # fmt: skip
def test_wrong_arguments_are_a_usage_error(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--out", str(tmp_path), "--device", "cpu"]
    assert main(["bench", flags[0], *common, *flags[1:]]) == 2
    assert "playhead:" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_what_does_not_fit_the_time_is_skipped_and_said_so(
    tmp_path: Path, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--shape", "tiny", "--checkpoints", str(weights), "--limit-s", "1"]
    assert main(["bench", "engine", "--device", "cpu", "--out", str(tmp_path), *flags]) == 0
    told = capsys.readouterr().out
    assert told.count("skipped") == 3 and not list(tmp_path.iterdir())
