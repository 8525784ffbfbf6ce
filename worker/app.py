"""The worker process: an AgentServer whose jobs speak in rooms, over one engine.

    socket:  jobs are threads of this process, the engine is a process behind a private Unix socket
    thread:  jobs are threads of this process, and so is the engine
    process: jobs are processes, each with a connection of its own to the engine's process

Everything here runs on the main thread's loop, but for `load`, which the framework calls on a
thread of its own.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from livekit.agents import (
    AgentServer,
    AutoSubscribe,
    JobContext,
    JobExecutorType,
    JobProcess,
    JobRequest,
)

from playhead.engine.errors import ConfigError
from playhead.engine.profile import load_profile
from playhead.worker import logs, sdk_routing
from playhead.worker.client import EngineClient
from playhead.worker.counters import RoomCounters
from playhead.worker.engine_process import LOAD_S, EngineProcess
from playhead.worker.health import Health, HealthServer
from playhead.worker.http.prometheus import (
    config_exposition,
    engine_exposition,
    worker_exposition,
)
from playhead.worker.interpreter import search_garbage, settle
from playhead.worker.permissions import read_policy
from playhead.worker.session import RoomSession
from playhead.worker.socket_carrier import SocketCarrier
from playhead.worker.text_intake import TextLimits
from playhead.worker.thread_carrier import ThreadCarrier, engine_maker
from playhead.worker.track import PumpKind
from playhead.worker.watchdog import leave_within

logger = logging.getLogger(__name__)

LOAD_LIMIT = 0.85
"""At this load the worker takes no more rooms; the engine's admission has the same limit."""
MAX_RETRIES = 100_000
"""Connection attempts to the server: a worker outlives a restart of its server."""
PREWARM_S = 60.0
"""A job process imports and connects within this; the framework's 10 s loops on busy hosts."""
WATCH_S = 0.5
CLOSE_S = 30.0
"""After the drain everything closes within this, or the process ends itself."""


@dataclass(frozen=True, slots=True)
class RoomOptions:
    """What every room of the worker shares; travels to job processes."""

    limits: TextLimits = field(default_factory=TextLimits)
    allow: tuple[str, ...] = ()
    """Identities that may speak and interrupt in every room."""
    clock_events: bool = False
    keep_pcm: Path | None = None
    """Folder for what the engine made of each request; for tests."""
    routing: bool = True
    """Route SDK completions directly (sdk_routing)."""
    pump: PumpKind = "queued"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Everything `playhead worker` can be told."""

    url: str
    api_key: str = field(repr=False)
    api_secret: str = field(repr=False)
    model: str | None = None
    profile: str = "cpu"
    carrier: Literal["socket", "thread", "process"] = "socket"
    agent_name: str = ""
    """Empty: every new room; else only rooms that ask for it by name."""
    max_rooms: int = 40
    """Rooms at a time; one Python process holds 40 with routing."""
    drain_s: int = 600
    host: str = "127.0.0.1"
    port: int = 8081
    """Of the health server; 0 switches it off."""
    rooms: RoomOptions = field(default_factory=RoomOptions)
    trace: Path | None = None
    """Folder in which the engine records what it is told and decides."""


class WorkerApp:
    """One worker, from loading the engine to the last room's end."""

    def __init__(self, options: WorkerOptions) -> None:
        """Choose the parts; nothing runs yet."""
        self._options = options
        self._profile = load_profile(options.profile)
        self._engine_process: EngineProcess | None = None
        if options.carrier != "thread":
            self._engine_process = EngineProcess(
                options.model, options.profile, trace=options.trace
            )
            carrier = SocketCarrier(self._engine_process.path, connect_s=LOAD_S)
            self.client = EngineClient(carrier)
        else:
            maker = engine_maker(options.model, options.profile, options.trace)
            self.client = EngineClient(ThreadCarrier(maker))
        self.counters = RoomCounters()
        self._server = self._make_server()
        self._registered = False
        self._promised = 0
        """Rooms said yes to whose jobs have not begun."""
        self._stop: asyncio.Event | None = None

    def run(self) -> int:
        """Run to the end; return the exit code."""
        sdk_routing.touch()
        if self._options.rooms.routing:
            sdk_routing.install()
        if self._engine_process is not None:
            self._engine_process.start()
        try:
            if self._engine_process is not None:
                self._engine_process.wait()
            self.client.start()
            status = self.client.status()
            logger.info("engine ready, voices: %s", ", ".join(status.voices))
            return asyncio.run(self._main())
        finally:
            self.client.close()
            if self._engine_process is not None:
                self._engine_process.stop()

    def load(self, server: AgentServer) -> float:
        """Return the load the server schedules by; any thread. Silent rooms count as well."""
        status = self.client.status()
        if not status.ready:
            return 1.0
        num_rooms = len(server.active_jobs)
        rooms_load = LOAD_LIMIT * num_rooms / self._options.max_rooms
        return max(status.load, min(rooms_load, 1.0))

    def _make_server(self) -> AgentServer:
        options = self._options
        threads = options.carrier != "process"
        server = AgentServer(
            job_executor_type=JobExecutorType.THREAD if threads else JobExecutorType.PROCESS,
            load_threshold=LOAD_LIMIT,
            load_fnc=self.load,
            drain_timeout=options.drain_s,
            num_idle_processes=4 if threads else 2,
            initialize_process_timeout=PREWARM_S,
            max_retry=MAX_RETRIES,
            ws_url=options.url,
            api_key=options.api_key,
            api_secret=options.api_secret,
            host="127.0.0.1",
            port=0,
            setup_fnc=self._lend_client if threads else self._dialling(),
        )
        server.rtc_session(
            partial(_enter_room, options.rooms),
            agent_name=options.agent_name,
            on_request=self._on_request,
        )
        server.on("worker_registered", lambda *_: self._note_registered())
        return server

    def _dialling(self) -> Callable[[JobProcess], None]:
        """Return what prepares a job process; it travels there, so the worker stays out of it."""
        assert self._engine_process is not None
        return partial(_dial_engine, self._engine_process.path, self._options.rooms)

    def _lend_client(self, process: JobProcess) -> None:
        process.userdata["client"] = self.client
        process.userdata["counters"] = self.counters

    def _note_registered(self) -> None:
        if not self._registered and self._options.carrier != "process":
            settle()  # all is loaded and no room was given yet; job processes do it themselves
        self._registered = True

    async def _on_request(self, request: JobRequest) -> None:
        """Take a room while there is place, counting those that were promised at the same time."""
        if not self.client.status().ready:
            logger.warning("job refused: the engine is not ready", extra={"job_id": request.id})
            await request.reject(terminate=False)
            return
        if len(self._server.active_jobs) + self._promised >= self._options.max_rooms:
            logger.warning("job refused: no room is left", extra={"job_id": request.id})
            await request.reject(terminate=False)
            return
        self._promised += 1
        try:
            await request.accept(name="playhead")
        finally:
            self._promised -= 1

    def _health(self) -> Health:
        server = self._server
        return Health(
            engine_ready=self.client.status().ready,
            registered=self._registered,
            draining=server.draining,
            rooms=len(server.active_jobs) if self._registered else 0,
            load=round(self.load(server), 3) if self._registered else 1.0,
        )

    def _metrics(self) -> str:
        status, health = self.client.status(), self._health()
        worker = {"ready": health.ready, "load": health.load, "rooms": health.rooms}
        page = engine_exposition(status.metrics, status.load if status.ready else 1.0)
        page += worker_exposition(self.counters.snapshot(), worker)
        return page + config_exposition(self._profile)

    async def _main(self) -> int:
        self._stop = asyncio.Event()
        self._handle_signals()
        options = self._options
        health = HealthServer(self._health, self._metrics, options.host, options.port)
        if options.port:
            try:
                await health.start()
            except OSError as error:
                where = f"{options.host}:{options.port}"
                raise ConfigError(f"can't listen on {where}: {error.strerror}") from error
        running = asyncio.create_task(self._server.run())
        stopping = asyncio.create_task(self._stop.wait())
        watching = asyncio.create_task(self._engine_lost())
        tidying = asyncio.create_task(_tidy(self.client))
        await asyncio.wait({running, stopping, watching}, return_when=asyncio.FIRST_COMPLETED)
        failed = not stopping.done()
        if failed:
            leave_within(CLOSE_S)
        else:
            await self._drain()
        for task in (stopping, watching, tidying):
            task.cancel()
        await _within(CLOSE_S, self._server.aclose())
        if running.done() and not running.cancelled() and (failure := running.exception()):
            logger.error("worker failed: %s", failure)
        await health.stop()
        return 1 if failed else 0

    async def _drain(self) -> None:
        logger.info("draining: no new rooms, live ones end by themselves")
        try:
            await self._server.drain()
        except TimeoutError:
            logger.warning("drain took more than %d s, closing", self._options.drain_s)

    async def _engine_lost(self) -> None:
        """Return once the engine will not come back by itself."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self._engine_process is not None:
                if self._engine_process.exit_code is not None:
                    break
            elif not self.client.status().ready:
                break
        logger.error("the engine is gone: the worker ends, its supervisor starts a new one")

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        assert self._stop is not None
        if self._stop.is_set():
            logger.warning("second signal: ending at once")
            os._exit(1)
        self._stop.set()


def _dial_engine(path: Path, rooms: RoomOptions, process: JobProcess) -> None:
    """Prepare a job process: its own SDK client and its own connection to the engine."""
    logs.quote_nothing()
    sdk_routing.touch()
    if rooms.routing:
        sdk_routing.install()
    client = EngineClient(SocketCarrier(path))
    client.start()
    process.userdata["client"] = client
    process.userdata["counters"] = RoomCounters()
    settle()


async def _enter_room(options: RoomOptions, context: JobContext) -> None:
    """Serve one room: a job's entry. Returns at once; the session ends with the job."""
    shared = context.proc.userdata
    policy = read_policy(context.job.metadata, context.job.room.metadata, allow=options.allow)
    session = RoomSession(
        context.room,
        shared["client"],
        policy,
        options.limits,
        counters=shared["counters"],
        clock_events=options.clock_events,
        keep_pcm=options.keep_pcm,
        pump=options.pump,
    )
    await context.connect(auto_subscribe=AutoSubscribe.SUBSCRIBE_NONE)
    serving = asyncio.create_task(session.run())
    tasks = [serving]
    if context.proc.executor_type is JobExecutorType.PROCESS:  # else the worker itself does it
        tasks.append(asyncio.create_task(_tidy(shared["client"])))

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("session failed", exc_info=error, extra={"room": context.room.name})
        context.shutdown("the room ended")

    serving.add_done_callback(ended)

    async def end() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    context.add_shutdown_callback(end)


async def _tidy(client: EngineClient) -> None:
    """Search for garbage while this process speaks to nobody; until cancelled."""
    while True:
        await asyncio.sleep(WATCH_S)
        if not client.num_live:
            search_garbage()


async def _within(limit_s: float, work: Awaitable[None]) -> None:
    try:
        await asyncio.wait_for(work, limit_s)
    except TimeoutError:
        logger.error("closing took more than %g s: ending the process", limit_s)
        os._exit(1)


def run_worker(options: WorkerOptions) -> int:
    """Run a worker in this process until it ends; return the exit code."""
    return WorkerApp(options).run()
