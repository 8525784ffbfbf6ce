"""Real processes for end-to-end tests and benches: a worker with the embedded voice, listeners."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from playhead.worker.demo.server import Access, end_with_parent, free_port
from playhead.worker.listener import Recording

HEAR = Path(__file__).parent / "hear.py"
LISTENER_LIMIT_S = 240
WORKER_LIMIT_S = 90


def wait_until(condition: Callable[[], bool], limit_s: float, what: str) -> None:
    """Poll a condition; fail with what was awaited."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what}: not within {limit_s} s")
        time.sleep(0.1)


@dataclass(slots=True)
class WorkerProcess:
    """`playhead worker` as its supervisor would start it."""

    access: Access
    log_path: Path
    arguments: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", "playhead.worker.cli", "worker", "--clock-events"]
        command += ["--port", str(self.port), "--drain-s", "2"]
        command += ["--keep-pcm", str(self.log_path.parent)]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.arguments],
                env={**os.environ, **self.access.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        wait_until(self.ready, WORKER_LIMIT_S, f"worker ready\n{self.log()[-4000:]}")

    def ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log()[-4000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def num_late(self) -> int:
        """Return how many chunks its engine made too late so far: on two cores that do all the
        rest as well, it may be; the listener of an engine in time hears no gap."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            told = str(answer.read().decode())
        (line,) = re.findall(r"^playhead_engine_late_chunks (\d+)$", told, re.MULTILINE)
        return int(line)

    def made(self, request_id: str) -> npt.NDArray[np.int16]:
        """Return what the engine made of a request."""
        return np.fromfile(self.log_path.parent / f"{request_id}.pcm", "<i2")

    def stop(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")


@dataclass(frozen=True, slots=True)
class Spoken:
    """One text to be spoken."""

    request_id: str
    text: str
    seed: int = 7
    token_ms: float = 30.0
    wait: bool = False
    """Go on with the next text only after this one's end and a pause."""
    interrupt_at_s: float | None = None
    """Interrupt once so much of it was heard."""


@dataclass(frozen=True, slots=True)
class HeardSpeech:
    """What a listener brought home."""

    recording: Recording
    pcm: npt.NDArray[np.int16]
    events: list[dict[str, Any]]
    begun: dict[str, float]
    heard: dict[str, dict[str, Any]]
    """What interruptions answered, and when each was sent."""
    report: dict[str, float]
    captions: str

    def of(self, kind: str, request_id: str) -> list[dict[str, Any]]:
        return [
            event
            for event in self.events
            if event["type"] == kind and event.get("request_id") == request_id
        ]

    def end_of(self, request_id: str) -> dict[str, Any]:
        (end,) = [
            event
            for event in self.events
            if event.get("request_id") == request_id
            and event["type"] in ("finished", "interrupted", "error")
        ]
        return end


@dataclass(frozen=True, slots=True)
class Link:
    """An impaired link and the interface of ours at its near end."""

    process: subprocess.Popen[str]
    namespace: str
    interface: str
    address: str

    def impair(self, **impairment: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(impairment) + "\n")
        self.process.stdin.flush()


@dataclass(frozen=True, slots=True)
class FarRoom:
    """A worker at the near end of a link and listeners beyond it."""

    link: Link
    worker: WorkerProcess

    def hear(
        self, room: str, texts: list[Spoken], folder: Path, *, settle_s: float, **impairment: float
    ) -> HeardSpeech:
        """Run a listener beyond the link, which is impaired so."""
        self.link.impair(**impairment)
        prefix = ("ip", "netns", "exec", self.link.namespace)
        try:
            return run_listener(
                self.worker.access, room, texts, folder, prefix=prefix, settle_s=settle_s
            )
        finally:
            print(self.worker.log()[-3000:])


@dataclass(frozen=True, slots=True)
class KnownSpeech:
    """What a listener heard of a text, and what the engine made for it."""

    heard: HeardSpeech
    request_id: str
    made: npt.NDArray[np.int16]


Hear = Callable[..., HeardSpeech]
Render = Callable[..., npt.NDArray[np.int16]]
"""From text and seed (7 if not given) to the engine's own samples."""


def read_heard(folder: Path) -> HeardSpeech:
    with np.load(folder / "heard.npz") as arrays:
        pcm, starts, times = arrays["pcm"], arrays["starts"], arrays["times"]
    document = json.loads((folder / "heard.json").read_text())
    recording = Recording()
    for samples, at_s in zip(np.split(pcm, starts[1:]), times, strict=True):
        recording.append(samples, float(at_s))
    return HeardSpeech(
        recording=recording,
        pcm=pcm,
        events=document["events"],
        begun=document["begun"],
        heard=document["heard"],
        report=document["report"],
        captions="".join(document["captions"]),
    )


def run_listener(
    access: Access,
    room: str,
    texts: list[Spoken],
    folder: Path,
    *,
    prefix: Sequence[str] = (),
    settle_s: float = 0.5,
) -> HeardSpeech:
    """Run a listener process to its end; `prefix` is put before its command line."""
    folder.mkdir(parents=True, exist_ok=True)
    setup = {
        "url": access.url,
        "token": access.token(f"listener-{room}", room),
        "out": str(folder),
        "texts": [asdict(text) for text in texts],
        "settle_s": settle_s,
    }
    command = [*prefix, sys.executable, "-P", str(HEAR), json.dumps(setup)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LISTENER_LIMIT_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return read_heard(folder)
