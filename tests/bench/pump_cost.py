"""What pumps cost: CPU of each room and lateness of pushes, in one process and in many.

Parts `cost` and `processes` of `python -m tests.bench.pumps`.
"""

import asyncio
import itertools
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from livekit import rtc

from playhead.engine.clock import PlaybackClock
from playhead.engine.receiver import ReceiverEstimate
from playhead.worker import sdk_routing
from playhead.worker.demo.server import Access, LocalServer
from playhead.worker.direct_pump import DirectPump, make_direct_source
from playhead.worker.feed import LEAD_S, PIECE_S
from playhead.worker.pcm_queue import TICK_S
from playhead.worker.track import PumpKind, QueuedPump, make_source

Figures = dict[str, float]

PUMPS: tuple[PumpKind, PumpKind] = ("queued", "direct")
ROOMS = (1, 5, 10, 20)
PROCESSES = (1, 5, 10, 20)
COST_S = 15.0
LATE_S = 0.01
FRAME_BYTES = 3840


class TimedSource:
    """Passes frames on and keeps how late each came."""

    def __init__(self, kind: PumpKind) -> None:
        self.source = make_source() if kind == "queued" else make_direct_source()
        self.lateness_s: Callable[[], float] | None = None
        self.late_s: list[float] = []

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        if self.lateness_s is not None:
            self.late_s.append(self.lateness_s())
        await self.source.capture_frame(frame)

    def clear_queue(self) -> None:
        self.source.clear_queue()


async def push_room(
    access: Access, kind: PumpKind, number: int, start: Callable[[], object]
) -> tuple[list[float], int]:
    """Speak in one room for a while; return how late pushes were and how many breaks came."""
    room, timed = rtc.Room(), TimedSource(kind)
    await room.connect(access.url, access.token("speaker", f"{kind}-{number}", kind="agent"))
    track = rtc.LocalAudioTrack.create_audio_track("t", timed.source)
    await room.local_participant.publish_track(track)
    pump = QueuedPump(timed) if kind == "queued" else DirectPump(timed, lambda _: 0.1)
    line = pump._line
    running = asyncio.create_task(pump.run())
    clock = PlaybackClock("r", ReceiverEstimate())
    clock.start()
    pump.resume()
    await asyncio.to_thread(start)
    noise = np.random.default_rng(number).normal(0, 2500, FRAME_BYTES // 2).astype("<i2").tobytes()
    end_s = time.monotonic() + COST_S
    while (now_s := time.monotonic()) < end_s:
        while clock.dry_at_s(now_s) + len(_waiting(line)) / 48_000 < now_s + 0.6:
            pump.push(clock, noise)
        await asyncio.sleep(0.08)
        if timed.lateness_s is None and now_s > end_s - COST_S + 1.0:
            timed.lateness_s = lambda: _lateness_s(kind, line)
    running.cancel()
    await asyncio.wait([running])
    await room.disconnect()
    return timed.late_s, len(clock.gaps) + len(clock.stretches)


def _waiting(line: object) -> bytes:
    lines = line._lines  # type: ignore[attr-defined]
    return bytes(lines[0].pcm) if lines else b""


def _lateness_s(kind: PumpKind, line: object) -> float:
    """How long after its turn the frame just booked is handed over."""
    now_s = time.monotonic()
    if kind == "direct":
        return float(now_s - (line.due_s - TICK_S))  # type: ignore[attr-defined]
    piece_s = line._sent[-1].end_s - line._sent[-1].exit_s  # type: ignore[attr-defined]
    return float(now_s - (line._dry_s - piece_s) + LEAD_S - PIECE_S)  # type: ignore[attr-defined]


def measure_cost() -> Figures:
    """Speak in many rooms of this process, a thread and loop each, as jobs do."""
    figures: Figures = {}
    for kind, num_rooms in itertools.product(PUMPS, ROOMS):
        with LocalServer() as server:
            late_s, breaks, cpu_s = run_rooms(server.access, kind, range(num_rooms))
        figures |= cost_figures(f"{num_rooms}rooms_{kind}", late_s, breaks, cpu_s / num_rooms)
    return figures


def cost_figures(name: str, late_s: Sequence[float], breaks: int, cpu_s: float) -> Figures:
    """Return the figures of one run; CPU in percent of one core for each room."""
    late_ms = np.asarray(late_s) * 1000
    figures = {
        f"cpu_percent_per_room_{name}": 100 * cpu_s / COST_S,
        f"push_late_p99_ms_{name}": float(np.quantile(late_ms, 0.99)),
        f"push_late_over_10ms_percent_{name}": float(np.mean(late_ms > LATE_S * 1000) * 100),
        f"breaks_{name}": breaks,
    }
    show(figures, name)
    return figures


def run_rooms(
    access: Access, kind: PumpKind, numbers: Sequence[int]
) -> tuple[list[float], int, float]:
    """Push in rooms at once; return lateness, breaks, and the CPU time used meanwhile."""
    late_s: list[float] = []
    breaks: list[int] = []
    ready = threading.Barrier(len(numbers) + 1)

    def room(number: int) -> None:
        late, num = asyncio.run(push_room(access, kind, number, ready.wait))
        late_s.extend(late)
        breaks.append(num)

    threads = [threading.Thread(target=room, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
        time.sleep(0.3)
    ready.wait()
    before = os.times()
    time.sleep(COST_S - 1)
    after = os.times()
    for thread in threads:
        thread.join()
    cpu_s = (after.user + after.system - before.user - before.system) * COST_S / (COST_S - 1)
    return late_s, sum(breaks), cpu_s


def measure_processes() -> Figures:
    """Speak in rooms that each have a process of their own."""
    figures: Figures = {}
    spawn = multiprocessing.get_context("spawn")
    for kind, num_rooms in itertools.product(PUMPS, PROCESSES):
        with LocalServer() as server, spawn.Pool(num_rooms, set_up) as pool:
            jobs = [(server.access, kind, [number]) for number in range(num_rooms)]
            found = pool.starmap(run_rooms, jobs, chunksize=1)
        late_s = [late for room in found for late in room[0]]
        breaks, cpu_s = sum(room[1] for room in found), sum(room[2] for room in found)
        name = f"{num_rooms}processes_{kind}"
        figures |= cost_figures(name, late_s, breaks, cpu_s / num_rooms)
    return figures


def show(figures: Figures, part: str) -> None:
    """Print the figures whose names hold a part."""
    print(*(f"{name} {value:.4g}" for name, value in figures.items() if part in name), sep="\n")
    sys.stdout.flush()


def set_up() -> None:
    """Prepare the SDK as a worker does."""
    sdk_routing.touch()
    sdk_routing.install()
