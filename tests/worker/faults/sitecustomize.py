"""Breaks the engine of a real process from inside, once a file says how.

Python imports this at start where the folder is on PYTHONPATH. PLAYHEAD_TEST_FAULT names the file;
it is taken (removed) by the first engine that sees it, so that a restarted one works again, unless
it ends with `always`.
"""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any


def _step_of(word: str) -> Any:
    def stuck(self: Any, started_s: float) -> float:
        time.sleep(600)
        return started_s

    def fault(self: Any, started_s: float) -> float:
        errors = sys.modules["playhead.engine.errors"]
        raise errors.DeviceFault("CUDA error: an illegal memory access was encountered")

    return {"stuck": stuck, "fault": fault}[word]


def _watch(path: Path) -> None:
    while True:
        time.sleep(0.05)
        module = sys.modules.get("playhead.engine.engine")
        engine = getattr(module, "Engine", None)
        if engine is None or not path.exists():
            continue
        words = path.read_text().split()
        if not words:
            continue
        if "always" not in words:
            path.unlink()
        engine._step = _step_of(words[0])  # inside step, which notes its start
        return


if _named := os.environ.get("PLAYHEAD_TEST_FAULT"):
    threading.Thread(target=_watch, args=(Path(_named),), daemon=True).start()
