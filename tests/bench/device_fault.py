"""A device that breaks under live speech: who is told, how often, and what comes back.

    F=$(mktemp -d)
    PYTHONPATH=tests/worker/faults:src:. PLAYHEAD_TEST_FAULT=$F/fault \
        python -m tests.bench.device_fault --out DIR [--device cpu]

`playhead serve` speaks to listeners; then a kernel in its engine's process writes where no memory
is (on a CPU the engine is told of such a fault instead). Every stream has to end with exactly one
error, the engine's process with a code other than 0, and a fresh one has to speak. Figures go to
`device-fault-<device>.json`.
"""

import argparse
import json
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from playhead.engine.device import probe
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.result import device_label, write_result
from playhead.worker.bench.server import Served

STREAMS = {"cuda": 32, "cpu": 2}
TEXT = "This sentence is said again and again, until somebody stops it. " * 12
MAX_FRAMES = 450
WAIT_S = 120.0
LOOK_S = 0.05
AS_TOLD = "PYTHONPATH=tests/worker/faults:src:. PLAYHEAD_TEST_FAULT=FILE"
_ENDED = re.compile(r"child ended with (-?\d+), restarting")


class Stream(threading.Thread):
    """One listener: counts what it is told until its answer ends."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._url, self._seed = f"{url}/v1/audio/speech", seed
        self.begun = threading.Event()
        self.kinds: list[str] = []
        self.ended_s = 0.0

    def run(self) -> None:
        """Read the answer's events."""
        body = {"input": TEXT, "response_format": "pcm", "stream_format": "sse",
                "seed": self._seed, "max_new_tokens": MAX_FRAMES}  # fmt: skip
        try:
            with httpx.stream("POST", self._url, json=body, timeout=WAIT_S) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        self.kinds.append(json.loads(line.removeprefix("data: "))["type"])
                        self.begun.set()
        except httpx.HTTPError as error:
            self.kinds.append(type(error).__name__)
        self.ended_s = time.monotonic()


def until(condition: Callable[[], bool], what: str) -> float:
    """Wait for a condition; return the seconds it took. Raises TimeoutError."""
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > WAIT_S:
            raise TimeoutError(f"{what} did not happen within {WAIT_S:.0f} s")
        time.sleep(LOOK_S)
    return time.monotonic() - began_s


def is_ready(url: str) -> bool:
    """Ask whether the service takes requests."""
    try:
        return httpx.get(f"{url}/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def speaks(url: str) -> bool:
    """Ask for a short file."""
    body = {"input": "Hello.", "response_format": "pcm", "stream": False, "max_new_tokens": 20}
    answer = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=WAIT_S)
    return answer.status_code == 200 and len(answer.content) > 1920 * 2


def measure(served: Served, fault: Path, word: str, num_streams: int) -> dict[str, float]:
    """Break the engine under live streams; return the figures."""
    streams = [Stream(served.url, seed) for seed in range(num_streams)]
    for stream in streams:
        stream.start()
    assert all(stream.begun.wait(WAIT_S) for stream in streams), "not every stream began"
    fault.with_suffix(".new").write_text(word)
    broken_s = time.monotonic()
    fault.with_suffix(".new").rename(fault)  # taken within 50 ms
    until(lambda: not fault.exists(), "the fault")
    codes: list[str] = []

    def restarts() -> bool:
        codes.extend(_ENDED.findall(served.log_end()))
        return bool(codes)

    until(restarts, "the engine's end")
    for stream in streams:
        stream.join(WAIT_S)
    until(lambda: is_ready(served.url), "a fresh engine")
    ready_s = time.monotonic() - broken_s
    errors = [stream.kinds.count("error") for stream in streams]
    return {
        "fault_streams": num_streams,
        "fault_errors": sum(errors),
        "fault_streams_with_one_error": errors.count(1),
        "fault_streams_told_done": sum("speech.audio.done" in s.kinds for s in streams),
        "fault_streams_broken_off": sum(s.kinds[-1] != "error" for s in streams),
        "fault_told_s": round(max(s.ended_s for s in streams) - broken_s, 3),
        "fault_exit_code": float(codes[0]),
        "fault_ready_again_s": round(ready_s, 2),
        "fault_speaks_again": float(speaks(served.url)),
    }


def main() -> int:
    """Run it; 1 where something was not as it has to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--streams", type=int)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    named = os.environ.get("PLAYHEAD_TEST_FAULT")
    if named is None:
        parser.error("PLAYHEAD_TEST_FAULT is not set; the first lines of this file say how")
    on_gpu = args.device == "cuda"
    # Not the embedded voice: asking for it loads the engine here, which would take the fault.
    model = checkpoint("1.7b" if on_gpu else "tiny", args.checkpoints, device=args.device)
    label = device_label(probe().gpus[0].name) if on_gpu else "cpu"
    word, profile = ("illegal", "ttfa") if on_gpu else ("fault", "cpu")
    with Served(model, profile) as served:
        told = measure(served, Path(named), word, args.streams or STREAMS[args.device])
        print(served.log_end())
    print(json.dumps(told, indent=1))
    command = shlex.join(["python", *sys.orig_argv[1:]])
    print(write_result("device-fault", label, told, f"{AS_TOLD} {command}", args.out))
    one_each = told["fault_streams_with_one_error"] == told["fault_streams"]
    good = one_each and told["fault_exit_code"] != 0 and told["fault_speaks_again"] == 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
