"""Runs load generators and brings their outcomes together."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from playhead.engine.errors import EngineFailure
from playhead.engine.units import frames_to_s
from playhead.worker.bench.load import PATIENCE_S
from playhead.worker.bench.plan import Planned, split
from playhead.worker.bench.player import Outcome

START_S = 300.0
"""An in-process target loads its model before it is ready."""
LEAD_S = 0.3
"""From the word to begin to the beginning: every generator has read it by then."""


@dataclass(slots=True)
class Told:
    """What the generators of one load told."""

    outcomes: list[Outcome] = field(default_factory=list)
    lag_p99_s: float = 0.0
    """How late the event loop of the slowest generator woke."""


def run_load(
    plans: Sequence[Planned], target: str, where: dict[str, Any], num_processes: int
) -> Told:
    """Send a plan from processes of their own; return all that came back.

    A generator that dies or hangs is ended: its requests are then missing, and counted as lost.
    Raises EngineFailure when one does not become ready.
    """
    parts = [part for part in split(plans, num_processes) if part]
    children = [_Child({"target": target, "where": where, "requests": part}) for part in parts]
    told = Told()
    try:
        for child in children:
            child.wait_ready()
        begin_s = time.monotonic() + LEAD_S
        for child in children:
            child.begin(begin_s)
        longest = max((frames_to_s(each.max_frames) for each in plans), default=0.0)
        limit_s = begin_s + plans[-1].at_s + longest + PATIENCE_S + 10.0 if plans else begin_s
        for child in children:
            child.join(limit_s)
            told.outcomes += child.outcomes
            told.lag_p99_s = max(told.lag_p99_s, child.lag_p99_s)
    finally:
        for child in children:
            child.end()
    return told


class _Child:
    """One generator: its process, and the thread that reads what it tells."""

    def __init__(self, job: dict[str, Any]) -> None:
        job = {**job, "requests": [asdict(each) for each in job["requests"]]}
        command = [sys.executable, "-m", "playhead.worker.bench.load"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.outcomes: list[Outcome] = []
        self.lag_p99_s = 0.0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self._say(json.dumps(job))

    def wait_ready(self) -> None:
        if not self._ready.wait(START_S) or self._process.poll() is not None:
            raise EngineFailure("a load generator did not start; its error is above")

    def begin(self, begin_s: float) -> None:
        self._say(f"go {begin_s!r}")

    def join(self, limit_s: float) -> None:
        """Wait until it has told everything, or until `limit_s` (monotonic)."""
        self._thread.join(max(limit_s - time.monotonic(), 0.0))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                _there(pipe).close()

    def _say(self, line: str) -> None:
        pipe = _there(self._process.stdin)
        with contextlib.suppress(BrokenPipeError):  # it died: wait_ready or the count tells
            pipe.write(line + "\n")
            pipe.flush()

    def _read(self) -> None:
        for line in _there(self._process.stdout):
            if line.strip() == "ready":
                self._ready.set()
                continue
            try:
                told = json.loads(line)
            except ValueError:  # it was ended in the middle of a line
                continue
            if "lag_p99_s" in told:
                self.lag_p99_s = told["lag_p99_s"]
            else:
                told["chunks"] = [(at_s, count) for at_s, count in told["chunks"]]
                self.outcomes.append(Outcome(**told))
        self._ready.set()  # it ended: whoever waits looks at the process


def _there(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
