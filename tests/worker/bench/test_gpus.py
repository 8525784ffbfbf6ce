"""`playhead bench gpus`: two engines against one, on this CPU; what it refuses."""

import json
from pathlib import Path

import pytest

from playhead.worker.cli import main


@pytest.mark.slow
def test_two_engines_get_the_load_of_one_and_no_request_is_lost(tmp_path: Path) -> None:
    flags = ["--device", "cpu", "--shape", "tiny", "--rates", "2", "--warm-up-s", "0.5"]
    flags += ["--window-s", "3", "--frames", "6", "--clients", "2"]
    where = ["--out", str(tmp_path), "--checkpoints", str(tmp_path / "weights")]
    assert main(["bench", "gpus", *flags, *where]) == 0
    record = json.loads((tmp_path / "serve-2xcpu.json").read_text())
    told = record["figures"]
    assert (record["benchmark"], record["device"]) == ("serve", "2xcpu")
    for num in (1, 2):
        counts = {name: told[f"{name}_{num}x_2rps"] for name in ("failed", "short", "lost")}
        assert not any(counts.values()) and told[f"planned_{num}x_2rps"] > 1, counts
        assert told[f"audio_s_per_s_{num}x_2rps"] > 0 and told[f"ready_s_{num}x"] > 0
    assert told["planned_1x_2rps"] == told["planned_2x_2rps"]
    ratio = told["audio_s_per_s_2x_2rps"] / told["audio_s_per_s_1x_2rps"]
    assert told["throughput_ratio_2x"] == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize("flags", [["--engines", "1"], ["--rates", "0"], ["--clients", "0"]])
def test_one_engine_against_itself_is_refused(flags: list[str], tmp_path: Path) -> None:
    assert main(["bench", "gpus", "--device", "cpu", "--out", str(tmp_path), *flags]) == 2
    assert not list(tmp_path.iterdir())
