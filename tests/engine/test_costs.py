"""What the engine learns of its batches: how long each took, and what they overlap."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from playhead.engine.admission import OVERLAP_CREDIT, StepCosts, busy_share
from playhead.engine.flight import Flight
from playhead.engine.profile import Profile
from playhead.engine.runner import CodecResult, FrameResult
from tests.engine.driver import spoken
from tests.engine.flying import FlyingDriver, Times, ToneRunner, WakingDriver

FRAME_S, CODEC_S = 0.020, 0.010
TEXT = "one two three four five six seven eight nine ten " * 4


class BusyHost(ToneRunner):
    """Batches run within their launch, as on a CPU: the clock moves on meanwhile."""

    driver: WakingDriver

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        self.driver.now_s += FRAME_S
        return super().launch_frame(slots, text_ids, may_end)

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        self.driver.now_s += CODEC_S
        return super().launch_codec(slots, codes)


def test_batches_of_one_step_are_told_apart_where_they_run_one_after_the_other() -> None:
    runner = BusyHost()
    driver = WakingDriver(Profile(), lambda *_: runner)
    runner.driver = driver
    for name in ("a", "b", "c"):
        driver.submit(spoken(TEXT, request_id=name))
        driver.run(0.05)
    driver.run(3.0)
    metrics, costs = driver.engine.metrics, driver.engine._costs
    assert metrics.frame_steps > 20 and metrics.codec_steps > 5
    assert metrics.frame_s.quantile(0.99) == pytest.approx(FRAME_S)
    assert metrics.codec_s.quantile(0.99) == pytest.approx(CODEC_S)
    assert costs.overlap == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("frame_s", "codec_s", "host_s"), [(0.024, 0.020, 0.0), (0.020, 0.012, 0.005)]
)
def test_what_batches_overlap_is_counted_once(
    frame_s: float, codec_s: float, host_s: float
) -> None:
    times = Times(frame_s, codec_s, host_s=host_s)
    driver = FlyingDriver(times, Profile(), lambda *_: ToneRunner())
    driver.submit(spoken(TEXT, live=False))
    for name in ("a", "b", "c"):
        driver.submit(spoken(TEXT, request_id=name))
    began_s = driver.now_s
    driver.run(4.0)
    launches = [b for b in driver.device.launches if b.collected]
    took = {"frame": frame_s, "codec": codec_s}
    spans = sorted((b.due_s - took[b.kind], b.due_s) for b in launches)
    union_s, until_s = 0.0, began_s
    for start_s, end_s in spans:
        union_s += max(end_s - max(start_s, until_s), 0.0)
        until_s = max(until_s, end_s)
    took_s = sum(end_s - start_s for start_s, end_s in spans)
    assert union_s < 0.95 * took_s, "they do run beside each other"
    costs = driver.engine._costs
    assert union_s / took_s - 0.05 < costs.overlap < union_s / took_s + 0.1


def test_the_same_batches_carry_more_streams_where_they_overlap() -> None:
    serial, beside = StepCosts(), StepCosts()
    for _ in range(600):
        serial.saw_work(0.004, 0.004)
        beside.saw_work(0.004, 0.002)
    profile = Profile(max_rows=64)
    assert serial.overlap == pytest.approx(1.0)
    assert busy_share(40, beside, profile) == pytest.approx(
        busy_share(40, serial, profile) * (1 - OVERLAP_CREDIT / 2), rel=0.05
    )
