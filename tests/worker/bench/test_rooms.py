"""The counting of `playhead bench rooms`: what was heard when, and what a window's replies say."""

import argparse

import numpy as np
import pytest

from playhead.engine.errors import ConfigError, EngineFailure
from playhead.worker.bench import rooms
from playhead.worker.bench.rooms import Turn, note_heard, summary
from playhead.worker.listener import Listener, Recording


def heard(blocks: list[int]) -> Listener:
    """A listener whose recording has 10 ms of each loudness, their first half silent, from second
    100 on."""
    listener = Listener.__new__(Listener)
    listener.recording = Recording()
    for number, loudness in enumerate(blocks):
        block = np.repeat(np.array([0, loudness], np.int16), 120)
        listener.recording.append(block, 100.0 + number / 100)
    return listener


def test_a_reply_is_heard_at_its_first_loud_sample_after_its_first_token() -> None:
    listener = heard([0, 2_000, 0, 0, 50, 900, 2_000])
    turns = [Turn(0, begun_s=100.015), Turn(0, begun_s=99.0), Turn(0, begun_s=100.2)]
    note_heard(turns, listener)
    assert turns[0].heard_s == pytest.approx(100.055)
    assert turns[0].wait_ms == pytest.approx(40.0)
    assert turns[1].heard_s == pytest.approx(100.015)
    assert turns[2].heard_s == float("inf")


def test_a_reply_that_broke_counts_as_an_error_and_not_as_heard() -> None:
    turns = [
        Turn(0, 10.0, 10.2, gaps=1),
        Turn(1, 20.0, 20.1),
        Turn(2, 30.0, error="busy"),
        Turn(3, 40.0),
    ]
    figures = summary(turns)
    assert (figures["gaps"], figures["errors"], figures["turns"]) == (1, 2, 4)
    assert figures["token_to_heard_p50_ms"] == pytest.approx(150.0)
    with pytest.raises(EngineFailure, match="no reply was heard"):
        summary(turns[2:])


def test_compared_figures_come_from_those_of_the_loads() -> None:
    known = {
        "gaps_embedded": 0.0,
        "gaps_replay": 1.0,
        "gaps_replay_thread": 2.0,
        "gaps_replay_other": 9.0,
        "token_to_heard_p95_ms_replay": 200.0,
        "step_p99_ratio_replay": 1.2,
        "speakers_0gaps_embedded": 4.0,
    }
    asked = rooms._asked_for(known, 10)
    assert asked["gaps_10rooms"] == 3.0
    assert asked["token_to_heard_p95_ms_10rooms"] == 200.0
    assert asked["embedded_speakers_0gaps"] == 4.0
    assert "token_to_heard_p50_ms_10rooms" not in asked


@pytest.mark.parametrize(
    "change", [{"parts": "nonsense"}, {"carriers": ""}, {"rooms": 0}, {"window_s": 1.0}]
)
def test_wrong_flags_are_named(change: dict[str, object]) -> None:
    given = argparse.Namespace(
        parts="replay", carriers="thread", rooms=10, window_s=45.0, step_times="h200"
    )
    for name, value in change.items():
        setattr(given, name, value)
    with pytest.raises(ConfigError):
        rooms.run(given)
