"""The engine alone on this CPU with the embedded voice: real-time factor, first PCM, streams.

Run on an idle machine: `python tests/bench/engine_cpu.py`. Writes the engine figures of
`results/e2e-cpu.json`.
"""

import queue
import statistics
import threading
import time
from dataclasses import dataclass

from playhead.engine.engine import Engine
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import (
    Append,
    Cancel,
    Close,
    Done,
    Failed,
    Pcm,
    Refused,
    Result,
    Submit,
)
from playhead.engine.profile import load_profile
from playhead.engine.units import SAMPLE_BYTES, SAMPLE_RATE_HZ
from tests.bench.result import write_result

PARAGRAPH = (
    "Thanks for calling. I found your booking for two people on Friday evening. "
    "The table is ready from seven, and there is a quiet corner near the window. "
    "Would you like me to change anything before you arrive? "
)
REFUSED = 10**6
"""Instead of late chunks where not every stream was admitted."""


@dataclass
class Rig:
    """An engine on its thread and the time each result came."""

    engine: Engine
    results: "queue.SimpleQueue[tuple[float, Result]]"
    thread: threading.Thread

    def collect(self, ids: set[str], limit_s: float = 120.0) -> list[tuple[float, Result]]:
        """Gather results until every id has ended, or was refused or failed."""
        out: list[tuple[float, Result]] = []
        while ids:
            at_s, result = self.results.get(timeout=limit_s)
            out.append((at_s, result))
            if isinstance(result, Done | Refused | Failed):
                ids.discard(result.request_id)
        return out


def open_rig() -> Rig:
    """Start an engine with the cpu profile."""
    results: queue.SimpleQueue[tuple[float, Result]] = queue.SimpleQueue()

    def take(batch: list[Result]) -> None:
        at_s = time.monotonic()
        for result in batch:
            results.put((at_s, result))

    engine = Engine(EMBEDDED_VOICE, load_profile("cpu"), take)
    thread = threading.Thread(target=engine.run)
    thread.start()
    return Rig(engine, results, thread)


def measure_rtf(rig: Rig) -> float:
    """Wall time over audio time of the paragraph, offline, median of three."""
    factors = []
    for i in range(4):
        started_s = time.monotonic()
        rig.engine.post(Submit(f"rtf{i}", text=PARAGRAPH, closed=True, live=False, seed=i))
        events = rig.collect({f"rtf{i}"})
        done = events[-1][1]
        assert isinstance(done, Done)
        factors.append((time.monotonic() - started_s) / (done.num_samples / SAMPLE_RATE_HZ))
    return statistics.median(factors[1:])


def measure_first_pcm_ms(rig: Rig, trials: int = 20) -> float:
    """From the third token of a reply to the first PCM, median."""
    waits_ms = []
    for i in range(trials):
        request_id = f"first{i}"
        rig.engine.post(Submit(request_id, seed=i))
        for token in ("Thanks", " for"):
            rig.engine.post(Append(request_id, token))
            time.sleep(0.03)
        started_s = time.monotonic()
        rig.engine.post(Append(request_id, " calling"))
        rig.engine.post(Append(request_id, " today, how can I help?"))
        rig.engine.post(Close(request_id))
        while True:
            at_s, result = rig.results.get(timeout=30)
            if isinstance(result, Pcm):
                break
        waits_ms.append((at_s - started_s) * 1000)
        rig.engine.post(Cancel(request_id))
        rig.collect({request_id})
    return statistics.median(waits_ms)


def late_chunks(rig: Rig, num_streams: int) -> int:
    """Chunks that came after their listener ran dry, over `num_streams` paragraphs at once."""
    ids = {f"s{num_streams}_{i}" for i in range(num_streams)}
    for i, request_id in enumerate(sorted(ids)):
        rig.engine.post(Submit(request_id, text=PARAGRAPH, closed=True, seed=i))
    dry_s: dict[str, float] = {}
    late = 0
    for at_s, result in rig.collect(set(ids)):
        if isinstance(result, Pcm):
            due_s = dry_s.get(result.request_id)
            late += due_s is not None and at_s > due_s
            start_s = at_s if due_s is None else max(due_s, at_s)
            chunk_s = len(result.pcm) / SAMPLE_BYTES / SAMPLE_RATE_HZ
            dry_s[result.request_id] = start_s + chunk_s
    return late if len(dry_s) == num_streams else REFUSED


def measure_streams(rig: Rig, most: int = 8) -> int:
    """Largest number of simultaneous live streams, tried one by one, with no late chunk."""
    best = 0
    for num_streams in range(1, most + 1):
        late = late_chunks(rig, num_streams)
        told = "not all were admitted" if late == REFUSED else f"{late} late chunks"
        print(f"{num_streams} streams: {told}")
        if late:
            break
        best = num_streams
    return best


def main() -> None:
    """Measure and write."""
    rig = open_rig()
    try:
        figures = {
            "rtf_1stream": round(measure_rtf(rig), 3),
            "first_pcm_p50_ms": round(measure_first_pcm_ms(rig), 1),
            "streams_without_underrun": measure_streams(rig),
        }
    finally:
        rig.engine.stop()
        rig.thread.join()
    print(figures)
    print(write_result("e2e", "cpu", figures))


if __name__ == "__main__":
    main()
