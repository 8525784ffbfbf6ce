"""ReplayRunner: batches land when their time is over, two streams, what is spoken; step times."""

import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from playhead.engine.errors import ConfigError
from playhead.engine.messages import Sampling
from playhead.engine.models.prompt import build_prompt
from playhead.engine.replay_runner import ReplayRunner, Speech
from playhead.engine.replay_times import StepTimes, load_times, names
from playhead.engine.units import FRAME_SAMPLES
from playhead.worker.bench.result import default_folder
from playhead.worker.simulate.world import small_model

TIMES = StepTimes(
    "test", ((8, 5.0), (32, 8.0)), 1.0, 0.1,
    prefix_copy_ms=((1, 0.5),), prompt_row_ms=1.0, overlap_speed=((8, 0.7), (32, 0.4)),
)  # fmt: skip


class Virtual:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 10.0

    def now(self) -> float:
        return self.now_s

    def sleep_until(self, at_s: float) -> None:
        self.now_s = max(self.now_s, at_s)


def opened(runner: ReplayRunner, slots: range) -> int:
    model = small_model()
    prompt = build_prompt(model, voice=None, language="auto", instruct=None, text_mode="streaming")
    sampling = model.resolve_sampling(Sampling())
    return sum(runner.open(slot, prompt, sampling, slot) for slot in slots)


def frame(runner: ReplayRunner, slots: list[int], may_end: bool = False) -> "np.ndarray":  # type: ignore[type-arg]
    flight = runner.launch_frame(slots, [5] * len(slots), [may_end] * len(slots))
    return flight.result().ended


def test_a_batch_lands_when_its_time_is_over_and_waiting_takes_that_long() -> None:
    clock = Virtual()
    runner = ReplayRunner(TIMES, clock.now, clock.sleep_until)
    opened(runner, range(1, 3))
    first = runner.launch_frame([1, 2], [5, 5], [False, False])
    second = runner.launch_frame([1, 2], [5, 5], [False, False])
    assert not first.ready()
    clock.now_s += 0.00499
    assert not first.ready()
    clock.now_s += 0.00002
    assert first.ready()
    assert not second.ready()
    second.result()
    assert clock.now_s == pytest.approx(10.010, abs=1e-6)


def test_frame_and_codec_slow_each_other_down() -> None:
    clock = Virtual()
    runner = ReplayRunner(TIMES, clock.now, clock.sleep_until)
    opened(runner, range(1, 2))
    frames = runner.launch_frame([1], [5], [False])
    codec = runner.launch_codec([1], np.zeros((1, 4, 16), np.int16))
    codec.result()
    assert clock.now_s == pytest.approx(10.0 + 0.0014 / 0.7, abs=1e-6)
    frames.result()
    assert clock.now_s == pytest.approx(10.0 + 0.0014 / 0.7 + 0.005 - 0.0014, abs=1e-6)
    assert runner.busy_s == pytest.approx(clock.now_s - 10.0, abs=1e-6)


def test_a_stored_prompt_is_copied_and_a_new_one_run() -> None:
    clock = Virtual()
    runner = ReplayRunner(TIMES, clock.now, clock.sleep_until)
    rows = opened(runner, range(1, 2))
    assert rows > 0
    assert opened(runner, range(2, 3)) == 0
    runner.prefill([1])
    frame(runner, [1])
    assert clock.now_s == pytest.approx(10.0 + 0.0005 + rows * 0.001 + 0.005, abs=1e-6)


def test_a_row_ends_after_its_frames_once_it_may() -> None:
    clock = Virtual()
    runner = ReplayRunner(TIMES, clock.now, clock.sleep_until, lambda seed: Speech(num_frames=3))
    opened(runner, range(1, 2))
    assert [bool(frame(runner, [1])[0]) for _ in range(4)] == [False] * 4
    assert bool(frame(runner, [1], may_end=True)[0])
    assert bool(frame(runner, [1], may_end=True)[0])  # it stays ended


def test_samples_of_the_script_come_out_in_order() -> None:
    clock = Virtual()
    wave = np.arange(2 * FRAME_SAMPLES + 100).astype(np.int16)
    runner = ReplayRunner(TIMES, clock.now, clock.sleep_until, lambda seed: Speech(samples=wave))
    opened(runner, range(1, 2))
    codes = np.zeros((1, 2, 16), np.int16)
    heard = [runner.launch_codec([1], codes).result().pcm[0] for _ in range(2)]
    joined = np.concatenate(heard)
    assert np.array_equal(joined[: len(wave)], wave)
    assert not joined[len(wave) :].any()


def test_on_the_real_clock_a_result_takes_real_time() -> None:
    def sleep_until(at_s: float) -> None:
        time.sleep(max(at_s - time.monotonic(), 0.0))

    runner = ReplayRunner(TIMES, time.monotonic, sleep_until)
    opened(runner, range(1, 2))
    began_s = time.monotonic()
    for _ in range(4):
        frame(runner, [1])
    assert time.monotonic() - began_s >= 0.0199


def test_a_large_frame_batch_and_the_codec_disturb_each_other_more_than_a_small_one() -> None:
    took_s = []
    for num_rows in (8, 32):
        clock = Virtual()
        runner = ReplayRunner(TIMES, clock.now, clock.sleep_until)
        slots = list(range(1, num_rows + 1))
        opened(runner, range(1, num_rows + 1))
        frames = runner.launch_frame(slots, [5] * num_rows, [False] * num_rows)
        runner.launch_codec([1], np.zeros((1, 4, 16), np.int16)).result()
        took_s.append(clock.now_s - 10.0)
        frames.result()
    assert took_s == pytest.approx([0.0014 / 0.7, 0.0014 / 0.4], abs=1e-6)


def test_a_frame_takes_longer_the_further_its_rows_look_back() -> None:
    times = replace(TIMES, position_ms=((8, 0.01), (32, 0.01)))
    clock = Virtual()
    runner = ReplayRunner(times, clock.now, clock.sleep_until)
    opened(runner, range(1, 2))
    took_s = []
    for _ in range(3):
        began_s = clock.now_s
        frame(runner, [1])
        took_s.append(clock.now_s - began_s)
    assert np.diff(took_s) == pytest.approx([1e-5, 1e-5], abs=1e-8)
    assert times.frame_s(8, 263) - times.frame_s(8) == pytest.approx(0.002)


def test_every_file_of_step_times_loads_and_grows_with_the_batch() -> None:
    assert {"h200", "h100_scaled", "cpu_embedded"} <= set(names())
    for name in names():
        times = load_times(name)
        assert times.planned == (name not in ("h200", "cpu_embedded"))
        taken = [times.frame_s(rows) for rows in (1, 8, 30, 64, 256, 300)]
        assert taken == sorted(taken)
        assert times.host_s(8) <= times.host_s(256)
        assert 0.3 < times.speed(256) <= times.speed(8) <= 1.0
    h200 = load_times("h200")
    assert load_times("h100_scaled").frame_s(8) == pytest.approx(1.3 * h200.frame_s(8))
    assert h200.frame_s(9) == h200.frame_s(16)
    assert h200.prefill_s(1, 0) < h200.prefill_s(64, 0)


def test_the_table_of_the_h200_is_the_result_file_of_its_measurement() -> None:
    measured, table = load_times(str(default_folder() / "engine-h200.json")), load_times("h200")
    for field in fields(StepTimes):
        if field.name not in ("name", "overlap_speed"):
            ours, theirs = getattr(table, field.name), getattr(measured, field.name)
            told = f"{field.name} of engine/step_times/h200.yaml; the result file has {theirs}"
            assert ours == theirs, told


def test_a_benchmark_result_is_read_as_step_times(tmp_path: Path) -> None:
    path = tmp_path / "engine-h200.json"
    path.write_text(
        '{"figures": {"frame_ms_b8": 4.0, "frame_ms_b32": 5.0, "codec_ms_fixed": 1.0,'
        ' "frame_ms_b8_ctx163": 4.5, "codec_ms_per_frame": 0.1, "prefix_copy_ms_b8": 0.2,'
        ' "host_ms_per_step": 0.25, "host_rows": 64, "host_ms_per_step_b256": 0.5,'
        ' "host_ms_per_step_p99_b256": 9.0}}'
    )
    times = load_times(str(path))
    assert (times.frame_s(8), times.codec_s(10)) == (0.004, 0.002)
    assert times.frame_s(8, 113) == pytest.approx(0.00425)
    assert times.prefill_s(1, 0) == 0.0002
    assert [times.host_s(rows) for rows in (8, 64, 160, 256)] == [
        0.00025,
        0.00025,
        0.000375,
        0.0005,
    ]
    assert times.overlap_speed == load_times("h200").overlap_speed
    assert not times.planned


@pytest.mark.parametrize(
    "text", ["frame_ms: {8: 5.0}", "frame_ms: {value: {8: 5.0}}", "[]", "scaled_from: nothing"]
)
def test_step_times_without_a_source_or_shape_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load_times(str(path))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="h200"):
        load_times("h900")
