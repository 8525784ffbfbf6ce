"""EngineProcess: an engine of its own process for a worker whose jobs are processes too."""

import os
import sys
import tempfile
import threading
from pathlib import Path

from playhead.worker.supervisor import Supervisor

LOAD_S = 600.0
"""How long the first start may take: weights, compilation, graph capture."""
STOP_S = 15.0


class EngineProcess:
    """Runs `playhead engine` on a private socket and restarts it after a fault."""

    def __init__(self, model: str | None, profile: str) -> None:
        """Make the private folder of the socket; nothing runs yet."""
        self._folder = tempfile.TemporaryDirectory(prefix="playhead-")  # mode 0700
        self.path = Path(self._folder.name) / "engine.sock"
        command = [sys.executable, "-m", "playhead.worker.cli", "engine"]
        command += ["--socket", str(self.path), "--profile", profile]
        command += ["--parent-pid", str(os.getpid())]
        if model is not None:
            command += ["--model", model]
        self._supervisor = Supervisor(command)
        self._thread = threading.Thread(target=self._run, name="playhead-engine-process")
        self.exit_code: int | None = None
        """Set once it will not come back."""

    def start(self) -> None:
        """Start it; it answers on `path` once loaded."""
        self._thread.start()

    def stop(self) -> None:
        """End it and remove the socket's folder."""
        self._supervisor.stop()
        self._thread.join(STOP_S)
        self._folder.cleanup()

    def _run(self) -> None:
        self.exit_code = self._supervisor.run(forward_signals=False)
