"""Times measured on a device of known speed are its speed."""

from pathlib import Path

import pytest

from playhead.engine.models.loader import load_model
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.floor import fit_line
from playhead.worker.bench.runner_times import RunnerTimes
from tests.worker.bench.fake_device import KnownRunner


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint("tiny", tmp_path_factory.mktemp("weights"))


def rig(tiny: Path) -> tuple[KnownRunner, RunnerTimes]:
    runner = KnownRunner()
    return runner, RunnerTimes(runner, load_model(tiny), runner.clock)


@pytest.mark.parametrize("rows", [1, 8, 256])
@pytest.mark.parametrize("context", [63, 255])
def test_frames_are_timed_around_the_context_asked_for(tiny: Path, rows: int, context: int) -> None:
    runner, times = rig(tiny)
    took_ms = times.frame_ms(rows, context, steps=20)
    assert took_ms == pytest.approx(3 + 0.02 * rows + 0.001 * context, rel=1e-3)
    timed = runner.positions[-21:-1]
    assert sum(timed) / 20 == pytest.approx(context, abs=1.0)
    assert not runner._position, "slots stay open"


def test_codec_costs_come_back_out_of_the_line(tiny: Path) -> None:
    _, times = rig(tiny)
    shapes = ((1, 1), (8, 1), (64, 1), (8, 4), (64, 4), (64, 8))
    line = fit_line([(r * n, times.codec_ms(r, n, steps=12)) for r, n in shapes])
    assert line.fixed == pytest.approx(1.25, rel=0.01)
    assert line.per_unit == pytest.approx(0.030, rel=0.01)
    assert line.worst < 0.01


def test_a_join_costs_what_it_adds_to_the_next_frame(tiny: Path) -> None:
    runner, times = rig(tiny)
    added_ms = times.join_ms(8, trials=5)
    assert added_ms == pytest.approx(runner.JOIN_S * 1e3, abs=0.02)


def test_a_context_inside_the_prompt_is_refused(tiny: Path) -> None:
    _, times = rig(tiny)
    with pytest.raises(ValueError, match="prompt"):
        times.frame_ms(1, 12, steps=20)


def test_odd_parameters_are_all_different_and_leave_no_slot(tiny: Path) -> None:
    runner, times = rig(tiny)
    times.odd_parameters(7)
    assert len(set(runner.opened)) == 4 and not runner._position
