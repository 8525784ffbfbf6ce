"""What the simulator's calls are drawn from is what is stated of them, by shares and quantiles."""

import math
import random
from statistics import NormalDist

import numpy as np
import pytest

from playhead.engine.units import FRAME_S
from playhead.worker.simulate.load import (
    LONGEST_FRAMES,
    MEDIAN_FRAMES,
    Call,
    Lengths,
    Load,
    _frames,
    _paced,
    calls,
    text_of,
)

NUM_ROWS = 200


def drawn(lengths: Lengths = "speech", num: int = 2_000, **shares: float) -> list[Call]:
    load = Load(500.0, num / 500.0, 0.0, 1, lengths=lengths, **shares)  # type: ignore[arg-type]
    return calls(load)


def survival(lengths: Lengths, frames: int) -> float:
    """Return the share of calls with at least so many frames: log-normal, 2 % of heavy ones are
    Pareto with exponent 1.5 from 200 frames on."""
    if lengths == "speech":
        return 1 - NormalDist(math.log(MEDIAN_FRAMES), 0.4).cdf(math.log(frames))
    body = 1 - NormalDist(math.log(MEDIAN_FRAMES) - 0.5, 1.0).cdf(math.log(frames))
    return 0.98 * body + 0.02 * min(math.pow(200 / frames, 1.5), 1.0)


@pytest.mark.parametrize("lengths", ["speech", "heavy"])
def test_lengths_have_the_stated_distribution(lengths: Lengths) -> None:
    draw = random.Random(4)
    frames = np.array([_frames(lengths, draw) for _ in range(80_000)])
    of_calls = [call.num_frames for call in drawn(lengths)]
    assert np.median(of_calls) == pytest.approx(np.median(frames), rel=0.1)
    for at_least in (10, 20, 30, 50, 70, 100, 200, 400, 1000):
        share = survival(lengths, at_least)
        error = math.sqrt(share * (1 - share) / len(frames))
        if lengths == "speech" and at_least > 400:
            share = error = 0.0
        assert np.mean(frames >= at_least) == pytest.approx(share, abs=4 * error + 1e-4), at_least
    if lengths == "speech":
        assert frames.mean() * FRAME_S == pytest.approx(4.3, rel=0.02)
        assert frames.min() >= 8 and frames.max() <= 400
    else:
        assert frames.min() == 6 and frames.max() == LONGEST_FRAMES == 180 / FRAME_S


def test_a_language_models_text_comes_at_4_to_80_tokens_a_second() -> None:
    draw = random.Random(5)
    waits = [np.diff([at_s for at_s, _ in _paced(NUM_ROWS, draw)]) for _ in range(400)]
    rates = np.array([math.log(2) / np.median(each) for each in waits])
    assert rates.min() > 3.0 and rates.max() < 110.0, "a median of 200 waits is 10 % off"
    logs = np.log(rates)
    assert logs.mean() == pytest.approx(math.log(4 * 80) / 2, abs=0.15)
    assert logs.std() == pytest.approx(math.log(80 / 4) / math.sqrt(12), abs=0.1)
    short = [np.mean(each < np.median(each) / 2) for each in waits]
    assert np.mean(short) == pytest.approx(0.98 * (1 - 0.5**0.5), abs=0.02), "exponential waits"


def test_one_of_fifty_waits_for_a_language_models_text_is_a_stall() -> None:
    draw = random.Random(6)
    fast: list[float] = []
    for _ in range(400):
        each = np.diff([at_s for at_s, _ in _paced(NUM_ROWS, draw)])
        if math.log(2) / np.median(each) >= 30:  # its other waits are never half a second
            fast.extend(each)
    stalls = np.array([wait_s for wait_s in fast if wait_s > 0.5])
    assert len(stalls) / len(fast) == pytest.approx(0.02 * 2.5 / 2.8, rel=0.15)
    assert stalls.mean() == pytest.approx((0.5 + 3.0) / 2, rel=0.05)
    assert 2.8 < stalls.max() < 3.3


def test_paced_text_is_the_same_text_word_by_word() -> None:
    found = drawn(paced=0.4)
    paced = [call for call in found if len(call.pieces) > 1]
    assert len(paced) / len(found) == pytest.approx(0.4, abs=0.05)
    for call in found:
        assert "".join(text for _, text in call.pieces) == text_of(call.num_rows)
        assert call.pieces[0][0] == 0.0
    for call in paced:
        times_s = [at_s for at_s, _ in call.pieces]
        assert len(times_s) == call.num_rows and times_s == sorted(times_s)


def test_remote_listeners_clocks_and_networks_are_off_as_stated() -> None:
    found = drawn(num=4_000, remote=0.5, network_gaps=0.5)
    remote = [call for call in found if call.remote]
    assert len(remote) / len(found) == pytest.approx(0.5, abs=0.04)
    assert all(call.drift_ppm == 0 and not call.network_gap_s for call in found if not call.remote)
    drifts = np.array([call.drift_ppm for call in remote])
    assert np.quantile(drifts, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx(
        [-500, -250, 0, 250, 500], abs=40
    )
    long = [call for call in remote if call.num_frames >= 80]
    stuck = [call for call in long if call.network_gap_s]
    assert len(stuck) / len(long) == pytest.approx(0.5, abs=0.15)
    for call in stuck:
        assert len(call.network_gap_s) == call.num_frames // 38, "one in three seconds"
        for i, at_s in enumerate(call.network_gap_s, start=1):
            assert 3.0 * i <= at_s < 3.0 * (i + 1)
