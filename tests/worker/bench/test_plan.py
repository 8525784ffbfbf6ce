"""Load plans: same seed, same load; open loop; prompts as promised."""

import random
from itertools import pairwise

import pytest

from playhead.engine.errors import ConfigError
from playhead.worker.bench.plan import BURST, Load, plan, prompt, split


def test_a_seed_gives_the_same_plan_every_time_and_another_seed_another() -> None:
    assert plan(Load(10, 1)) == plan(Load(10, 1))
    assert plan(Load(10, 1)) != plan(Load(10, 2))


@pytest.mark.parametrize("rate_rps", [0.5, 10, 80])
def test_arrivals_are_poisson_of_the_rate(rate_rps: float) -> None:
    window_s = 2000 / rate_rps
    requests = plan(Load(rate_rps, warm_up_s=0.0, window_s=window_s))
    assert len(requests) == pytest.approx(2000, rel=0.1)
    gaps_s = [b.at_s - a.at_s for a, b in pairwise(requests)]
    mean_s = sum(gaps_s) / len(gaps_s)
    spread_s = (sum((gap - mean_s) ** 2 for gap in gaps_s) / len(gaps_s)) ** 0.5
    assert mean_s == pytest.approx(1 / rate_rps, rel=0.1)
    assert spread_s == pytest.approx(mean_s, rel=0.15)


def test_bursts_come_together_at_the_same_mean_rate() -> None:
    requests = plan(Load(10, window_s=400.0, warm_up_s=0.0, arrivals="bursts"))
    assert len(requests) == pytest.approx(4000, rel=0.15) and len(requests) % BURST == 0
    times_s = [each.at_s for each in requests]
    assert all(len(set(times_s[i : i + BURST])) == 1 for i in range(0, len(times_s), BURST))


def test_warm_up_is_sent_and_not_measured() -> None:
    requests = plan(Load(20, warm_up_s=2.0, window_s=3.0))
    assert all(each.measured == (each.at_s >= 2.0) for each in requests)
    assert any(each.measured for each in requests) and not all(e.measured for e in requests)
    assert [each.number for each in requests] == list(range(len(requests)))


def test_prompts_are_60_to_100_characters_and_vary() -> None:
    draw = random.Random(5)
    texts = [prompt(draw) for _ in range(300)]
    assert all(60 <= len(text) <= 100 for text in texts) and len(set(texts)) > 200


def test_interrupted_listeners_hang_up_inside_the_utterance() -> None:
    requests = plan(Load(50, interrupted=0.5, max_frames=63))
    hung = [each.hang_up_s for each in requests if each.hang_up_s is not None]
    assert 0.4 < len(hung) / len(requests) < 0.6
    assert all(0 < at_s < 63 * 0.08 for at_s in hung)


def test_split_deals_out_every_request_once() -> None:
    requests = plan(Load(30, warm_up_s=0.0, window_s=2.0))
    parts = split(requests, 4)
    assert sorted(each.number for part in parts for each in part) == list(range(len(requests)))


@pytest.mark.parametrize("wrong", [{"rate_rps": 0}, {"window_s": 0}, {"max_frames": 0}])
def test_what_makes_no_load_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Load(**{"rate_rps": 1, **wrong})  # type: ignore[arg-type]
