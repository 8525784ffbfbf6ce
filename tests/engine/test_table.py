"""The request table: rows in order of arrival, whoever leaves, and nobody mistaken for another."""

from dataclasses import replace

from playhead.engine.messages import Submit
from playhead.engine.request import Request
from playhead.engine.table import RequestTable


def request(name: str, slot: int) -> Request:
    return Request(Submit(name), slot, float(slot), None, max_frames=9, exact_times=True)


def test_rows_stay_in_order_of_arrival_when_streams_leave() -> None:
    table = RequestTable(4)
    first, second, third, fourth = (request(f"r{slot}", slot) for slot in (3, 1, 4, 2))
    for each in (first, second, third, fourth):
        table.add(each)
    table.remove(second)
    table.remove(fourth)
    again = request("again", 1)
    table.add(again)
    assert table.requests == [first, third, again]
    assert table.slots(range(3)).tolist() == [3, 4, 1]
    assert table.columns(0.0).arrival_s.tolist() == [3.0, 4.0, 1.0]
    assert table.names(table.slots([2, 0])) == ["again", "r3"]
    table.remove(first)
    assert table.slots([0, 1]).tolist() == [4, 1]


def test_a_slot_tells_who_holds_it_or_held_it_last() -> None:
    table, held = RequestTable(2), request("a", 2)
    table.add(held)
    assert table.request(2) is held
    table.remove(held)
    assert table.request(2) is held, "a batch in flight may still ask"
    table.add(taker := request("b", 2))
    assert table.request(2) is taker


def test_requests_alike_are_not_the_same() -> None:
    """Nor are they compared field by field: with 1,500 live, an end took a millisecond of it."""
    one = request("a", 1)
    assert replace(one) != one and one == one
