"""GET /v1/audio/speech/ws: many utterances over one connection, by messages that can be read.

The reader never waits for the writer, so a cancel is read at any moment: while audio flows, after
the end of the text, and while the client takes nothing.
"""

import asyncio
import contextlib
import time
import uuid
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from playhead.engine.errors import PlayheadError
from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.http.edge import ACCOUNT
from playhead.worker.http.fields import read_controls
from playhead.worker.http.keys import Account
from playhead.worker.http.messages import (
    MAX_MESSAGE_TEXT_CHARS,
    PROTOCOL,
    START,
    about,
    check_message,
)
from playhead.worker.http.outlet import Outlet
from playhead.worker.http.problem import Problem, problem_of
from playhead.worker.http.schema import parse_object
from playhead.worker.http.service import Service
from playhead.worker.http.speech_route import tighten
from playhead.worker.http.spoken import Spoken

MAX_MESSAGE_BYTES = 12 * MAX_MESSAGE_TEXT_CHARS + 4_096
HEARTBEAT_S = 20.0
LOOK_S = 0.5
"""How often idle limits are looked at."""
NEVER_WAITS_BYTES = 1 << 62
"""A write never waits for the client: the outlet does, where it can be told from others."""
CLOSE_S = 2.0
MAX_PROBLEMS = 100
"""A connection with more refused messages than this is closed."""


class WebSocketRoute:
    """Opens a session for each connection."""

    def __init__(self, service: Service) -> None:
        """Share the service."""
        self._service = service
        self._open: set[web.WebSocketResponse] = set()

    async def shut(self, _: web.Application) -> None:
        """Close every connection, all at once: the server goes away."""

        async def close(socket: web.WebSocketResponse) -> None:
            with contextlib.suppress(TimeoutError):
                closing = socket.close(code=WSCloseCode.GOING_AWAY, message=b"shutdown")
                await asyncio.wait_for(closing, CLOSE_S)

        await asyncio.gather(*map(close, list(self._open)))

    async def open(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection to its end. Raises Problem before the upgrade."""
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise Problem(400, "upgrade_required", "this path speaks WebSocket only")
        if PROTOCOL not in [name.strip() for name in offered.split(",")]:
            raise Problem(400, "unsupported_subprotocol", f"ask for subprotocol {PROTOCOL}")
        self._service.check_ready()
        socket = web.WebSocketResponse(
            protocols=(PROTOCOL,),
            heartbeat=HEARTBEAT_S,
            max_msg_size=MAX_MESSAGE_BYTES + 1,  # aiohttp refuses what reaches it
            compress=False,
            autoping=False,
            writer_limit=NEVER_WAITS_BYTES,
        )
        await socket.prepare(request)
        tighten(request)
        self._open.add(socket)
        self._service.counters.connections += 1
        try:
            await Session(socket, request, self._service).run()
        finally:
            self._open.discard(socket)
            self._service.counters.connections -= 1
        return socket


class Session:
    """One connection: reads messages, keeps its utterances."""

    def __init__(
        self, socket: web.WebSocketResponse, request: web.Request, service: Service
    ) -> None:
        """Take a prepared connection."""
        self._id = f"ws-{uuid.uuid4().hex}"
        self._socket = socket
        self._service = service
        self._account: Account = request[ACCOUNT]
        self._outlet = Outlet(socket, request)
        self._spoken: dict[str, Spoken] = {}
        self._num_started = 0
        self._num_problems = 0
        self._message_at_s = time.monotonic()

    async def run(self) -> None:
        """Serve until the client leaves, goes idle or misbehaves."""
        writer = asyncio.create_task(self._write())
        watch = asyncio.create_task(self._watch())
        self._greet()
        try:
            async for message in self._socket:
                self._message_at_s = time.monotonic()
                if message.type is WSMsgType.TEXT:
                    self._take(message.data)
                elif message.type is WSMsgType.PING:
                    self._outlet.pong(message.data)
                elif message.type is WSMsgType.BINARY:
                    self._refuse(Problem(400, "binary_not_allowed", "send JSON text messages"))
        finally:
            watch.cancel()
            for spoken in self._spoken.values():
                spoken.cancel()
            writer.cancel()

    def _greet(self) -> None:
        known, options = self._service.known(self._account), self._service.options
        stored = []
        if known.stored is not None:
            with contextlib.suppress(Problem):  # presets can be spoken all the same
                stored = known.stored.listed()
        self._outlet.event(
            "session.created",
            session=self._id,
            protocol=PROTOCOL,
            sample_rate_hz=SAMPLE_RATE_HZ,
            model=known.models.name,
            voices=[*known.voices, *(voice.name for voice, _ in stored)],
            languages=list(known.languages),
            exact_times=self._service.client.status().exact_times,
            limits={
                "utterances": options.max_utterances,
                "chars": options.max_chars,
                "message_bytes": MAX_MESSAGE_BYTES,
                "idle_s": options.idle_s,
            },
        )

    def _take(self, data: str) -> None:
        body: dict[str, Any] = {}
        try:
            body = parse_object(data)
            kind, fields = check_message(body, self._service.known(self._account))
            if kind == START:
                self._start(fields)
            elif kind == "ping":
                self._outlet.event("pong", id=fields.get("id"))
            else:
                self._pass_on(kind, fields)
        except PlayheadError as error:
            self._refuse(problem_of(error), *about(body))

    def _start(self, fields: dict[str, Any]) -> None:
        name = fields["utterance"]
        self._service.keys.check(self._account)
        self._drop_ended()
        if name in self._spoken:
            raise Problem(400, "utterance_in_use", "this utterance is live; choose another name")
        most = self._service.options.max_utterances
        if len(self._spoken) >= most:
            raise Problem(429, "too_many_utterances", f"{most} are live; end or cancel one")
        submit = read_controls(
            fields,
            self._service.known(self._account),
            f"{self._id}-{name}",
            text="",
            closed=False,
            live=fields.get("live", True),
        )
        self._num_started += 1
        self._spoken[name] = Spoken(
            name, self._num_started, submit, self._service, self._account, self._outlet
        )
        self._outlet.event("utterance.created", utterance=name, number=self._num_started)

    def _pass_on(self, kind: str, fields: dict[str, Any]) -> None:
        name = fields["utterance"]
        spoken = self._spoken.get(name)
        if spoken is None or spoken.over:
            if kind in ("utterance.cancel", "playback.report"):
                return  # it ended meanwhile: late ones are normal
            raise Problem(404, "no_such_utterance", "start it first, or it has ended")
        if kind == "utterance.cancel":
            spoken.cancel()
        elif kind == "playback.report":
            spoken.report(fields["played_samples"], fields.get("state") == "paused")
        else:
            self._text(spoken, kind, fields)

    def _text(self, spoken: Spoken, kind: str, fields: dict[str, Any]) -> None:
        sequence = fields["sequence"]
        if sequence > spoken.next_sequence:
            raise Problem(
                400, "invalid_sequence", f"next is {spoken.next_sequence}", param="sequence"
            )
        if sequence == spoken.next_sequence:
            if kind == "text.append":
                spoken.append(fields["text"])
            elif kind == "text.flush":
                spoken.flush()
            else:
                spoken.end()
            spoken.next_sequence += 1
        self._outlet.event("text.ack", utterance=spoken.name, sequence=sequence)

    def _refuse(
        self, problem: Problem, utterance: str | None = None, sequence: int | None = None
    ) -> None:
        self._service.counters.problems[problem.code] += 1
        self._num_problems += 1
        self._outlet.problem(problem, utterance, sequence)

    def _drop_ended(self) -> None:
        self._spoken = {name: each for name, each in self._spoken.items() if not each.over}

    async def _write(self) -> None:
        try:
            await self._outlet.run()
        except ConnectionError:
            return  # the reader sees the end too

    async def _watch(self) -> None:
        """End what is idle: utterances that wait for text, then the connection."""
        idle_s = self._service.options.idle_s
        while True:
            await asyncio.sleep(min(LOOK_S, idle_s / 4))
            now_s = time.monotonic()
            self._drop_ended()
            for spoken in list(self._spoken.values()):
                if spoken.awaits_text and now_s - spoken.text_at_s > idle_s:
                    message = f"neither text nor speech for {idle_s:g} s"
                    late = Problem(408, "input_timeout", message)
                    self._refuse(late, spoken.name)
                    spoken.cancel()
            if self._num_problems > MAX_PROBLEMS:
                await self._end(Problem(400, "too_many_errors", "too many refused messages"))
                return
            if not self._spoken and now_s - self._message_at_s > idle_s:
                await self._end(Problem(408, "idle_timeout", f"nothing said for {idle_s:g} s"))
                return

    async def _end(self, problem: Problem) -> None:
        self._refuse(problem)
        await asyncio.sleep(0)  # the writer's turn
        code, why = WSCloseCode.POLICY_VIOLATION, problem.code.encode()
        try:
            await asyncio.wait_for(self._socket.close(code=code, message=why), CLOSE_S)
        except TimeoutError:
            self._outlet.abort()
