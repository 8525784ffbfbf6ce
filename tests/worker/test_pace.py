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
    pace.waited(0.15, 0.0)
    for _ in range(NUM_WAITS - 1):
        pace.waited(0.03, 0.08)
    assert pace.longest_s() == pytest.approx(0.15)
    pace.waited(0.03, 0.08)
    assert pace.longest_s() == pytest.approx(0.03)


def test_waits_of_those_who_hold_enough_do_not_count_and_none_counts_for_long() -> None:
    pace = Pace()
    pace.waited(0.4, LITTLE_S)
    assert pace.longest_s() == 0.0
    pace.waited(0.4, LITTLE_S - 0.001)
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
    one.received(chunk(0, 24 * 300), pace, 1.0)
    one.received(chunk(24 * 300), pace, 1.19)
    assert pace.longest_s() == 0.0


async def test_a_paused_listener_tells_no_wait() -> None:
    pace, one = Pace(), speech()
    one.clock.pause(1.0)
    one.received(chunk(0), pace, 1.0)
    one.clock.resume()
    one.received(chunk(1920), pace, 1.15)
    assert pace.longest_s() == 0.0
