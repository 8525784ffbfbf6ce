"""The playback clock against the waveform: what it says was heard, and which gaps it counts."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from playhead.worker.demo.llm import PARAGRAPH
from playhead.worker.demo.server import LocalServer
from tests.e2e.rig import Hear, Spoken, WorkerProcess, run_listener
from tests.e2e.truth import heard_errors

pytestmark = [pytest.mark.livekit, pytest.mark.slow]

LINK = Path(__file__).parent / "impaired_link.py"


def test_heard_is_true_when_the_link_is_clean(hear: Hear, worker: WorkerProcess) -> None:
    # two texts: the clock has the listener's reports from the first one on
    heard = hear([Spoken("w", "Hello there."), Spoken("t", PARAGRAPH)], settle_s=1.5)
    heard_errors(heard, "t", worker.made("t")).check()


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


@pytest.fixture(scope="module")
def link() -> Iterator[Link]:
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun") or shutil.which("ip") is None:
        pytest.skip("an impaired link needs root, /dev/net/tun and the ip command")
    namespace = f"ph{os.getpid() % 100_000}"
    process = subprocess.Popen(
        [sys.executable, "-P", str(LINK), namespace],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdin is not None and process.stderr is not None
    ready = process.stdout.readline().split()
    if len(ready) != 3:
        pytest.skip(f"no TUN device or network namespace here: {process.stderr.read()[-300:]}")
    yield Link(process, namespace, ready[1], ready[2])
    process.stdin.close()
    process.wait(10)


@pytest.mark.timeout(300)
def test_heard_is_true_when_the_link_delays_jitters_and_loses(
    link: Link, tmp_path: Path, room_name: str
) -> None:
    link.impair(delay_ms=0)
    with LocalServer(host=link.address, interface=link.interface) as server:
        worker = WorkerProcess(server.access, tmp_path / "worker.log")
        worker.start()
        link.impair(delay_ms=40, jitter_ms=10, loss=0.02)
        try:
            heard = run_listener(
                server.access,
                room_name,
                [Spoken("w", "Hello there, and welcome."), Spoken("t", PARAGRAPH)],
                tmp_path,
                prefix=("ip", "netns", "exec", link.namespace),
                settle_s=5.0,
            )
        finally:
            print(worker.log()[-3000:])
            worker.stop()
    assert heard.report["rtt_s"] > 0.06, "the link was not impaired"
    heard_errors(heard, "t", worker.made("t")).check()
