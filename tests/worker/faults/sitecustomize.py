"""Breaks the engine of a real process from inside, or steps its clock, once a file says how.

Python imports this at start where the folder is on PYTHONPATH; a sitecustomize that it hides runs
before. PLAYHEAD_TEST_FAULT names the file of a fault (stuck, fault, or illegal, which breaks a real
GPU); it is taken (removed) by the first engine that sees it, so that a restarted one works
again, unless it ends with `always`. PLAYHEAD_TEST_CLOCK names a file with the seconds by which the
wall clock is wrong now: all Python code of the process reads that clock. (libfaketime would step
native code's, too, but torch does not load beside it.)
"""

import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _step_of(word: str) -> Any:
    def stuck(self: Any, started_s: float) -> float:
        time.sleep(600)
        return started_s

    def fault(self: Any, started_s: float) -> float:
        errors = sys.modules["playhead.engine.errors"]
        raise errors.DeviceFault("CUDA error: an illegal memory access was encountered")

    def illegal(self: Any, started_s: float) -> float:
        from nowhere import write_nowhere

        type(self)._step = step  # what the device says to the steps that follow is its own
        write_nowhere()
        return step(self, started_s)

    step: Callable[[Any, float], float] = sys.modules["playhead.engine.engine"].Engine._step
    return {"stuck": stuck, "fault": fault, "illegal": illegal}[word]


def _watch(path: Path) -> None:
    while True:
        time.sleep(0.05)
        module: Any = sys.modules.get("playhead.engine.engine")
        engine = getattr(module, "Engine", None)
        if engine is None:
            continue
        module.retry_s = lambda *_: None  # every request is admitted, however busy this machine is
        if not path.exists():
            continue
        words = path.read_text().split()
        if not words:
            continue
        if "always" not in words:
            path.unlink()
        engine._step = _step_of(words[0])  # inside step, which notes its start
        return


def _step_clock(path: Path) -> None:
    real = time.time

    def stepped() -> float:
        return real() + float(path.read_text())

    time.time = stepped
    time.time_ns = lambda: int(stepped() * 1e9)


def _hidden() -> Path | None:
    """Return the sitecustomize that Python would have imported without this one."""
    own = Path(__file__).resolve()
    found = (Path(folder) / own.name for folder in sys.path)
    return next((each for each in found if each.is_file() and each.resolve() != own), None)


if _other := _hidden():
    runpy.run_path(str(_other))
if _clock := os.environ.get("PLAYHEAD_TEST_CLOCK"):
    _step_clock(Path(_clock))
if _named := os.environ.get("PLAYHEAD_TEST_FAULT"):
    threading.Thread(target=_watch, args=(Path(_named),), daemon=True).start()
