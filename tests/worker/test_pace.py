"""Pace: which waits for an engine's chunks count, and how long a speech is held up for them."""

import pytest

from playhead.engine.messages import Pcm, Submit
from playhead.engine.receiver import ReceiverEstimate
from playhead.worker.client import Utterance
from playhead.worker.pace import LITTLE_S, MOST_S, NUM_WAITS, Pace
from playhead.worker.speech import Speech


class Nowhere:
    """Where the commands of an utterance go whose chunks these tests make themselves."""

    def send(self, command: object) -> None:
        """Drop it."""

    def forget(self, request_id: str, cancel: bool) -> None:
        """Hold nothing."""


def speech() -> Speech:
    made = Speech(Submit("r"), "r")
    made.admitted(Utterance(Nowhere(), "r"), ReceiverEstimate())
    made.clock.start()
    return made


def chunk(start: int, num_samples: int = 1920) -> Pcm:
    return Pcm("r", start, bytes(2 * num_samples), 1)


def test_the_longest_of_the_last_waits_counts_and_is_forgotten() -> None:
    pace = Pace()
    assert pace.longest_s() == 0.0
    pace.waited(0.15)
    for _ in range(NUM_WAITS - 1):
        pace.waited(0.03)
    assert pace.longest_s() == pytest.approx(0.15)
    pace.waited(0.03)
    assert pace.longest_s() == pytest.approx(0.03)
    pace.waited(9.0)
    assert pace.longest_s() == MOST_S


async def test_a_speech_tells_waits_for_its_engine_and_not_for_its_text() -> None:
    pace, one = Pace(), speech()
    one.received(chunk(0), pace, 1.0)
    assert pace.longest_s() == 0.0, "the first chunk is no wait between two"
    one.received(chunk(1920), pace, 1.06)
    assert pace.longest_s() == pytest.approx(0.06)
    one.starved()
    one.received(chunk(3840), pace, 1.15)
    assert pace.longest_s() == pytest.approx(0.06)


async def test_a_speech_that_holds_enough_tells_no_wait() -> None:
    pace, one = Pace(), speech()
    num_samples = round(LITTLE_S * 24_000)
    one.received(chunk(0, num_samples), pace, 1.0)
    one.received(chunk(num_samples), pace, 1.19)
    assert pace.longest_s() == 0.0


async def test_what_an_engine_slower_than_speech_leaves_short_adds_up() -> None:
    pace, one, start = Pace(), speech(), 0

    def played(at_s: float, num_samples: int = 1920) -> None:
        nonlocal start
        one.received(chunk(start, num_samples), pace, at_s)
        one.clock.push(num_samples, one.clock.dry_at_s(at_s), at_s)
        start += num_samples

    for number in range(4):  # 80 ms every 100 ms
        played(1.0 + 0.1 * number)
    assert pace.longest_s() == pytest.approx(0.1 + 2 * 0.02)
    one.starved()
    played(2.0)
    played(2.11)
    assert pace.longest_s() == pytest.approx(0.14), "a new run of waits begins"
    for number in range(4):
        played(2.21 + 0.1 * number, 2880)
    assert pace.longest_s() == pytest.approx(0.14), "chunks that bring more make it good"


async def test_a_paused_listener_tells_no_wait() -> None:
    pace, one = Pace(), speech()
    one.clock.pause(1.0)
    one.received(chunk(0), pace, 1.0)
    one.clock.resume()
    one.received(chunk(1920), pace, 1.15)
    assert pace.longest_s() == 0.0
