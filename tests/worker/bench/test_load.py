"""Load generators of their own processes against a service whose every answer is known."""

from collections import Counter
from dataclasses import replace

import pytest

from playhead.worker.bench import loading
from playhead.worker.bench.loading import run_load
from playhead.worker.bench.plan import Load, Planned, plan
from playhead.worker.bench.player import account, play
from tests.worker.bench.fake_service import FakeService

pytestmark = pytest.mark.slow


def requests(count: int, frames: int = 6) -> list[Planned]:
    found = plan(Load(20.0, warm_up_s=0.0, window_s=10.0, max_frames=frames))[:count]
    return [replace(each, seed=each.number) for each in found]


@pytest.mark.parametrize("target", ["http", "ws"])
def test_every_request_is_asked_and_counted_as_it_was_answered(target: str) -> None:
    kinds = {3: "refuse", 5: "break"}
    service = FakeService(lambda seed: kinds.get(seed, "speak"))
    plans = requests(12)
    with service.running() as url:
        told = run_load(plans, target, {"url": url}, 2)
    assert service.asked == Counter(speak=10, refuse=1, **{"break": 1})
    assert sorted(service.texts) == sorted(each.text for each in plans)
    states = {outcome.number: outcome.state for outcome in told.outcomes}
    assert states == {n: {3: "refused", 5: "failed"}.get(n, "done") for n in range(12)}
    counted = account(plans, told.outcomes, 6)
    assert (counted.planned, counted.done, counted.refused, counted.failed) == (12, 10, 1, 1)
    assert counted.lost == counted.short == 0 and not counted.whole
    whole = [each for each in told.outcomes if each.state == "done"]
    assert all(each.num_samples == 6 * 1920 for each in whole)
    assert all(0 < each.first_pcm_s < 30 and each.sent_s > 0 for each in whole)


def test_arrivals_keep_the_plan_whatever_the_answers_do() -> None:
    plans = requests(10)
    with FakeService(lambda seed: "late").running() as url:
        told = run_load(plans, "http", {"url": url}, 1)
    sent_s = {each.number: each.sent_s - each.late_s for each in told.outcomes}
    begin_s = sent_s[0] - plans[0].at_s
    assert all(sent_s[p.number] - begin_s == pytest.approx(p.at_s, abs=1e-6) for p in plans)
    assert all(play(each).gaps == 1 for each in told.outcomes), "each paused once"


def test_a_server_that_drops_a_request_turns_the_count_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "PATIENCE_S", -8.0)  # the generator is ended while it waits
    plans = requests(6)
    with FakeService(lambda seed: "never" if seed == 2 else "speak").running() as url:
        told = run_load(plans, "http", {"url": url}, 1)
    counted = account(plans, told.outcomes, 6)
    assert (counted.planned, counted.done, counted.lost) == (6, 5, 1) and not counted.whole


def test_listeners_that_hang_up_are_counted_and_what_they_missed_is_unheard() -> None:
    plans = [replace(each, hang_up_s=0.2) for each in requests(4, frames=25)]
    with FakeService(lambda seed: "late").running() as url:  # 2 s of audio, most after a pause
        told = run_load(plans, "http", {"url": url}, 1)
    counted = account(plans, told.outcomes, 25)
    assert counted.hung_up == counted.done == 4 and counted.short == 0
    assert all(each.num_samples == 2 * 1920 for each in told.outcomes)


def test_a_service_that_is_not_there_fails_every_request_and_loses_none() -> None:
    plans = requests(5)
    told = run_load(plans, "http", {"url": "http://127.0.0.1:1"}, 2)
    counted = account(plans, told.outcomes, 6)
    assert (counted.failed, counted.lost, counted.planned) == (5, 0, 5)
    assert "Connect" in counted.errors[0]
