"""The speaking side of `playhead bench rooms` as a process of its own.

    engine    an engine behind a socket
    rooms     room sessions, a thread and a loop each, over an engine here or behind a socket
    callers   the same load as from rooms, without any room

Told what to do in one JSON argument, then by lines on stdin; ends when stdin ends. Says `ready`
once it may be told, and prints the engine's metrics every second.
"""

import asyncio
import itertools
import json
import logging
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from playhead.engine.clock import PlaybackClock
from playhead.engine.errors import EngineFailure
from playhead.engine.messages import Pcm, Result, Submit
from playhead.engine.receiver import ReceiverEstimate
from playhead.engine.units import SAMPLE_BYTES
from playhead.worker import sdk_routing
from playhead.worker.client import EngineClient, Utterance
from playhead.worker.demo.server import end_with_parent
from playhead.worker.engine_server import EngineServer
from playhead.worker.interpreter import hand_over_at_once, settle
from playhead.worker.permissions import RoomPolicy
from playhead.worker.session import RoomSession
from playhead.worker.socket_carrier import SocketCarrier
from playhead.worker.thread_carrier import MakeEngine, ThreadCarrier, engine_maker
from playhead.worker.track import PumpKind

if TYPE_CHECKING:
    from playhead.engine.engine import Engine

TELL_S = 1.0
REPORT_S = 0.08
CONNECT_S = 60.0
READY_S = 120.0


@dataclass(frozen=True, slots=True)
class HostSetup:
    """What a host is told at its start."""

    mode: str
    url: str = ""
    socket: str | None = None
    """The engine's socket: served here (engine) or dialled (rooms); None: an engine in here."""
    times: str | None = None
    """Step times to replay; None: the embedded voice, computed here."""
    speech: str = ""
    """File of the samples that a replaying engine says, one array a text."""
    pump: PumpKind = "queued"
    callers: int = 0
    texts: tuple[str, ...] = ()


class HostProcess:
    """A room_host while the context lasts."""

    def __init__(self, setup: dict[str, object]) -> None:
        """Start it; `wait` returns once it may be told something."""
        command = [sys.executable, "-P", "-m", "playhead.worker.bench.room_host", json.dumps(setup)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=end_with_parent,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.metrics: dict[str, float] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self) -> None:
        """Raises EngineFailure if it ends before it is ready."""
        try:
            line = self._lines.get(timeout=READY_S)
        except queue.Empty:
            line = ""
        if line != "ready":
            raise EngineFailure("a process of the bench did not become ready; its log is above")

    def tell(self, line: str) -> None:
        """Hand it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End it, kindly at first."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.metrics = json.loads(line)
            else:
                self._lines.put(line.strip())
        self._lines.put("")


def make_engine(setup: HostSetup) -> MakeEngine:
    """Return the recipe of the engine: the embedded voice, or its stored speech at given times."""
    if setup.times is None:
        return engine_maker(None, "cpu")

    def make(on_results: Callable[[list[Result]], None]) -> "Engine":
        from playhead.engine.engine import Engine  # torch: only where an engine is built
        from playhead.engine.library import EMBEDDED_VOICE
        from playhead.engine.profile import load_profile
        from playhead.engine.replay_runner import Speech, replaying
        from playhead.engine.replay_times import load_times

        assert setup.times is not None
        with np.load(setup.speech) as stored:
            speeches = [Speech(samples=stored[name]) for name in sorted(stored.files)]
        runner = replaying(
            load_times(setup.times), time.monotonic, _sleep_until,
            lambda seed: speeches[seed % len(speeches)],
        )  # fmt: skip
        profile = replace(load_profile("balanced"), max_streams=64, max_rows=64)
        return Engine(EMBEDDED_VOICE, profile, on_results, make_runner=runner)

    return make


def _sleep_until(at_s: float) -> None:
    time.sleep(max(at_s - time.monotonic(), 0.0))


class Rooms:
    """Sessions of one process, each on a thread with a loop of its own."""

    def __init__(self, setup: HostSetup, client: EngineClient) -> None:
        """Share one client between all."""
        self._setup, self._client = setup, client
        self._ends: list[Callable[[], object]] = []
        self._threads: list[threading.Thread] = []

    def join(self, token: str) -> None:
        """Enter a room; returns at once."""
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(token)))
        thread.start()
        self._threads.append(thread)

    def leave(self) -> None:
        """Leave all rooms."""
        for end in self._ends:
            end()
        for thread in self._threads:
            thread.join(10.0)

    async def _serve(self, token: str) -> None:
        from livekit import rtc

        loop, over = asyncio.get_running_loop(), asyncio.Event()
        self._ends.append(lambda: loop.call_soon_threadsafe(over.set))
        room = rtc.Room()
        session = RoomSession(room, self._client, RoomPolicy(), pump=self._setup.pump)
        await room.connect(self._setup.url, token, rtc.RoomOptions(auto_subscribe=False))
        serving = asyncio.create_task(session.run())
        await over.wait()
        serving.cancel()
        await asyncio.wait([serving])
        await room.disconnect()


async def _report(utterance: Utterance, clock: PlaybackClock) -> None:
    while True:
        utterance.report(clock.snapshot(time.monotonic()))
        await asyncio.sleep(REPORT_S)


async def _call(client: EngineClient, number: int, texts: Sequence[str]) -> None:
    """Speak text after text, as a listener with an exact clock and no room takes it."""
    chance = random.Random(number)
    for turn in itertools.count():
        which = (number + turn) % len(texts)
        submit = Submit(f"c{number}-{turn}", text=texts[which], closed=True, seed=which)
        utterance = await client.submit(submit)
        clock = PlaybackClock(utterance.request_id, ReceiverEstimate())
        clock.start()
        reporting = asyncio.create_task(_report(utterance, clock))
        async for result in utterance:
            if isinstance(result, Pcm):
                now_s = time.monotonic()
                clock.push(len(result.pcm) // SAMPLE_BYTES, clock.dry_at_s(now_s), now_s)
        reporting.cancel()
        now_s = time.monotonic()
        await asyncio.sleep(clock.dry_at_s(now_s) - now_s + chance.uniform(0.3, 0.8))


async def _callers(client: EngineClient, setup: HostSetup) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(setup.callers):
            group.create_task(_call(client, number, setup.texts))
            await asyncio.sleep(0.3)


def _tell(client: EngineClient, over: threading.Event) -> None:
    while not over.wait(TELL_S):
        print(json.dumps(client.status().metrics), flush=True)


def _serve_engine(setup: HostSetup) -> None:
    assert setup.socket is not None
    server = EngineServer(ThreadCarrier(make_engine(setup)), Path(setup.socket))

    async def serve() -> None:
        loop = asyncio.get_running_loop()

        def wait() -> None:
            sys.stdin.read()
            loop.call_soon_threadsafe(server.stop)

        threading.Thread(target=wait, daemon=True).start()
        await server.serve(ready)

    def ready() -> None:
        settle()
        hand_over_at_once()
        print("ready", flush=True)

    asyncio.run(serve())


def main() -> None:
    """Be what the first argument says until stdin ends."""
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us ends us
    setup = HostSetup(**json.loads(sys.argv[1]))
    if setup.mode == "engine":
        _serve_engine(setup)
        return
    sdk_routing.touch()
    sdk_routing.install()
    here = setup.socket is None
    client = EngineClient(
        ThreadCarrier(make_engine(setup))
        if here
        else SocketCarrier(Path(str(setup.socket)), CONNECT_S)
    )
    client.start()
    settle()  # as a worker and its job processes do
    over = threading.Event()
    telling = threading.Thread(target=_tell, args=(client, over), daemon=True)
    rooms = Rooms(setup, client)
    print("ready", flush=True)
    telling.start()
    if setup.mode == "callers":
        threading.Thread(target=lambda: asyncio.run(_callers(client, setup)), daemon=True).start()
    for line in sys.stdin:
        rooms.join(line.strip())
    over.set()
    rooms.leave()
    client.close()


if __name__ == "__main__":
    main()
