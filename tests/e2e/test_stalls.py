"""The engine that is late on purpose: a stall is as long as planned, whatever came before it."""

import threading
import time

import numpy as np
import pytest

from playhead.engine.messages import Playback, PlaybackSnapshot, Submit
from playhead.worker.pcm_queue import TICK_S
from tests.e2e.stalls import FRAME_SAMPLES, LateEngine, _Delivery

BELIEVED_S = 10.19
"""Where the engine itself takes the sound to end: its last frame came 80 ms late."""


def asked(soft_s: float, *, freezes: bool = False) -> LateEngine:
    """Return an engine that made two of three frames, the last of them late by plan."""
    speech = np.zeros(3 * FRAME_SAMPLES, np.int16)
    engine = LateEngine(lambda _: None, speech, {2: 0.08}, freezes)
    engine._handle(Submit("r", text="x", closed=True), [])
    engine._live["r"].num_samples = 2 * FRAME_SAMPLES
    engine._deliveries["r"] = _Delivery(soft_s, playing=True)
    return engine


def due_s(at_s: float, dry_at_s: float) -> float:
    """Return when the third frame is due: the second came late and has not been sent."""
    engine = asked(BELIEVED_S)
    num = FRAME_SAMPLES
    seen = PlaybackSnapshot("r", at_s, num, num, dry_at_s, 0.1, 0, "playing", "reported")
    engine._handle(Playback(seen), [])
    return engine._deliveries["r"].soft_s


def test_a_stall_begins_where_the_sound_ends_when_time_is_made_good() -> None:
    assert due_s(10.0, 10.03) == 10.03 + 0.08
    assert due_s(10.11, 10.03) == 10.03 + 0.08, "nothing was sent for 80 ms: no time is lost"
    assert due_s(10.11, 10.11) == BELIEVED_S, "a queue that is dry does not tell since when"


def test_a_process_stands_still_before_the_frame_and_after_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits_s: list[float] = []

    class Timer:
        def __init__(self, wait_s: float, what: object, arguments: tuple[float]) -> None:
            waits_s.append(wait_s)
            assert arguments == (0.08,)

        def start(self) -> None: ...

    monkeypatch.setattr(threading, "Timer", Timer)
    before_s = time.monotonic()
    engine = asked(before_s + 0.5, freezes=True)
    engine._speak(engine._live["r"], [])
    (wait_s,) = waits_s
    last_s, next_s = 0.5 - TICK_S, 0.5
    passed_s = time.monotonic() - before_s
    assert last_s - passed_s < wait_s < next_s - 0.001
