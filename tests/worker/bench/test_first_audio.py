"""Paced requests: every one is timed or counted as failed."""

import time

import pytest

from playhead.worker.bench.first_audio import paced


def test_requests_keep_their_interval_and_failures_are_counted() -> None:
    asked_s: list[float] = []

    def ask() -> float:
        asked_s.append(time.perf_counter())
        if len(asked_s) % 4 == 0:
            raise RuntimeError("broken")
        return 0.002

    began_s = time.perf_counter()
    waits_ms, failures = paced(ask, 10, 0.02)
    assert len(asked_s) == 11, "one before the measured ones"
    assert waits_ms == pytest.approx([2.0] * len(waits_ms)) and failures == 2
    assert len(waits_ms) + failures == 10
    assert all(asked_s[1 + i] - began_s >= 0.02 * i for i in range(10))


def test_one_that_is_late_is_asked_at_once() -> None:
    def ask() -> float:
        time.sleep(0.03)
        return 0.03

    began_s = time.perf_counter()
    waits_ms, failures = paced(ask, 5, 0.001)
    assert len(waits_ms) == 5 and not failures and time.perf_counter() - began_s >= 6 * 0.03
