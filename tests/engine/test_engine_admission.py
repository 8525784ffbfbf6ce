"""Who gets a slot of the real engine: full houses, speculative and offline requests."""

import pytest

from playhead.engine.messages import Failed, Refused
from playhead.engine.profile import Profile
from tests.engine.driver import Driver, spoken


@pytest.mark.slow
def test_full_house_is_refused_with_a_time_to_retry() -> None:
    driver = Driver(Profile(max_streams=2))
    for name in "abc":
        driver.submit(spoken(request_id=name))
    driver.finish("c")
    refused = driver.results["c"][-1]
    assert isinstance(refused, Refused) and refused.code == "busy"
    assert refused.retry_s is not None and refused.retry_s > 0
    driver.finish("a", "b")
    driver.submit(spoken(request_id="d"))
    driver.finish("d")
    assert driver.done("d").reason == "stop"


def test_speculative_request_gives_way_to_a_confirmed_one() -> None:
    driver = Driver(Profile(max_streams=2))
    driver.submit(spoken(request_id="turn"))
    driver.submit(spoken(request_id="maybe", speculative=True), subscribed=False)
    driver.step()
    driver.submit(spoken(request_id="sure"))
    driver.finish("turn", "maybe", "sure")
    dropped = driver.results["maybe"][-1]
    assert isinstance(dropped, Failed) and dropped.code == "busy"
    assert driver.done("sure").reason == driver.done("turn").reason == "stop"


def test_speculative_request_that_is_heard_is_a_live_one() -> None:
    driver = Driver(Profile(max_streams=1))
    driver.submit(spoken(request_id="maybe", speculative=True))
    driver.run(0.5)
    assert driver.engine.metrics.live == 1 and driver.engine.metrics.speculative == 0
    driver.submit(spoken(request_id="sure"))
    driver.finish("maybe", "sure")
    assert isinstance(driver.results["sure"][-1], Refused)
    assert driver.done("maybe").reason == "stop"
    assert driver.engine.metrics.live == 0


@pytest.mark.slow
def test_offline_requests_leave_slots_for_calls() -> None:
    driver = Driver(Profile(max_streams=4))
    for name in "abc":
        driver.submit(spoken(request_id=name, live=False))
    driver.submit(spoken(request_id="call"))
    driver.finish("a", "b", "c", "call")
    assert isinstance(driver.results["c"][-1], Refused)
    assert driver.done("call").reason == "stop"
