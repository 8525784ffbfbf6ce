"""The worker as an operator runs it: processes, faults, restarts, drain. Counts, no latencies."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from livekit import api

from playhead.worker.demo.server import Access, LocalServer, free_port
from tests.worker.people import Person

pytestmark = [pytest.mark.livekit, pytest.mark.slow]

START_S = 90.0
SAID = "The worker speaks again."


class Worker:
    """`playhead worker` with its log in a file."""

    def __init__(self, access: Access, folder: Path, *flags: str) -> None:
        self.access = access
        self.log_path = folder / "worker.log"
        self.port = free_port()
        command = [sys.executable, "-m", "playhead.worker.cli", "worker", *flags]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)],
                env={**os.environ, **access.environment()},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    async def until(self, condition: Callable[[], Any], limit_s: float = START_S) -> None:
        deadline_s = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline_s, self.log[-4000:]
            await asyncio.sleep(0.1)

    async def registered(self, times: int = 1) -> None:
        await self.until(lambda: self.log.count("registered worker") >= times)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, *words: str) -> psutil.Process:
        found = [c for c in self.children() if set(words) <= set(c.cmdline())]
        assert len(found) == 1, (words, [c.cmdline() for c in found])
        return found[0]

    def stop(self) -> None:
        """End it at once: a drain would wait until the server closes the rooms everybody left."""
        family = self.children() if self.process.poll() is None else []
        self.process.kill()  # first of all: it would start a child anew
        self.process.wait()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, 5)


@asynccontextmanager
async def worker(access: Access, folder: Path, *flags: str) -> AsyncIterator[Worker]:
    running = Worker(access, folder, *flags)
    try:
        await running.registered()
        yield running
    finally:
        running.stop()


async def speaks(access: Access, room_name: str) -> dict[str, Any]:
    async with Person(access, room_name, "ann") as ann:
        await ann.until(lambda: ann.worker, 30)
        await ann.say(SAID, "r1")
        return await ann.end_of("r1", limit_s=30)


def ready(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


async def test_worker_speaks_again_when_it_was_killed_mid_sentence(
    livekit_server: Access, room_name: str, tmp_path: Path
) -> None:
    async with worker(livekit_server, tmp_path) as running:
        first = running.child("worker", "--no-supervise")
        end = await speaks(livekit_server, room_name)
        assert end["heard_text"] == SAID
        status, body = ready(running.port)
        assert status == 200 and body["engine_ready"] and body["registered"]
        await running.until(lambda: "playhead_engine_done 1\n" in metrics(running.port))
        assert "playhead_room_finished 1\n" in metrics(running.port)
        assert f"playhead_room_underruns {end['gaps']}\n" in metrics(running.port)
        async with Person(livekit_server, f"{room_name}-cut", "ann") as ann:
            await ann.until(lambda: ann.worker, 30)
            await ann.say(f"{SAID} " * 6, "r1")
            await ann.until(lambda: ann.loud_s > 0.5)
            first.kill()
        await running.registered(times=2)
        assert running.child("worker", "--no-supervise").pid != first.pid
        end = await speaks(livekit_server, room_name + "-again")
        running.process.terminate()
        await running.until(lambda: running.process.poll() is not None)
    assert end["heard_text"] == SAID and running.process.returncode == 0
    assert running.log.count("child started") == 4, "a worker and its engine, twice"
    assert SAID not in running.log and livekit_server.secret not in running.log
    assert not re.search(r"event loop blocked for \d", running.log)


async def test_worker_serves_again_when_the_server_restarted(
    room_name: str, tmp_path: Path
) -> None:
    with LocalServer() as server:
        async with worker(server.access, tmp_path) as running:
            pid = running.child("worker", "--no-supervise").pid
            assert (await speaks(server.access, room_name))["type"] == "finished"
            server.stop()
            await running.until(lambda: "failed to connect" in running.log)
            server.start()
            await running.registered(times=2)
            end = await speaks(server.access, room_name + "-again")
            assert end["heard_text"] == SAID
            assert running.child("worker", "--no-supervise").pid == pid


@pytest.mark.parametrize("carrier", ["socket", "process"])
async def test_rooms_outlive_their_engine_when_it_is_a_process(
    livekit_server: Access, room_name: str, tmp_path: Path, carrier: str
) -> None:
    async with (
        worker(livekit_server, tmp_path, "--carrier", carrier) as running,
        Person(livekit_server, room_name, "ann") as ann,
    ):
        await ann.until(lambda: ann.worker, 30)
        await ann.say(f"{SAID} " * 6, "r1")
        await ann.told("r1", "started")
        engine = running.child("engine")
        engine.kill()
        lost = await ann.end_of("r1")
        await running.until(lambda: running.log.count("engine ready at") == 2)
        for attempt in range(40):
            await ann.say(SAID, f"again{attempt}")
            end = await ann.end_of(f"again{attempt}")
            if end["type"] == "finished":
                break
            await asyncio.sleep(0.25)
    assert lost["type"] == "error" and lost["code"] == "transport"
    assert end["heard_text"] == SAID


async def test_worker_comes_only_when_asked_if_it_has_a_name(
    livekit_server: Access, room_name: str, tmp_path: Path
) -> None:
    async with (
        worker(livekit_server, tmp_path, "--agent-name", "voice") as running,
        Person(livekit_server, room_name, "ann") as ann,
        Person(livekit_server, room_name, "cid") as cid,
    ):
        await asyncio.sleep(2)
        assert ann.worker is None and "received job request" not in running.log
        metadata = json.dumps({"linked_participant": "bob", "allow": ["cid"]})
        await dispatch(livekit_server, room_name, "voice", metadata)
        await ann.until(lambda: ann.worker, 30)
        await ann.say(SAID, "r1")
        await ann.until(lambda: ann.of("r1"))
        assert ann.of("r1")[0]["type"] == "unauthorized", "bob is linked, not ann"
        await cid.say(SAID, "r2")
        assert (await cid.end_of("r2"))["heard_text"] == SAID


async def dispatch(access: Access, room_name: str, agent_name: str, metadata: str) -> None:
    lk = api.LiveKitAPI(access.url.replace("ws", "http", 1), access.key, access.secret)
    request = api.CreateAgentDispatchRequest(
        agent_name=agent_name, room=room_name, metadata=metadata
    )
    await lk.agent_dispatch.create_dispatch(request)
    await lk.aclose()
