"""Result files: what they hold, and what merging keeps."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from playhead.worker.bench.result import current_commit, default_folder, device_label, write_result


def read(path: Path) -> dict[str, object]:
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def test_a_result_says_what_was_measured_on_what_by_what(tmp_path: Path) -> None:
    path = write_result("engine", "h200", {"b_ms": 2.0, "a_ms": 1.0}, "playhead bench x", tmp_path)
    assert path.name == "engine-h200.json"
    record = read(path)
    assert list(record) == ["benchmark", "device", "commit", "command", "date", "figures"]
    assert record["command"] == "playhead bench x" and list(record["figures"]) == ["a_ms", "b_ms"]  # type: ignore[call-overload]
    assert re.fullmatch(r"[0-9a-f]{7,}\+?|unknown", str(record["commit"]))


def test_parts_merge_and_figures_of_an_earlier_commit_are_named(tmp_path: Path) -> None:
    path = write_result("e", "cpu", {"old_ms": 1.0, "both_ms": 1.0}, folder=tmp_path)
    record = read(path)
    path.write_text(json.dumps({**record, "commit": "abc1234", "date": "2020-01-01"}))
    record = read(write_result("e", "cpu", {"both_ms": 2.0}, folder=tmp_path))
    assert record["figures"] == {"both_ms": 2.0, "old_ms": 1.0}
    assert record["older"] == {"old_ms": "abc1234 2020-01-01"}
    record = read(write_result("e", "cpu", {"new_ms": 3.0}, folder=tmp_path))
    assert record["older"] == {"old_ms": "abc1234 2020-01-01"}
    record = read(write_result("e", "cpu", {"old_ms": 4.0}, folder=tmp_path))
    assert "older" not in record and current_commit() == record["commit"]


@pytest.mark.slow
def test_processes_that_write_side_by_side_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from playhead.worker.bench.result import write_result\n"
        "for i in range(8): write_result('e', 'cpu', {sys.argv[1] + str(i): i}, 'c', Path('.'))"
    )
    env = {**os.environ, "PYTHONPATH": str(default_folder().parents[2] / "src")}
    both = [
        subprocess.Popen([sys.executable, "-c", code, name], cwd=tmp_path, env=env)
        for name in ("left", "right")
    ]
    assert [each.wait(120) for each in both] == [0, 0]
    wanted = {f"{name}{i}": i for name in ("left", "right") for i in range(8)}
    assert read(tmp_path / "e-cpu.json")["figures"] == wanted
    assert [path.name for path in tmp_path.iterdir()] == ["e-cpu.json"]


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_figure_that_is_no_number_is_refused_and_nothing_written(
    tmp_path: Path, value: float
) -> None:
    with pytest.raises(ValueError, match="x_ms"):
        write_result("e", "cpu", {"x_ms": value}, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_default_folder_is_the_checkouts() -> None:
    assert default_folder() == Path(__file__).parents[2] / "bench" / "results"


@pytest.mark.parametrize(
    ("name", "label"),
    [("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("Tesla T4", "t4"), ("cpu", "cpu"),
     ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb")],
)  # fmt: skip
def test_device_labels(name: str, label: str) -> None:
    assert device_label(name) == label
