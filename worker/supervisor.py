"""Supervisor: keeps one child process running; restarts it after a fault, gives up after three.

A native panic in the media library or a device fault ends a whole worker: the answer is a fresh
process within a second. Main thread only where it forwards signals.
"""

import logging
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import FrameType

logger = logging.getLogger(__name__)

MAX_FAULTS = 3
FAULT_WINDOW_S = 300.0
PAUSE_MIN_S = 0.5
PAUSE_MAX_S = 8.0
EXIT_USAGE = 2
"""A child that ends with it can't run as asked: it is not restarted."""


class RestartPolicy:
    """Says whether to restart after a fault, and after which pause; pure."""

    def __init__(self) -> None:
        """Start without faults."""
        self._faults_s: deque[float] = deque()

    def fault(self, now_s: float) -> float | None:
        """Note a fault; return the pause before the restart, or None to give up."""
        self._faults_s.append(now_s)
        while self._faults_s[0] < now_s - FAULT_WINDOW_S:
            self._faults_s.popleft()
        num = len(self._faults_s)
        if num >= MAX_FAULTS:
            return None
        return float(min(PAUSE_MIN_S * 2 ** (num - 1), PAUSE_MAX_S))


class Supervisor:
    """Runs a command until it ends well, is asked to stop, or faults too often."""

    def __init__(self, command: Sequence[str], policy: RestartPolicy | None = None) -> None:
        """Keep the command; `run` starts it."""
        self._command = list(command)
        self._policy = policy or RestartPolicy()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()

    def run(self, *, forward_signals: bool = True) -> int:
        """Run to the end; return the exit code to pass on."""
        if forward_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._forward)
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it is ignored
                signal.signal(signal.SIGHUP, lambda *_: self.stop())  # a terminal that closes
        while True:
            self._child = subprocess.Popen(  # own session: a terminal's Ctrl-C comes once, from us
                self._command, stdin=subprocess.DEVNULL, start_new_session=True
            )
            logger.info("child started", extra={"pid": self._child.pid})
            if self._stopping.is_set():  # the signal came while the child was being started
                self._child.terminate()
            code = self._child.wait()
            if self._stopping.is_set() and code in (-signal.SIGTERM, -signal.SIGINT):
                return 0  # stopped before it could handle the signal, while loading
            if self._stopping.is_set() or code in (0, EXIT_USAGE):
                return code if code >= 0 else 1
            pause_s = self._policy.fault(time.monotonic())
            if pause_s is None:
                logger.error(
                    "child ended with %s: %d faults within %g s, giving up",
                    *(code, MAX_FAULTS, FAULT_WINDOW_S),
                )
                return 1
            logger.error("child ended with %s, restarting in %.1f s", code, pause_s)
            if self._stopping.wait(pause_s):
                return 0

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Pass a signal to the child and do not restart it; any thread."""
        self._stopping.set()
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _forward(self, number: int, _: FrameType | None) -> None:
        self.stop(number)


def end_with_parent(parent_pid: int) -> None:
    """Ask this process to end once its supervisor is gone (killed without a chance to tell)."""

    def watch() -> None:
        while os.getppid() == parent_pid:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="playhead-parent", daemon=True).start()
