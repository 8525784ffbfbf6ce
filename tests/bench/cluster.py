"""Cluster: two LiveKit nodes on one Redis, three workers, two watchers; a rolling drain, a killed
worker, a killed node.

    python -m tests.bench.cluster

Everything runs on this machine. A call that comes while every worker says that it is full gets none
from the server, which asks once: the watchers, which are part of every deployment, send one later.
Writes `drain_lost_calls`, `redispatch_s`, how calls spread, and which came by a watcher.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livekit import rtc

from playhead.worker.demo.parts import ensure_server
from playhead.worker.demo.server import Access, end_with_parent, free_port, server_config
from tests.bench.result import write_result
from tests.worker.people import Person

START_S = 120.0
WATCHERS = 2
SENT = "a new one was asked for"
"""What a watcher says of a room it sent a worker."""
SAID = "One moment, please."
ENDS = ("finished", "interrupted", "error")
PATIENCE_S = 120.0
"""How long a caller asks a busy engine again; the two cores here also start the new workers."""
MAX_ROOMS = 6
"""Of each worker: three share two cores. The server gives a call to the node whose workers have
most room left together: two that take 40 each left a third, alone on its node, none of ten calls.
"""


def start(command: list[str], log: Path, **env: str) -> "subprocess.Popen[bytes]":
    """Start a process that ends with this one."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,
        )


async def until(condition: Any, what: str, limit_s: float = START_S) -> None:
    """Wait for a condition."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, what
        await asyncio.sleep(0.1)


def accepts(port: int) -> bool:
    """Say whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Node:
    """One livekit-server of the cluster."""

    number: int
    redis_port: int
    folder: Path
    key: str = "devkey"
    secret: str = "0123456789abcdef0123456789abcdef"
    process: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        """Choose its ports."""
        port = free_port()
        self.access = Access(f"ws://127.0.0.1:{port}", self.key, self.secret)
        config = server_config("127.0.0.1", "lo", port, self.access)
        config["redis"] = {"address": f"127.0.0.1:{self.redis_port}"}
        self.config = self.folder / f"node{self.number}.yaml"
        self.config.write_text(json.dumps(config))

    def start(self) -> None:
        """Start it."""
        command = [str(ensure_server()), "--config", str(self.config)]
        self.log_path = self.folder / f"node{self.number}.log"
        self.process = start(command, self.log_path)

    @property
    def answers(self) -> bool:
        """It takes connections."""
        assert self.process is not None and self.process.poll() is None, self.log_path.read_text()
        try:
            url = self.access.url.replace("ws", "http", 1)
            with urllib.request.urlopen(url, timeout=1) as answer:
                return bool(answer.read() == b"OK")
        except OSError:
            return False


@dataclass
class ClusterWorker:
    """One `playhead worker`."""

    name: str
    access: Access
    folder: Path
    port: int = field(default_factory=free_port)

    def start(self) -> None:
        """Start it; `registered` says when it takes rooms."""
        command = [sys.executable, "-P", "-m", "playhead.worker.cli", "worker", "--no-supervise"]
        command += ["--port", str(self.port), "--drain-s", "300", "--max-rooms", str(MAX_ROOMS)]
        self.log_path = self.folder / f"{self.name}.log"
        self.process = start(command, self.log_path, **self.access.environment())

    @property
    def log(self) -> str:
        """Return what it said."""
        return self.log_path.read_text(errors="replace")

    @property
    def registered(self) -> bool:
        """It takes rooms."""
        assert self.process.poll() is None, self.log[-3000:]
        return "registered worker" in self.log

    @property
    def num_jobs(self) -> int:
        """Rooms it ever took."""
        return self.log.count("received job request") - self.log.count("job refused")


class Cluster:
    """Redis, nodes and workers; ends everything it started."""

    def __init__(self, folder: Path) -> None:
        """Keep a folder for logs; nothing runs yet."""
        self.folder = folder
        self.nodes: list[Node] = []
        self.workers: list[ClusterWorker] = []
        self.watchers: list[subprocess.Popen[bytes]] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    async def start(self, nodes: int, workers: int) -> None:
        """Start all parts and wait until the workers take rooms."""
        redis = free_port()
        command = ["redis-server", "--port", str(redis), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        self._processes.append(start(command, self.folder / "redis.log"))
        await until(lambda: accepts(redis), "redis")  # a node that finds none ends at once
        for number in range(nodes):
            self.nodes.append(Node(number, redis, self.folder))
            self.nodes[-1].start()
        for node in self.nodes:
            await until(lambda node=node: node.answers, f"node {node.number}")
        for number in range(WATCHERS):
            env = self.nodes[number % nodes].access.environment()
            command = [sys.executable, "-P", "-m", "playhead.worker.cli", "watch"]
            self.watchers.append(start(command, self.watcher_log(number), **env))
        for _ in range(workers):
            await self.add_worker()

    def watcher_log(self, number: int) -> Path:
        """Return where a watcher writes."""
        return self.folder / f"watch{number}.log"

    @property
    def num_sent(self) -> int:
        """Rooms that a watcher sent a worker."""
        logs = [self.watcher_log(number) for number in range(WATCHERS)]
        return sum(log.read_text().count(SENT) for log in logs)

    async def add_worker(self) -> ClusterWorker:
        """Start one more worker, on the nodes in turn."""
        number = len(self.workers)
        access = self.nodes[number % len(self.nodes)].access
        worker = ClusterWorker(f"worker{number}", access, self.folder)
        self.workers.append(worker)
        worker.start()
        await until(lambda: worker.registered, worker.name)
        return worker

    def end_watchers(self) -> None:
        """End the watchers as their operator does."""
        for process in self.watchers:
            process.terminate()
            assert process.wait(20) == 0

    def stop(self) -> None:
        """End every process."""
        nodes = [node.process for node in self.nodes if node.process is not None]
        everything = [*(worker.process for worker in self.workers), *nodes]
        everything += [*self.watchers, *self._processes]
        for process in everything:
            process.kill()
            process.wait()


@contextlib.contextmanager
def cluster_folder() -> Iterator[Path]:
    """Make a folder for a cluster; raises RuntimeError without redis-server."""
    if shutil.which("redis-server") is None:
        raise RuntimeError("redis-server is not installed (Debian: apt-get install redis-server)")
    with tempfile.TemporaryDirectory(prefix="playhead-cluster-") as folder:
        yield Path(folder)


@contextlib.asynccontextmanager
async def running(nodes: int, workers: int) -> AsyncIterator[Cluster]:
    """Run a cluster meanwhile."""
    with cluster_folder() as folder:
        cluster = Cluster(folder)
        try:
            await cluster.start(nodes, workers)
            yield cluster
        finally:
            cluster.stop()


@dataclass
class Asked:
    """What came of the sentences that callers asked for."""

    busy: int = 0
    """Answers that told to ask again; the caller did, and lost nothing."""
    died: int = 0
    """Times the worker died under the sentence; the caller was told and said it to the next one."""


async def told_end(person: Person, request_id: str) -> dict[str, Any]:
    """Have the sentence said once; return its end, or the event of its worker's death."""
    worker, deaths = person.worker, len(person.of("", "error"))
    await person.say(SAID, request_id)
    await person.until(
        lambda: person.of(request_id, *ENDS) or person.of("", "error")[deaths:], limit_s=60
    )
    for end in person.of(request_id, *ENDS):
        return end
    await person.until(lambda: person.worker != worker, limit_s=60)
    return person.of("", "error")[deaths]


async def heard(person: Person, name: str, asked: Asked) -> bool:
    """Have a sentence said; what a busy engine or a dead worker did not say is asked for again."""
    deadline_s = time.monotonic() + PATIENCE_S
    for attempt in itertools.count():
        try:
            end = await told_end(person, f"{name}-{attempt}")
        except AssertionError:
            return False
        code = end.get("code")
        if code not in ("busy", "worker_lost"):
            return bool(end["type"] == "finished" and end["heard_text"] == SAID)
        if time.monotonic() > deadline_s:
            return False
        asked.busy += code == "busy"
        asked.died += code == "worker_lost"
        await asyncio.sleep(end.get("retry_s", 0))
    raise AssertionError


async def call(
    access: Access, room: str, turns: int, speaking: asyncio.Semaphore, asked: Asked
) -> bool:
    """Be one caller: hear some sentences, one after another; False if any was lost."""
    async with Person(access, room, "caller") as person:
        await person.until(lambda: person.worker, 60)
        for turn in range(turns):
            async with speaking:
                if not await heard(person, f"t{turn}", asked):
                    print(f"{room}: {person.events[-3:]}", flush=True)
                    return False
            await asyncio.sleep(0.5)
    return True


async def rolling_drain(cluster: Cluster, calls: int, turns: int) -> dict[str, float]:
    """Replace every worker while calls go on; return the calls that lost anything, and more."""
    asked = Asked()
    speaking = asyncio.Semaphore(2)
    old = list(cluster.workers)
    accesses = [node.access for node in cluster.nodes]
    busy = []
    for number in range(calls):  # one after another: a worker tells its load twice a second
        access = accesses[number % len(accesses)]
        work = call(access, f"call-{number}", turns, speaking, asked)
        busy.append(asyncio.create_task(work))
        await asyncio.sleep(1.0)
    await until(lambda: sum(worker.num_jobs for worker in old) >= calls, "every call has a worker")
    for worker in old:
        await cluster.add_worker()
        worker.process.send_signal(signal.SIGTERM)
    kept = await asyncio.gather(*busy)
    for worker in old:
        await until(lambda worker=worker: worker.process.poll() is not None, worker.log[-2000:])
        assert worker.process.returncode == 0, worker.log[-2000:]
    spread = [worker.num_jobs for worker in old]
    return {
        "drain_lost_calls": float(kept.count(False) + asked.died),
        "drain_calls": float(calls),
        "drain_calls_by_watcher": float(cluster.num_sent),
        "drain_busy_answers": float(asked.busy),
        "spread_fewest_calls": float(min(spread)),
        "spread_most_calls": float(max(spread)),
    }


async def redispatch_s(cluster: Cluster) -> float:
    """Kill a worker in the middle of a sentence; return when its room has another one."""
    before = {worker.name: worker.num_jobs for worker in cluster.workers}
    async with Person(cluster.nodes[1].access, "killed", "caller") as person:
        await person.until(lambda: person.worker, 60)
        first = person.worker
        (victim,) = [
            worker
            for worker in cluster.workers
            if worker.process.poll() is None and worker.num_jobs > before[worker.name]
        ]
        await person.say(SAID * 8, "lost")
        await person.told("lost", "started")
        victim.process.kill()
        killed_s = time.monotonic()
        await person.until(lambda: person.worker != first, 60)
        took_s = time.monotonic() - killed_s
        assert await heard(person, "again", Asked())
        return took_s


async def killed_node(cluster: Cluster) -> float:
    """Kill a node under a caller; return when it has heard a sentence through the other one."""
    node, other = cluster.nodes[0], cluster.nodes[1]
    lost = Person(node.access, "node-lost", "caller")
    await lost.room.connect(node.access.url, node.access.token("caller", "node-lost"))
    await lost.until(lambda: lost.worker, 60)
    assert node.process is not None
    node.process.kill()
    killed_s = time.monotonic()
    while True:
        back = Person(other.access, "node-lost", "caller")
        try:  # the same room: until the cluster gives it up, it is the dead node's
            await back.room.connect(other.access.url, other.access.token("caller", "node-lost"))
            await back.until(lambda back=back: back.worker, 15)
        except (rtc.ConnectError, AssertionError):
            await back.leave()
            assert time.monotonic() - killed_s < START_S, "the room never came back"
            await asyncio.sleep(1.0)
            continue
        assert await heard(back, "again", Asked())
        took_s = time.monotonic() - killed_s
        await back.leave()
        await lost.leave()
        return took_s


async def measure(nodes: int, workers: int, calls: int, turns: int) -> dict[str, float]:
    """Run the whole programme; return the figures."""
    async with running(nodes, workers) as cluster:
        found = await rolling_drain(cluster, calls, turns)
        found["redispatch_s"] = round(await redispatch_s(cluster), 2)
        found["node_lost_heard_again_s"] = round(await killed_node(cluster), 2)
        cluster.end_watchers()
    return found


def main() -> int:
    """Measure and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    found = asyncio.run(measure(2, 3, args.calls, args.turns))
    print(found, flush=True)
    if args.write:
        write_result("service", "cpu", found, "make cluster")
    return 0


if __name__ == "__main__":
    sys.exit(main())
