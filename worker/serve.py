"""`playhead serve`: the HTTP and WebSocket service, its engine in a process of its own.

Ends after SIGTERM: new work is refused, live requests finish, exit 0. Ends with 1 when the engine
is gone for good.
"""

import argparse
import asyncio
import contextlib
import logging
import resource
import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Literal

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from playhead.engine.errors import ConfigError, PlayheadError
from playhead.engine.profile import load_profile
from playhead.worker import logs
from playhead.worker.carrier import Carrier
from playhead.worker.client import EngineClient
from playhead.worker.engine_process import LOAD_S, EngineProcess, add_record
from playhead.worker.fleet import FleetCarrier
from playhead.worker.http.options import LOOPBACK, HttpOptions
from playhead.worker.http.routes import build_app
from playhead.worker.http.service import Service
from playhead.worker.http.voices import read_aliases
from playhead.worker.interpreter import hand_over_at_once, settle
from playhead.worker.socket_carrier import SocketCarrier
from playhead.worker.thread_carrier import ThreadCarrier, engine_maker
from playhead.worker.watchdog import leave_within

logger = logging.getLogger(__name__)

MAX_FILES = 65_536
LOOK_S = 0.2
KEEP_ALIVE = 2.5
"""A connection that asks nothing may stay so many --idle-s: 75 s, more than a proxy's minute."""
SHUTDOWN_S = 2.0
"""For what is still open after the drain."""
DESCRIPTION = (
    "Serve POST /v1/audio/speech as OpenAI's, and a WebSocket for text as it is written. "
    "Listens on this machine alone unless --host says otherwise."
)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Everything `playhead serve` is told."""

    http: HttpOptions
    profile: str = "cpu"
    carrier: Literal["process", "threads"] = "process"
    engines: int = 1
    """Engine processes behind this one."""
    gpus: int = 0
    """Above 0: an engine for each, which sees no other."""
    drain_s: float = 30.0
    tls: ssl.SSLContext | None = None
    trace: Path | None = None
    """Folder in which engines record what they are told and decide."""


def add_arguments(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Add the arguments of the command; defaults from the environment, never shown if secret."""
    parser.description = DESCRIPTION
    model = env.get("PLAYHEAD_MODEL") or None
    parser.add_argument(
        "--model",
        default=model,
        help="checkpoint folder or hub name; default is the embedded English voice "
        "[PLAYHEAD_MODEL]",
    )
    parser.add_argument(
        "--profile",
        default=env.get("PLAYHEAD_PROFILE") or "cpu",
        help="default cpu [PLAYHEAD_PROFILE]",
    )
    parser.add_argument(
        "--carrier",
        choices=("process", "threads"),
        default="process",
        help="process: the engine is a process of its own (default); threads: one process for all",
    )
    parser.add_argument(
        "--engines", type=int, default=1, metavar="N", help="engine processes; default 1"
    )
    parser.add_argument(
        "--gpus", choices=("all",), help="all: an engine process for each GPU of this machine"
    )
    parser.add_argument("--drain-s", type=float, default=30.0, help="wait so long at the end")
    logs.add_arguments(parser, env)
    parser.add_argument(
        "--traces",
        default=env.get("PLAYHEAD_TRACES") or None,
        metavar="URL",
        help="OpenTelemetry collector (OTLP over HTTP) that gets a span for each utterance "
        "[PLAYHEAD_TRACES]",
    )
    add_record(parser)
    _add_edges(parser)
    _add_security(parser)
    given = map(str.strip, env.get("PLAYHEAD_API_KEYS", "").split(","))  # a file's end comes along
    keys = tuple(key for key in given if key)
    parser.set_defaults(api_keys=keys)


def _add_edges(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1")
    parser.add_argument("--port", type=int, default=8880, help="default 8880; 0 takes a free one")
    parser.add_argument(
        "--port-file", type=Path, metavar="FILE", help="write the port taken into this file"
    )
    parser.add_argument(
        "--voice-alias",
        action="append",
        default=[],
        metavar="NAME=VOICE",
        help="another name of a voice; may be repeated. OpenAI's names work without",
    )
    parser.add_argument("--max-chars", type=int, default=20_000, help="a request's; default 20000")
    parser.add_argument(
        "--idle-s",
        type=float,
        default=30.0,
        help="a WebSocket without text, or a body that stops, ends; default 30",
    )
    parser.add_argument(
        "--stall-s", type=float, default=30.0, help="a client that takes nothing ends; default 30"
    )


def _add_security(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("security")
    group.add_argument(
        "--keys",
        type=Path,
        metavar="FILE",
        help="lines of: NAME KEY [max_streams=N] [chars_per_minute=N]; read again when changed. "
        "Keys without limits may also stand in the environment, by commas [PLAYHEAD_API_KEYS]",
    )
    group.add_argument(
        "--allow-anonymous", action="store_true", help="serve other machines without any key"
    )
    group.add_argument(
        "--cors-origin", action="append", default=[], metavar="ORIGIN", help="page that may ask"
    )
    group.add_argument("--tls-cert", type=Path, metavar="FILE", help="serve HTTPS with this chain")
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="and this private key")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code. Raises ConfigError and other PlayheadErrors."""
    options = options_of(args)
    allow_files()
    return asyncio.run(_run(options, args.port_file))


def allow_files() -> None:
    """Let this process have a socket for each stream: many systems stop it at 1,024 open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):  # a system that allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _run(options: ServeOptions, port_file: Path | None) -> int:
    return await Server(options, port_file).run()


def options_of(args: argparse.Namespace) -> ServeOptions:
    """Return the checked options; raises ConfigError."""
    http = HttpOptions(
        host=args.host,
        port=args.port,
        model=args.model,
        keys_file=args.keys,
        keys=args.api_keys,
        voice_aliases=read_aliases(args.voice_alias),
        cors_origins=tuple(args.cors_origin),
        max_chars=args.max_chars,
        idle_s=args.idle_s,
        stall_s=args.stall_s,
        traces=args.traces,
    )
    keyed = bool(http.keys) or http.keys_file is not None
    if args.host not in LOOPBACK and not keyed and not args.allow_anonymous:
        raise ConfigError(
            f"--host {args.host} lets other machines in and there is no key; give --keys FILE, "
            "or --allow-anonymous behind a proxy that asks for one"
        )
    if not args.drain_s >= 0:  # nan is not
        raise ConfigError(f"--drain-s {args.drain_s:g}; allowed is 0 or more")
    if not 0 <= args.port < 1 << 16:
        raise ConfigError(f"--port {args.port}; allowed are 0 (a free one) to 65535")
    gpus = num_gpus() if args.gpus else 0
    engines = gpus or args.engines
    if engines < 1 or (engines > 1 and args.carrier == "threads"):
        raise ConfigError("--engines is 1 or more; more than one needs --carrier process")
    tls = _tls(args.tls_cert, args.tls_key)
    return ServeOptions(
        http, args.profile, args.carrier, engines, gpus, args.drain_s, tls, args.record
    )


def num_gpus() -> int:
    """Count the GPUs in a process that ends: this one keeps no driver. Raises ConfigError."""
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    found = int(done.stdout) if done.returncode == 0 else 0
    if not found:
        raise ConfigError("--gpus all: torch finds no GPU here; see playhead doctor")
    return found


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None:
        raise ConfigError("--tls-key needs --tls-cert")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"TLS files: {type(error).__name__}, {error}") from None
    return context


class _BrokenRequests(logging.Filter):
    """Keeps out requests that are no HTTP: aiohttp would log their bytes, keys among them."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


class Server:
    """The running command: engine, service and listening socket."""

    def __init__(self, options: ServeOptions, port_file: Path | None = None) -> None:
        """Make the parts, on the loop that will run them. Raises ConfigError."""
        profile = load_profile(options.profile)
        self._options = options
        self._port_file = port_file
        self._engines: list[EngineProcess] = []
        self._engine_begun = False
        self._started = False
        self._client = EngineClient(self._carrier())
        self.service = Service(self._client, options.http, profile)
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Serve to the end; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:
                loop.add_signal_handler(number, self._stop.set)  # nohup ignores SIGHUP
        edge_logger = logging.getLogger(f"{__name__}.edge")
        edge_logger.addFilter(_BrokenRequests())
        runner = web.AppRunner(
            build_app(self.service),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=SHUTDOWN_S,
            keepalive_timeout=KEEP_ALIVE * self._options.http.idle_s,
            logger=edge_logger,
        )
        await runner.setup()
        try:
            await self._listen(runner)
            return await self._serve()
        finally:
            await runner.cleanup()
            await loop.run_in_executor(None, self._end_engine)
            await loop.run_in_executor(None, self.service.traces.close)

    async def _serve(self) -> int:
        for engine in self._engines:
            engine.start()
        self._engine_begun = True
        starting: Future[None] = Future()
        Thread(target=self._start_client, args=(starting,), daemon=True).start()
        stopped = asyncio.create_task(self._stop.wait())
        while not (starting.done() or stopped.done() or self._engine_gone()):
            await asyncio.wait([stopped], timeout=LOOK_S)
        if starting.done():
            starting.result()
            self._started = True
            settle()
            hand_over_at_once()
            return await self._serve_ready(stopped)
        return 0 if stopped.done() else self._exit_code()

    def _start_client(self, starting: "Future[None]") -> None:
        """Wait for the engine on a thread that may be left behind: loading can't be cut short."""
        try:
            self._client.start()
        except Exception as error:
            starting.set_exception(error)
        else:
            starting.set_result(None)

    async def _serve_ready(self, stopped: "asyncio.Task[bool]") -> int:
        warm = asyncio.create_task(self.service.keep_warm())
        while not (stopped.done() or warm.done() or self._engine_gone()):
            await asyncio.wait([stopped], timeout=LOOK_S)
        if warm.done():
            warm.result()  # it never ends by itself: pass its error on
        warm.cancel()
        if not stopped.done():
            return self._exit_code()
        self.service.draining = True
        end_s = asyncio.get_running_loop().time() + self._options.drain_s
        logger.info("draining, %d live", self.service.counters.live_utterances)
        while self.service.counters.live_utterances:
            if asyncio.get_running_loop().time() > end_s:
                break
            await asyncio.sleep(LOOK_S)
        return 0

    async def _listen(self, runner: web.AppRunner) -> None:
        http = self._options.http
        site = web.TCPSite(runner, http.host, http.port, ssl_context=self._options.tls)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(f"can't listen on {http.host}:{http.port}: {error}") from None
        port = runner.addresses[0][1]
        logger.info("listening on %s port %d", http.host, port)
        if self._port_file is not None:
            try:
                self._port_file.write_text(f"{port}\n")
            except OSError as error:
                raise ConfigError(f"--port-file {self._port_file}: {error.strerror}") from None

    def _carrier(self) -> Carrier:
        options, model = self._options, self._options.http.model
        if options.carrier == "threads":
            return ThreadCarrier(engine_maker(model, options.profile, options.trace))
        for index in range(options.engines):
            gpu = index if options.gpus else None
            self._engines.append(EngineProcess(model, options.profile, gpu, options.trace))
        home = asyncio.get_running_loop()
        carriers = [SocketCarrier(each.path, LOAD_S, home) for each in self._engines]
        return carriers[0] if len(carriers) == 1 else FleetCarrier(carriers)

    def _engine_gone(self) -> bool:
        """Say whether the engine will not come back while this process lives."""
        if self._engines:  # of several, those that are left go on
            return all(each.exit_code is not None for each in self._engines)
        return self._started and not self._client.status().ready

    def _exit_code(self) -> int:
        logger.error("the engine is gone for good: the service ends")
        leave_within()
        return max([each.exit_code or 1 for each in self._engines], default=1)

    def _end_engine(self) -> None:
        self._client.close()
        if self._engine_begun:
            for engine in self._engines:
                engine.stop()


def main() -> int:
    """Run as a module, without the other commands; return the exit code."""
    import os
    import sys

    parser = argparse.ArgumentParser(prog="playhead serve")
    add_arguments(parser, os.environ)
    args = parser.parse_args()
    logs.set_up(args.log_level, args.log_format)
    try:
        return run(args)
    except ConfigError as error:
        print(f"playhead: {error}", file=sys.stderr)
        return 2
    except PlayheadError as error:
        print(f"playhead: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
