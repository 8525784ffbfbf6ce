"""EngineProcess: an engine of its own process, kept running; and what that process runs."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from playhead.engine.errors import ConfigError, TransportError
from playhead.worker.engine_server import EngineServer, check_length
from playhead.worker.interpreter import hand_over_at_once, settle
from playhead.worker.supervisor import EXIT_USAGE, Supervisor
from playhead.worker.thread_carrier import ThreadCarrier, engine_maker
from playhead.worker.watchdog import leave_within

logger = logging.getLogger(__name__)

LOAD_S = 600.0
"""How long the first start may take: weights, compilation, graph capture."""
STOP_S = 15.0
WAIT_S = 0.05
SOCKET_NAME = "engine.sock"
SHORT_FOLDER = "/tmp"
"""Where the socket's private folder goes if the system's own place has too long a path."""


def add_record(parser: argparse.ArgumentParser) -> None:
    """Declare the flag of every command that has an engine."""
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FOLDER",
        help="record there what the engine is told and decides, texts included, up to 256 MiB; "
        "playhead simulate --parts trace --trace FILE replays it",
    )


class EngineProcess:
    """Runs `playhead engine` on a private socket and restarts it after a fault."""

    def __init__(
        self, model: str | None, profile: str, gpu: int | None = None, trace: Path | None = None
    ) -> None:
        """Make the private folder of the socket; `gpu` is the only one the engine sees.

        `trace`: folder in which each engine process records what it is told and decides.

        Raises ConfigError where no folder can be made.
        """
        self._folder = socket_folder()
        self.path = Path(self._folder.name) / SOCKET_NAME
        command = [] if gpu is None else ["env", f"CUDA_VISIBLE_DEVICES={gpu}"]
        command += [sys.executable, "-m", "playhead.worker.cli", "engine"]
        command += ["--socket", str(self.path), "--profile", profile]
        command += ["--parent-pid", str(os.getpid())]
        if model is not None:
            command += ["--model", model]
        if trace is not None:
            command += ["--record", str(trace)]
        self._supervisor = Supervisor(command)
        self._thread = threading.Thread(target=self._run, name="playhead-engine-process")
        self.exit_code: int | None = None
        """Set once it will not come back."""

    def start(self) -> None:
        """Start it; it answers on `path` once loaded."""
        self._thread.start()

    def wait(self) -> None:
        """Wait until its socket is there; its own log says why, if it never will be.

        Raises ConfigError if it can't run as asked, TransportError if it broke too often.
        """
        while not self.path.exists():
            if self.exit_code == EXIT_USAGE:
                raise ConfigError("the engine can't run as asked; the line above says why")
            if self.exit_code is not None:
                raise TransportError("the engine broke before it answered")
            time.sleep(WAIT_S)

    def stop(self) -> None:
        """End it and remove the socket's folder."""
        self._supervisor.stop()
        self._thread.join(STOP_S)
        self._folder.cleanup()

    def _run(self) -> None:
        self.exit_code = self._supervisor.run(forward_signals=False)


def socket_folder(short_folder: str = SHORT_FOLDER) -> "tempfile.TemporaryDirectory[str]":
    """Make a private folder, mode 0700, whose path leaves room for a socket's name.

    It is made in `short_folder` where the system's own place (TMPDIR) is too deep. Raises
    ConfigError where no folder can be made.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="playhead-")
    except OSError as error:
        raise ConfigError(
            f"no folder for the engine's socket: {error.strerror or error}; free some space, "
            "or name a folder that can be written in TMPDIR"
        ) from None
    try:
        check_length(Path(folder.name) / SOCKET_NAME)
    except ConfigError as too_long:
        folder.cleanup()
        try:
            return tempfile.TemporaryDirectory(prefix="playhead-", dir=short_folder)
        except OSError:
            raise too_long from None
    return folder


def run_engine(model: str | None, profile: str, socket: Path, trace: Path | None = None) -> int:
    """Serve an engine on a socket until SIGTERM and a drain; the body of `playhead engine`.

    Raises ConfigError or CheckpointError before anything is served. Returns 1 when the engine
    broke or its device hangs: the supervisor starts a fresh one.
    """
    try:
        asyncio.run(_serve(ThreadCarrier(engine_maker(model, profile, trace)), socket))
    except TransportError as error:
        logger.error("the engine ends: %s", error)
        return 1
    return 0


async def _serve(carrier: ThreadCarrier, socket: Path) -> None:
    server = EngineServer(carrier, socket)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.drain)

    def ready() -> None:
        settle()
        hand_over_at_once()
        logger.info("engine ready at %s", socket)

    try:
        await server.serve(ready)
    except TransportError:
        leave_within()
        raise
