"""Soak: `playhead serve` under churn; memory, sockets and tasks must stay where they were.

    python -m tests.bench.soak --minutes 30

Clients join, leave in the middle, cancel and send nonsense, a third of them over a network that is
slow, resets, swallows everything or takes a byte at a time (toxiproxy), against a real service with
its engine in a process of its own. Memory is the sum of both processes, read every 5 s; the slope
is that of a line through the second half. Then the engine is killed (-9) and must come back.
Writes `soak_rss_slope_mb_per_h` and more.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import numpy as np
import psutil

from playhead.worker.http.messages import PROTOCOL
from tests.bench.result import write_result
from tests.toxiproxy import Line, Stream, toxiproxy

LOOK_S = 5.0
ACT_S = 60.0
HARMED_ACT_S = 15.0
"""A client whose network swallowed everything gives up after it."""
HARMS: dict[str, tuple[str, Stream, dict[str, int]]] = {
    "latency": ("latency", "downstream", {"latency": 400, "jitter": 300}),
    "reset": ("reset_peer", "downstream", {"timeout": 900}),
    "half_open": ("timeout", "downstream", {"timeout": 0}),
    "half_open_up": ("timeout", "upstream", {"timeout": 0}),
    "slow_reader": ("bandwidth", "downstream", {"rate": 24}),
    "pieces": ("slicer", "upstream", {"average_size": 10, "size_variation": 5, "delay": 500}),
}
TEXT = "The number you asked for is four five six. Anything else I can do for you today? "
_MB = 1 << 20


@dataclass(slots=True)
class Sample:
    """What the processes held at one moment."""

    at_s: float
    rss_mb: float
    sockets: int
    threads: int


@dataclass
class Soak:
    """A running service, its clients, and what was seen of it."""

    url: str
    process: psutil.Process
    rng: random.Random
    harmed: dict[str, Line]
    """Ways to the service through a bad network, by its harm."""
    samples: list[Sample] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def family(self) -> list[psutil.Process]:
        """Return the service and its engine."""
        return [self.process, *self.process.children()]

    def look(self, now_s: float) -> None:
        """Note memory, sockets and threads."""
        family = self.family()
        rss = sum(each.memory_info().rss for each in family) / _MB
        sockets = sum(each.num_fds() for each in family)
        threads = sum(each.num_threads() for each in family)
        self.samples.append(Sample(now_s, rss, sockets, threads))

    def count(self, name: str) -> None:
        """Count one thing that a client did."""
        self.counts[name] = self.counts.get(name, 0) + 1

    # -- what clients do

    async def listen(self, session: aiohttp.ClientSession, url: str) -> None:
        """Take a whole stream."""
        body = {"input": TEXT[: self.rng.randint(5, 40)], "response_format": "pcm"}
        async with session.post(f"{url}/v1/audio/speech", json=body) as answer:
            await answer.read()
            self.count(f"listen_{answer.status}")

    async def leave(self, session: aiohttp.ClientSession, url: str) -> None:
        """Close the connection in the middle of a stream."""
        body = {"input": TEXT * 3, "response_format": self.rng.choice(["pcm", "mp3", "opus"])}
        body["stream"] = True  # type: ignore[assignment]
        async with session.post(f"{url}/v1/audio/speech", json=body) as answer:
            await answer.content.readany()
            answer.close()
            self.count(f"leave_{answer.status}")

    async def file(self, session: aiohttp.ClientSession, url: str) -> None:
        """Ask for a file."""
        body = {"input": TEXT[:20], "response_format": self.rng.choice(["wav", "mp3", "flac"])}
        async with session.post(f"{url}/v1/audio/speech", json=body) as answer:
            await answer.read()
            self.count(f"file_{answer.status}")

    async def nonsense(self, session: aiohttp.ClientSession, url: str) -> None:
        """Send what must be refused."""
        body: Any = self.rng.choice([{"input": ""}, {"inputs": 1}, [], {"input": "a", "speed": 9}])
        async with session.post(f"{url}/v1/audio/speech", json=body) as answer:
            assert 400 <= answer.status < 500, answer.status
            self.count("nonsense")

    async def talk(self, session: aiohttp.ClientSession, url: str) -> None:
        """Open a WebSocket, speak, and cancel or not."""
        async with session.ws_connect(f"{url}/v1/audio/speech/ws", protocols=[PROTOCOL]) as socket:
            start = {"type": "utterance.start", "utterance": "a"}
            text = {"type": "text.append", "utterance": "a", "sequence": 0, "text": TEXT[:60]}
            for message in (start, text):
                await socket.send_json(message)
            if self.rng.random() < 0.5:
                await asyncio.sleep(self.rng.random())
                await socket.send_json({"type": "utterance.cancel", "utterance": "a"})
            else:
                end = {"type": "text.end", "utterance": "a", "sequence": 1}
                await socket.send_json(end)
            if self.rng.random() < 0.3:
                self.count("talk_dropped")
                return
            async for message in socket:
                if message.type is aiohttp.WSMsgType.TEXT and "utterance.done" in message.data:
                    self.count("talk")
                    return

    async def client(self, end_s: float) -> None:
        """Do one thing after another until the end."""
        acts: list[Callable[[aiohttp.ClientSession, str], Coroutine[Any, Any, None]]] = [
            *(self.listen, self.leave, self.file, self.nonsense, self.talk),
        ]
        while time.monotonic() < end_s:
            harm = self.rng.choice([*self.harmed]) if self.rng.random() < 1 / 3 else ""
            url = self.harmed[harm].url if harm else self.url
            limit_s = HARMED_ACT_S if harm else ACT_S
            async with aiohttp.ClientSession() as session:
                try:
                    await asyncio.wait_for(self.rng.choice(acts)(session, url), limit_s)
                except (aiohttp.ClientError, TimeoutError) as error:
                    self.count(f"{harm or 'unharmed'}_{type(error).__name__}")
            await asyncio.sleep(self.rng.random() * 0.5)

    async def killed_engine_back_s(self) -> float:
        """Kill the engine's process; return when a request is answered with speech again."""
        (engine,) = self.process.children()
        engine.kill()
        killed_s = time.monotonic()
        body = {"input": TEXT[:20], "response_format": "wav"}
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.post(f"{self.url}/v1/audio/speech", json=body) as answer:
                    if answer.status == 200 and await answer.read():
                        return time.monotonic() - killed_s
                    assert answer.status == 503, answer.status
                assert time.monotonic() < killed_s + ACT_S, "the engine did not come back"
                await asyncio.sleep(0.2)

    async def settled(self) -> dict[str, float]:
        """Wait until nothing is live; return the service's own numbers."""
        async with aiohttp.ClientSession() as session:
            for _ in range(600):
                async with session.get(f"{self.url}/metrics") as answer:
                    numbers = _numbers(await answer.text())
                if (
                    not numbers["playhead_http_live_utterances"]
                    and not numbers["playhead_engine_live"]
                ):
                    return numbers
                await asyncio.sleep(0.2)
        raise AssertionError("something stayed live")

    async def run(self, seconds: float, clients: int) -> dict[str, float]:
        """Keep clients busy; return the figures."""
        before = await self.settled()
        self.look(0.0)
        began_s = time.monotonic()
        end_s = began_s + seconds
        busy = [asyncio.create_task(self.client(end_s)) for _ in range(clients)]
        while time.monotonic() < end_s:
            await asyncio.sleep(LOOK_S)
            self.look(time.monotonic() - began_s)
        await asyncio.gather(*busy)
        after = await self.settled()
        await asyncio.sleep(2.0)  # the last sockets close
        self.look(time.monotonic() - began_s)
        found = figures(self.samples, before, after, self.counts)
        found["soak_unharmed_clients_failed"] = float(
            sum(num for name, num in self.counts.items() if name.startswith("unharmed_"))
        )
        found["soak_killed_engine_back_s"] = round(await self.killed_engine_back_s(), 2)
        return found


def figures(
    samples: list[Sample],
    before: dict[str, float],
    after: dict[str, float],
    counts: dict[str, int],
) -> dict[str, float]:
    """Return the slope of memory over the second half, and what is held at rest after it all."""
    half = [each for each in samples if each.at_s >= samples[-1].at_s / 2]
    hours = np.array([each.at_s for each in half]) / 3600
    slope = float(np.polyfit(hours, [each.rss_mb for each in half], 1)[0])
    first, last = samples[0], samples[-1]
    return {
        "soak_rss_slope_mb_per_h": round(slope, 2),
        "soak_rss_first_mb": round(first.rss_mb, 1),
        "soak_rss_last_mb": round(last.rss_mb, 1),
        "soak_sockets_gained": float(last.sockets - first.sockets),
        "soak_threads_gained": float(last.threads - first.threads),
        "soak_connections_left": after["playhead_http_connections"],
        "soak_failed": after["playhead_engine_failed"] - before["playhead_engine_failed"],
        "soak_requests": float(sum(counts.values())),
        "soak_s": round(last.at_s),
    }


def _numbers(text: str) -> dict[str, float]:
    lines = [line.split() for line in text.splitlines() if line and "#" not in line[0]]
    return {name: float(value) for name, value in lines if "{" not in name}


@contextlib.contextmanager
def service(*flags: str) -> Any:
    """Run `playhead serve`; yield its address and process."""
    with tempfile.TemporaryDirectory() as folder:
        port, log = Path(folder) / "port", Path(folder) / "log"
        command = [sys.executable, "-m", "playhead.worker.cli", "serve", "--port", "0"]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, *flags, "--port-file", str(port)],
                stdout=out,
                stderr=out,
                env={**os.environ},
            )
        try:
            while not (port.exists() and port.read_text().endswith("\n")):
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            url = f"http://127.0.0.1:{port.read_text().strip()}"
            while httpx.get(f"{url}/ready").status_code != 200:
                assert process.poll() is None, log.read_text()
                time.sleep(0.2)
            yield url, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


async def soak(seconds: float, clients: int, number: int) -> dict[str, float]:
    """Run a soak of its own service; return the figures."""
    with service() as (url, pid), toxiproxy() as network:
        harmed = {name: network.line(int(url.rpartition(":")[2])) for name in HARMS}
        for name, (kind, stream, attributes) in HARMS.items():
            harmed[name].harm(kind, stream, **attributes)
        running = Soak(url, psutil.Process(pid), random.Random(number), harmed)
        found = await running.run(seconds, clients)
        print(running.counts, flush=True)
        return found


def main() -> int:
    """Soak and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    found = asyncio.run(soak(args.minutes * 60, args.clients, args.seed))
    print(found, flush=True)
    if args.write:
        write_result("service", "cpu", found, "make soak")
    return 0


if __name__ == "__main__":
    sys.exit(main())
