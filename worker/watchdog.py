"""Watchdog: notices a step that never ends, on a thread of its own; and the last way out.

A device that hangs leaves the engine's thread inside a native call: no exception comes, and no
join returns. What can be done is to say so once and to leave the process.
"""

import logging
import os
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

STUCK_S = 5.0
"""A step of 256 rows takes some 10 ms; seconds mean that the device does not answer."""
LOOK_S = 0.25
LEAVE_S = 10.0
"""Streams are told and ports closed within this; then the process ends itself."""
EXIT_FAULT = 1


class Watchdog:
    """Watches when the step in progress began; calls `on_stuck` once if it does not end."""

    def __init__(
        self,
        step_started_s: Callable[[], float | None],
        on_stuck: Callable[[float], None],
        stuck_s: float = STUCK_S,
    ) -> None:
        """`step_started_s` gives the monotonic start of the step in progress, None between."""
        self._step_started_s = step_started_s
        self._on_stuck = on_stuck
        self._stuck_s = stuck_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="playhead-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End watching; any thread, idempotent."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            started_s = self._step_started_s()
            if started_s is None:
                continue
            lasts_s = time.monotonic() - started_s
            if lasts_s > self._stuck_s:
                logger.error("a step has lasted %.1f s: the device is taken for stuck", lasts_s)
                self._on_stuck(lasts_s)
                return


def leave_within(limit_s: float = LEAVE_S, code: int = EXIT_FAULT) -> None:
    """End this process after `limit_s` at the latest, whatever its other threads wait for."""

    def leave() -> None:
        logger.error("still here after %g s: ending the process", limit_s)
        os._exit(code)

    timer = threading.Timer(limit_s, leave)
    timer.daemon = True
    timer.start()
