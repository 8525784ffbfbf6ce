import json
import time

import pytest

from playhead.engine.receiver import PACKET_PATH_S, PRIOR_S
from playhead.worker.receivers import MAX_REPORTS_PER_S, Receivers, parse_report


def report(**values: float) -> bytes:
    fields = {"jitter_buffer_s": 0.04, "target_s": 0.05, "rtt_s": 0.02, **values}
    return json.dumps(fields).encode()


def test_heard_follows_the_linked_listener_when_it_is_there() -> None:
    receivers = Receivers()
    receivers.add("ann", "web")
    receivers.add("eve", "web")
    receivers.linked = "ann"
    assert receivers.take("eve", report(jitter_buffer_s=1.0), 1.0)
    assert receivers.take("ann", report(), 1.0)
    assert receivers.estimate(1.0).delay_s(1.0) == pytest.approx(PACKET_PATH_S + 0.05)
    receivers.linked = None
    assert receivers.estimate(1.0).delay_s(1.0) > 1.0, "the slowest reporter"


def test_prior_of_the_kind_stands_in_when_nobody_reports() -> None:
    receivers = Receivers()
    assert receivers.estimate(1.0).delay_s(1.0) == PRIOR_S["web"]
    receivers.add("caller", "phone")
    assert receivers.estimate(1.0).delay_s(1.0) == PRIOR_S["phone"]
    receivers.remove("caller")
    assert len(receivers) == 0 and receivers.bridge_s(1.0) == 0.0


def test_a_second_listener_never_lengthens_the_bridge() -> None:
    receivers = Receivers()
    receivers.add("ann", "web")
    receivers.take("ann", report(target_s=0.02), 1.0)
    alone_s = receivers.bridge_s(1.0)
    receivers.add("eve", "web")
    receivers.take("eve", report(target_s=2.0), 1.0)
    assert receivers.bridge_s(1.0) == alone_s


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xff",
        b"[]",
        b"{}",
        b'{"jitter_buffer_s": 0.1}',
        report(jitter_buffer_s=-0.1),
        report(rtt_s=100.0),
        report(rtt_s=10**400),
        report(surprise=1.0),
        b'{"jitter_buffer_s": NaN, "target_s": 0, "rtt_s": 0}',
        b'{"jitter_buffer_s": Infinity, "target_s": 0, "rtt_s": 0}',
        b'{"jitter_buffer_s": "0.1", "target_s": 0, "rtt_s": 0}',
        b'{"jitter_buffer_s": true, "target_s": 0, "rtt_s": 0}',
        report() + b" " * 600,
        b"[" * 500,
    ],
)
def test_report_changes_nothing_when_it_is_bad(payload: bytes) -> None:
    receivers = Receivers()
    receivers.add("ann", "web")
    assert not receivers.take("ann", payload, 1.0)
    assert receivers.estimate(1.0).source(1.0) == "assumed"


def test_strangers_change_nothing_and_cost_little_when_they_flood() -> None:
    receivers = Receivers()
    receivers.add("ann", "web")
    receivers.take("ann", report(), 0.0)
    before = receivers.estimate(0.5).delay_s(0.5)
    started_s = time.process_time()
    for number in range(20_000):
        assert not receivers.take("stranger", report(jitter_buffer_s=1.9), number / 1000)
    assert receivers.estimate(0.5).delay_s(0.5) == before
    assert time.process_time() - started_s < 5


def test_reports_over_the_rate_are_dropped_when_a_listener_floods() -> None:
    receivers = Receivers()
    receivers.add("ann", "web")
    taken = sum(receivers.take("ann", report(), 10 + n / 1000) for n in range(5000))
    assert taken <= MAX_REPORTS_PER_S * 6
    assert receivers.take("ann", report(), 100.0)


def test_nobody_hears_once_all_have_told_so_and_somebody_again_once_one_listens() -> None:
    receivers = Receivers()
    assert not receivers.deaf, "who is not there yet has told nothing"
    receivers.add("ann", "web")
    receivers.add("bob", "web")
    for identity, told, deaf in (
        ("ann", False, False), ("eve", False, False), ("bob", False, True), ("ann", True, False),
    ):  # fmt: skip
        taken = receivers.take(identity, json.dumps({"listening": told}).encode(), 1.0)
        assert (taken, receivers.deaf) == (identity != "eve", deaf)
    assert receivers.take("ann", b'{"listening":false}', 1.0), "as JavaScript writes it"
    assert receivers.take("ann", report(), 1.0) and receivers.deaf, "a late report says nothing"
    receivers.add("cid", "web")
    assert not receivers.deaf
    assert not receivers.take("ann", b'{"listening": 1}', 1.0)


def test_report_is_read_when_it_is_whole() -> None:
    parsed = parse_report(report(playout_s=0, concealed_s=0.25))
    assert parsed is not None and parsed.concealed_s == 0.25 and parsed.problem() is None
