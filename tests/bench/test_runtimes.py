"""What other runtimes are given is the voice that ships, and the comparison counts what it says."""

import json
import time
from dataclasses import replace

import pytest
import torch

from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.models.loader import load_model
from tests.bench.runtime_parts import Part, make_parts
from tests.bench.runtimes import difference, race
from tests.test_figures import ROOT, as_written, cells

MEASURED = ROOT / "tests/bench/results/runtimes-cpu.json"
COLUMNS = {
    "as shipped, ms": "{}_ms_torch_b{}",
    "torch.compile": "{}_ratio_compiled_b{}",
    "ONNX Runtime": "{}_ratio_onnx_b{}",
}


@pytest.fixture(scope="module", params=[1, 2])
def parts(request: pytest.FixtureRequest) -> list[Part]:
    return make_parts(load_model(EMBEDDED_VOICE), request.param)


def test_functions_of_their_state_make_what_ships(parts: list[Part]) -> None:
    assert [part.name for part in parts] == ["talker", "predictor", "codec"]
    for part in parts:
        (found,) = difference(part, lambda given, part=part: part.core(*given)).values()
        assert found < 1e-4, part.name


def test_a_code_that_differs_is_counted(parts: list[Part]) -> None:
    predictor = parts[1]
    wrong = [(codes.clone(),) for (codes,) in predictor.expected]
    wrong[3][0][0, 5] += 1
    found = difference(replace(predictor, expected=wrong), lambda given: predictor.core(*given))
    assert found == {"codes_differ": 1}


def test_a_race_tells_the_time_of_each_way() -> None:
    taken_ms = race({"slow": lambda: time.sleep(0.02), "fast": torch.zeros(1).clone}, 3)
    assert taken_ms["slow"] >= 20 and taken_ms["fast"] < taken_ms["slow"]


def test_the_page_tells_what_was_measured() -> None:
    figures = json.loads(MEASURED.read_text())["figures"]
    page = (ROOT / "docs/benchmarks.md").read_text()
    told = cells(page, "embedded voice, one thread")
    assert len(told) >= 16
    for row, column, cell in told:
        name = COLUMNS[column].format(*row.split(", batch "))
        assert cell == as_written(figures[name], cell), name
