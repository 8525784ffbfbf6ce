"""A listener that plays what it takes is told of once: the engine assumes the same of it."""

from collections.abc import Callable

import pytest

from playhead.engine.messages import Cancel, Pcm, Playback, PlaybackSnapshot
from playhead.engine.units import FRAME_SAMPLES, SAMPLE_BYTES, SAMPLE_RATE_HZ
from playhead.worker.http import pace
from playhead.worker.http.pace import ClientClock, Pacer
from tests.engine.driver import Driver, spoken

LONG = "This sentence is said again and again, until somebody stops it. " * 4


class Listener:
    """Takes what the engine publishes as an HTTP connection does; `request_id` as an utterance."""

    request_id = "a"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = Driver()
        self.pacer = Pacer(ClientClock(), 60.0)
        self.reports = 0
        self.taken: list[tuple[float, int]] = []
        monkeypatch.setattr(pace.time, "monotonic", lambda: self.driver.now_s)
        self.driver.engine.post(spoken(LONG))

    def report(self, snapshot: PlaybackSnapshot) -> None:
        self.reports += 1
        self.driver.engine.post(Playback(snapshot))

    @property
    def published(self) -> int:
        return sum(len(chunk.pcm) // SAMPLE_BYTES for chunk in self.driver.chunks("a"))

    def listen(self, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        for _ in range(round(seconds / 0.01)):
            self.driver.engine.step()
            for chunk in self.driver.chunks("a")[len(self.taken) :]:
                self.take(chunk, then)
            self.driver.now_s += 0.01

    def take(self, chunk: Pcm, then: Callable[[], None]) -> None:
        num_samples = len(chunk.pcm) // SAMPLE_BYTES
        self.pacer.took(num_samples)
        self.taken.append((round(self.driver.now_s, 3), num_samples))
        then()


@pytest.mark.slow
def test_it_gets_what_it_would_get_if_it_were_told_of_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rarely, always = Listener(monkeypatch), Listener(monkeypatch)
    for listener, then in ((rarely, lambda: None), (always, always.pacer.tell)):
        monkeypatch.setattr(pace.time, "monotonic", lambda here=listener: here.driver.now_s)
        with listener.pacer.following(listener):  # type: ignore[arg-type]
            listener.listen(4.0, then)
            assert listener.published < 5.5 * SAMPLE_RATE_HZ, "held back"
    assert rarely.taken == always.taken and len(rarely.taken) > 20
    assert rarely.reports == 2 and always.reports > 20  # as it began, and as it was left


def test_what_it_had_not_heard_when_it_left_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(monkeypatch)
    with listener.pacer.following(listener):  # type: ignore[arg-type]
        listener.listen(3.0)
    unheard = listener.published - listener.pacer.clock.played_samples(listener.driver.now_s)
    listener.driver.engine.post(Cancel("a"))
    listener.driver.engine.step()
    assert 0 < unheard <= 1.6 * SAMPLE_RATE_HZ
    assert listener.driver.engine.metrics.unheard_samples == unheard


def test_one_that_takes_nothing_holds_at_most_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(monkeypatch)
    with listener.pacer.following(listener):  # type: ignore[arg-type]
        listener.listen(1.0)
        taken = sum(count for _, count in listener.taken)
        for _ in range(50):  # as the pacer does while a write waits
            listener.pacer.clock.blocked = True
            listener.pacer.tell()
            for _ in range(10):
                listener.driver.engine.step()
                listener.driver.now_s += 0.01
        target = round(listener.driver.engine.profile.target_s * SAMPLE_RATE_HZ)
        assert listener.published - taken <= target + 6 * FRAME_SAMPLES
        assert not listener.driver.ended("a")
