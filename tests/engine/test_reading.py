"""Text is read a piece at a time, between the steps: a long one holds up nobody."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from playhead.engine.intake import FIRST_CHARS, MORE_CHARS
from playhead.engine.messages import Append, Cancel, Close, Refused, Submit, TextMode
from playhead.engine.text.feed import TextFeed
from tests.engine.driver import Driver, spoken

LONG = "We count the boxes on every shelf, one after another, and write each number down. " * 60


@dataclass
class Reads:
    """How many characters each step read."""

    of_step: list[int] = field(default_factory=lambda: [0])

    def step(self, driver: Driver) -> None:
        driver.step()
        self.of_step.append(0)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted, read = Reads(), TextFeed.read

    def counting(feed: TextFeed, most: int) -> bool:
        before = sum(map(len, feed._unread))
        left = read(feed, most)
        counted.of_step[-1] += before - sum(map(len, feed._unread))
        return left

    monkeypatch.setattr(TextFeed, "read", counting)
    return counted


def test_a_text_of_minutes_is_read_between_the_steps(reads: Reads) -> None:
    driver = Driver()
    driver.submit(spoken(LONG, live=True, max_frames=40))
    for _ in range(len(LONG) // MORE_CHARS + 10):
        reads.step(driver)
    assert sum(reads.of_step) == len(LONG)
    assert reads.of_step[0] <= FIRST_CHARS + MORE_CHARS
    assert max(reads.of_step[1:]) == MORE_CHARS
    assert driver.engine.metrics.frame_steps > 0, "speech began long before"


def test_a_step_reads_one_of_the_texts_that_wait(reads: Reads) -> None:
    driver = Driver()
    for number in range(6):
        driver.submit(spoken(LONG, request_id=f"r{number}", live=False, max_frames=5))
    for _ in range(30):
        reads.step(driver)
    assert max(reads.of_step[1:]) == MORE_CHARS


@pytest.mark.parametrize("text_mode", ["streaming", "full"])
def test_a_step_is_due_at_once_after_one_that_read(text_mode: TextMode) -> None:
    driver = Driver()
    driver.engine.post(spoken(LONG[: FIRST_CHARS + 8], text_mode=text_mode, max_frames=3))
    for _ in range(40):
        wake_s = driver.engine.step()
        if driver.ended("a"):
            break
        assert wake_s < driver.now_s + 1.0, "nothing else would wake it"
        driver.now_s = max(driver.now_s + 0.001, wake_s)
    assert driver.done("a").num_frames > 0


def test_nothing_is_lost_of_texts_that_are_read_in_turns() -> None:
    driver, names = Driver(), [f"r{number}" for number in range(12)]
    for name in names:
        driver.engine.post(Submit(name, text=f"{name} says: {LONG[:120]}", live=False))
        driver.engine.post(Append(name, "And that is all."))
        driver.engine.post(Close(name))
    for _ in range(12 * 200 // MORE_CHARS + 12):
        driver.step()
    for request in driver.engine._requests.values():
        assert request.feed is not None and request.feed.closed and not request.feed.unread
    for name in names[1:]:
        driver.engine.post(Cancel(name))
    driver.finish(names[0], dt_s=0.05)
    assert "".join(word.text for word in driver.words(names[0])) == (
        f"{names[0]} says: {LONG[:120]}And that is all."
    )


def test_a_text_that_is_cancelled_while_it_is_read_leaves_nothing(reads: Reads) -> None:
    driver = Driver()
    driver.submit(spoken(LONG))
    reads.step(driver)
    driver.engine.post(Cancel("a"))
    reads.step(driver)
    reads.step(driver)
    assert driver.engine.idle and not driver.engine._reading
    assert reads.of_step[2] == 0 and driver.done("a").reason == "cancelled"


@pytest.mark.parametrize(
    "wrong", [{"voice": 5}, {"sampling": None}, {"pronunciations": 3}, {"text": 7}, {"seed": "x"}]
)
def test_a_request_of_wrong_types_harms_nobody_else(wrong: dict[str, Any]) -> None:
    driver = Driver()
    driver.submit(spoken("Good morning."))
    driver.step()
    driver.engine.post(Submit("wrong", **({"text": "Hello.", "closed": True} | wrong)))
    driver.finish("a", "wrong")
    ended = driver.results["wrong"][-1]
    assert driver.done("a").reason == "stop"
    assert cast(Refused, ended).code in ("engine_failure", "invalid_request", "unknown_voice")
    driver.submit(spoken("Good evening.", request_id="b"))
    driver.finish("b")
    assert driver.done("b").num_samples > 0 and driver.engine.idle
