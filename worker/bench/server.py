"""`playhead serve` under load: its process, what it says of itself and takes of the machine."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from playhead.engine.errors import EngineFailure

READY_S = 300.0
STOP_S = 40.0
LOOK_S = 0.02
_GPU_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--loop-ms=500",
              "--format=csv,noheader,nounits")  # fmt: skip


class Served:
    """Runs the service while the context lasts, its engine in a process of its own."""

    def __init__(self, model: Path, profile: str, flags: Sequence[str] = ()) -> None:
        """Keep what to start; nothing runs yet."""
        self._folder = tempfile.TemporaryDirectory(prefix="playhead-bench-")
        self._port_file = Path(self._folder.name) / "port"
        self._log = Path(self._folder.name) / "serve.log"
        self._command = [sys.executable, "-m", "playhead.worker.cli", "serve"]
        self._command += ["--host", "127.0.0.1", "--port", "0", "--port-file", str(self._port_file)]
        self._command += ["--model", str(model), "--profile", profile, *flags]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.ready_s = 0.0
        """From starting the command to its readiness: weights, capture and one utterance."""

    def __enter__(self) -> Self:
        """Start and wait until ready; raises EngineFailure with the end of its log."""
        began_s = time.monotonic()
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out)
        try:
            while not self._is_ready():
                if self._process.poll() is not None or time.monotonic() - began_s > READY_S:
                    raise EngineFailure(f"the server did not become ready:\n{self.log_end()}")
                time.sleep(LOOK_S)
        except BaseException:
            self._end()
            raise
        self.ready_s = time.monotonic() - began_s
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        self._end()

    @property
    def process_id(self) -> int:
        """Process id of the command."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """It has not ended."""
        return self._process is not None and self._process.poll() is None

    def log_end(self) -> str:
        """Return the last lines it logged."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])

    def metrics(self) -> dict[str, float]:
        """Return the numbers of /metrics that have no labels, by name without `playhead_`."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return parse_metrics(answer.read().decode())

    def cpu_s(self) -> float:
        """Return the CPU seconds its processes have used so far."""
        return tree_cpu_s(self.process_id)

    def _is_ready(self) -> bool:
        if not self._port_file.exists():
            return False
        port = self._port_file.read_text().strip()
        if not port:
            return False
        self.url = f"http://127.0.0.1:{port}"
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def _end(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()


def parse_metrics(text: str) -> dict[str, float]:
    """Return name -> value of a Prometheus page, lines with labels left out."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {
        parts[0].removeprefix("playhead_"): float(parts[1])
        for parts in lines
        if len(parts) == 2 and "{" not in parts[0]
    }


def engine_busy_s(before: dict[str, float], after: dict[str, float]) -> float:
    """Return how long the engine's batches took between two readings of its counters.

    Steps times their recent median: an estimate. Frames and codec may overlap on a GPU, so the
    share of the time can exceed one.
    """
    steps = [(after[f"engine_{k}_steps"] - before[f"engine_{k}_steps"], k) for k in _STAGES]
    return sum(count * after[f"engine_{kind}_s_p50"] for count, kind in steps)


_STAGES = ("frame", "codec")


def tree_cpu_s(process_id: int) -> float:
    """Return user + system seconds of a process and its descendants; 0 where /proc is missing."""
    stats: dict[int, tuple[int, float]] = {}
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        stats[int(entry.parent.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) * tick_s
    wanted, total_s = [process_id], 0.0
    while wanted:
        parent = wanted.pop()
        total_s += stats.get(parent, (0, 0.0))[1]
        wanted += [child for child, (of, _) in stats.items() if of == parent]
    return total_s


class GpuWatch:
    """Samples the driver's own utilization twice a second while the context lasts."""

    def __init__(self, index: int) -> None:
        """Start nothing yet; `index` is the GPU's number as torch counts those it may see."""
        self._index = index
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._rows: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        """Begin, where nvidia-smi is there."""
        uuid = _gpu_uuid(self._index) if shutil.which(_GPU_QUERY[0]) else None
        if uuid is not None:
            self._process = subprocess.Popen(
                [*_GPU_QUERY, f"--id={uuid}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._thread = threading.Thread(target=self._read, args=(self._process,), daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        if self._process is not None and self._thread is not None:
            self._process.terminate()
            self._process.wait()
            self._thread.join()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            cells = line.strip().split(", ")
            if len(cells) == 2 and all(cell.replace(".", "").isdigit() for cell in cells):
                self._rows.append((float(cells[0]), float(cells[1])))

    def figures(self) -> dict[str, float]:
        """Return mean busy share and most memory; empty where there was nothing to ask."""
        if not self._rows:
            return {}
        busy = [share for share, _ in self._rows]
        return {
            "gpu_busy_share": sum(busy) / len(busy) / 100.0,
            "gpu_memory_mib": max(memory for _, memory in self._rows),
        }


def _gpu_uuid(index: int) -> str | None:
    """Return what the driver calls a GPU of this process; it counts those that are hidden too."""
    import torch

    if index >= torch.cuda.device_count():
        return None
    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"
