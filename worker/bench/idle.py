"""Idle time of the device between frames of the real engine loop while a frame is always due.

Live streams begin within a few frames and are stepped without a pause until each listener holds
close to the longest target allowed. Every frame batch's begin and end are marked on the device;
what lies between the end of one and the beginning of the next is idle time of the frames' stream.
A batch's own copies of a few kilobytes, in and out, count as work.
"""

import queue
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from playhead.engine.flight import Flight
from playhead.engine.intake import FIRST_CHARS, MORE_CHARS
from playhead.engine.messages import Accepted, Cancel, Submit
from playhead.engine.models.loader import Model
from playhead.engine.profile import MAX_TARGET_S, Profile
from playhead.engine.runner import FrameResult, Runner
from playhead.engine.units import FRAME_S
from playhead.worker.bench.engine_thread import EngineThread, MakeRunner, runner_maker, sized
from playhead.worker.bench.host import TEXT

SEGMENT_FRAMES = 128
NUM_GROUPS, LOOK_S = 16, 0.005
"""Streams begin in so many groups, so far apart: together they would take new text in one step."""
NUM_CHARS, NUM_BEGINNINGS = FIRST_CHARS + MORE_CHARS, 71
"""Texts are read in two pieces, the second ones within the batches that are not counted; they
begin differently, as callers' do."""
WARM_STEPS, WARM_SHARE, END_S = 24, 1 / 3, 0.4
"""Frame batches of a round that are not counted, at least so many and such a share; audio short of
the target up to which they are."""
FEWEST_STEPS = 200
LIMIT_S = 30.0
"""Of one round; an engine that has stopped must not hold up the benchmark."""


@dataclass(frozen=True, slots=True)
class Idle:
    """What the device did between the first and the last counted frame batch of all rounds."""

    ratio: float
    """Idle seconds of the frames' stream per second."""
    p99_gap_ms: float
    steps: int
    mean_rows: float
    num_live: int


class FrameMarks:
    """A runner that keeps the flights of its frame batches."""

    def __init__(self, runner: Runner) -> None:
        """Wrap a runner; all else is its own."""
        self._runner = runner
        self.frames: list[tuple[int, Flight[FrameResult]]] = []

    def __getattr__(self, name: str) -> Any:
        """Return what the runner has by this name."""
        return getattr(self._runner, name)

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        """Start a frame batch and keep its flight."""
        flight = self._runner.launch_frame(slots, text_ids, may_end)
        self.frames.append((len(slots), flight))
        return flight


class IdleBench:
    """One engine on its thread, whose listeners need more frames than it can make."""

    def __init__(
        self, model: Path, profile: Profile, device: str, rows: int, streams: int,
        make_runner: MakeRunner | None = None,
    ) -> None:  # fmt: skip
        """Build an engine of at most `streams` streams and `rows` rows a batch."""
        self._most_rows = rows
        tuned = replace(
            sized(profile, streams, rows), busy_limit=1.0, segment_frames=SEGMENT_FRAMES,
            low_s=MAX_TARGET_S - 0.1, target_s=MAX_TARGET_S,
        )  # fmt: skip
        make = make_runner or runner_maker(device)

        def made(model: Model, profile: Profile) -> Runner:
            self._marks = FrameMarks(make(model, profile))
            return cast(Runner, self._marks)

        self.thread = EngineThread(model, tuned, device, made)

    def run(self, streams: int) -> Idle:
        """Run rounds of so many streams until enough batches are counted; `thread` is running.

        Raises ValueError where no batch told its times.
        """
        rows = min(streams, self._most_rows)
        steps = round((MAX_TARGET_S - END_S) / FRAME_S * streams / rows)
        warm = max(WARM_STEPS, round(WARM_SHARE * steps))
        gaps_s: list[float] = []
        worked_s, num_rows, live = 0.0, 0, streams
        for number in range(1 + FEWEST_STEPS // (steps - warm)):
            live = min(live, self._round(f"{streams}.{number}.", streams, steps))
            counted = self._marks.frames[warm:steps]
            for (before, first), (after, second) in pairwise(counted):
                if min(before, after) * 2 < rows or first.marks is None or second.marks is None:
                    continue
                began, done = second.marks
                gaps_s.append(max(first.marks[1].elapsed_time(began), 0.0) / 1e3)
                worked_s += began.elapsed_time(done) / 1e3
                num_rows += after
            self._marks.frames.clear()
        if not gaps_s:
            raise ValueError(f"no two batches of {-(-rows // 2)} rows and more told their times")
        idle_s, ordered = sum(gaps_s), sorted(gaps_s)
        return Idle(
            idle_s / (idle_s + worked_s), ordered[int(0.99 * (len(ordered) - 1))] * 1e3,
            len(gaps_s), num_rows / len(gaps_s), live,
        )  # fmt: skip

    def _round(self, prefix: str, streams: int, steps: int) -> int:
        """Let all streams begin, wait for the batches that count, cancel all.

        Return how many were accepted.
        """
        engine, results = self.thread.engine, self.thread.results
        names = [f"{prefix}{number}" for number in range(streams)]
        for number, name in enumerate(names):
            text = TEXT[number % NUM_BEGINNINGS :][:NUM_CHARS]
            engine.post(Submit(name, text=text, closed=True, seed=number, word_times=False))
            if (number + 1) % -(-streams // NUM_GROUPS) == 0:
                time.sleep(LOOK_S)
        until_s = time.monotonic() + LIMIT_S
        while len(self._marks.frames) <= steps and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        for name in names:
            engine.post(Cancel(name))
        accepted, until_s = 0, time.monotonic() + LIMIT_S
        while not (engine.idle and results.empty()) and time.monotonic() < until_s:
            try:
                accepted += isinstance(results.get(timeout=LOOK_S)[1], Accepted)
            except queue.Empty:
                continue
        return accepted
