"""RoomCounters: what speeches lost, by cause, as numbers of the process."""

from playhead.worker.counters import RoomCounters
from playhead.worker.events import Finished, Interrupted
from playhead.worker.http.prometheus import worker_exposition


def test_gaps_stretches_and_waits_for_text_are_counted_apart() -> None:
    counters = RoomCounters()
    counters.event(Finished("a", "stop", "one", 1.0, 2, gap_s=0.5, stretched_s=0.08))
    counters.event(Interrupted("b", "closed", "", 0.5, 1, gap_s=0.1, text_wait_s=3.0))
    counts = counters.snapshot()
    assert counts["underruns"] == 3 and counts["gap_s"] == 0.6
    assert counts["stretched_s"] == 0.08 and counts["text_wait_s"] == 3.0
    assert "playhead_room_stretched_s 0.08\n" in worker_exposition(counts, {})
