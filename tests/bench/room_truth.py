"""What the playback clock says of a room against its waveform, and how fast it falls silent.

Run as root on an idle machine: `python -m tests.bench.room_truth`. A listener process hears a
paragraph on a clean link and on one with 40 +- 10 ms and 2 % loss, and interrupts at random places.
Writes `results/rooms-cpu.json`, where the figures of `playhead bench rooms` are, and takes over
what `python -m tests.bench.pumps` measured of stalls of 80 ms.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from playhead.worker.bench.result import default_folder
from playhead.worker.demo.llm import PARAGRAPH
from playhead.worker.demo.server import LocalServer
from tests.bench.result import write_result
from tests.bench.room_cpu import interrupt_to_silence_ms, p95
from tests.e2e.rig import Spoken, WorkerProcess, run_listener
from tests.e2e.truth import heard_errors

LINK = Path(__file__).parents[1] / "e2e" / "impaired_link.py"
NAMESPACE = "phbench"
IMPAIRMENT = {"delay_ms": 40, "jitter_ms": 10, "loss": 0.02}
TEXTS = [Spoken("w", "Hello there, and welcome."), Spoken("p", PARAGRAPH)]
STALL_FIGURES = ("gaps_80ms_stalls_withheld", "gaps_80ms_stalls_queued")


def worst_error_ms(server: LocalServer, folder: Path, prefix: tuple[str, ...] = ()) -> float:
    """Return the largest error of the clock's `heard` in a paragraph, reports having settled."""
    worker = WorkerProcess(server.access, folder / "worker.log")
    worker.start()
    try:
        heard = run_listener(
            server.access, "truth", TEXTS, folder / "heard", prefix=prefix, settle_s=3.0
        )
        errors = heard_errors(heard, "p", worker.made("p"))
    finally:
        worker.stop()
    print(errors, flush=True)
    return max(abs(error_s) for error_s in errors.steady) * 1000


def clean(folder: Path) -> dict[str, float]:
    """Measure on loopback."""
    (folder / "clean").mkdir()
    with LocalServer() as server:
        figures = {"heard_error_ms_clean_max": worst_error_ms(server, folder / "clean")}
        worker = WorkerProcess(server.access, folder / "worker.log")
        worker.start()
        try:
            silence_ms = interrupt_to_silence_ms(server.access, folder / "interrupt")
        finally:
            worker.stop()
    return figures | {"interrupt_to_silence_p95_ms": p95(silence_ms)}


def impaired(folder: Path) -> dict[str, float]:
    """Measure with the listener behind a bad link, in a network namespace."""
    (folder / "impaired").mkdir()
    link = subprocess.Popen(
        [sys.executable, "-P", str(LINK), NAMESPACE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert link.stdin is not None and link.stdout is not None
    try:
        _, interface, address = link.stdout.readline().split()
        link.stdin.write(json.dumps(IMPAIRMENT) + "\n")
        link.stdin.flush()
        with LocalServer(host=address, interface=interface) as server:
            prefix = ("ip", "netns", "exec", NAMESPACE)
            return {
                "heard_error_ms_impaired_max": worst_error_ms(server, folder / "impaired", prefix)
            }
    finally:
        link.stdin.close()
        link.wait(10)


def stalls() -> dict[str, float]:
    """Return what the pumps were measured at, if they were."""
    path = default_folder() / "pumps-cpu.json"
    if not path.exists():
        return {}
    known: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return {name: known[name] for name in STALL_FIGURES if name in known}


def main() -> None:
    """Measure and write the figures."""
    with tempfile.TemporaryDirectory() as folder:
        figures = clean(Path(folder)) | impaired(Path(folder)) | stalls()
    for name, value in figures.items():
        print(f"{name} {value:.3g}")
    rounded = {name: round(value, 3) for name, value in figures.items()}
    write_result("rooms", "cpu", rounded, "python -m tests.bench.room_truth")


if __name__ == "__main__":
    main()
