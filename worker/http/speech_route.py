"""POST /v1/audio/speech: a file at full speed, or a stream paced by what its client took."""

import asyncio
import base64
import json
import logging
import socket
from typing import Any

from aiohttp import web
from aiohttp.http import StreamWriter

from playhead.engine.errors import PlayheadError
from playhead.engine.messages import Done, Pcm
from playhead.engine.units import SAMPLE_BYTES
from playhead.worker.client import Utterance
from playhead.worker.http.edge import ACCOUNT, REQUEST_ID
from playhead.worker.http.fields import SpeechRequest, read_speech
from playhead.worker.http.formats import FORMAT_TABLE, encoder
from playhead.worker.http.pace import ClientClock, Pacer
from playhead.worker.http.problem import Problem, problem_of
from playhead.worker.http.schema import parse_object
from playhead.worker.http.service import Service

logger = logging.getLogger(__name__)

SEND_BUFFER_BYTES = 16_384
"""A third of a second of PCM: what the system may hold of a stream beside the client itself."""
STOP_HEADER, GUARD_HEADER = "X-Playhead-Stop", "X-Playhead-Guard"


class SpeechRoute:
    """Handles speech requests for one service."""

    def __init__(self, service: Service) -> None:
        """Share the service."""
        self._service = service

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Answer one request. Raises Problem or an error of the engine before the first byte."""
        if request.content_type != "application/json":
            raise Problem(415, "unsupported_media_type", "allowed is application/json")
        body = parse_object(await self._body(request))
        self._service.check_ready()
        account = request[ACCOUNT]
        asked = read_speech(body, self._service.known(account), request[REQUEST_ID])
        with self._service.holding(account):
            self._service.spend(account, asked.num_chars)
            speaking = self._service.speaking(asked.submit, account, asked.num_chars)
            async with speaking as utterance:
                if not asked.live:
                    return await self._file(asked, utterance)
                return await self._stream(request, asked, utterance)

    async def _body(self, request: web.Request) -> bytes:
        """Return the body; a client that stops in the middle holds nothing for ever."""
        limit_s = self._service.options.idle_s
        try:
            async with asyncio.timeout(limit_s):
                return await request.read()
        except TimeoutError:
            message = f"the body did not come within {limit_s:g} s; send it again"
            raise Problem(408, "body_timeout", message) from None

    async def _file(self, asked: SpeechRequest, utterance: Utterance) -> web.Response:
        made = encoder(asked.response_format, live=False, speed=asked.speed)
        headers = {"Content-Type": FORMAT_TABLE[asked.response_format].content_type}
        async for result in utterance:
            if isinstance(result, Pcm):
                made.push(result.pcm)
                num_samples = len(result.pcm) // SAMPLE_BYTES
                self._service.handed(asked.submit.request_id, num_samples)
            elif isinstance(result, Done):
                headers[STOP_HEADER] = result.reason
                if result.guard:
                    headers[GUARD_HEADER] = result.guard
        return web.Response(body=made.end(), headers=headers)

    async def _stream(
        self, request: web.Request, asked: SpeechRequest, utterance: Utterance
    ) -> web.StreamResponse:
        sender = _Sender(request, asked, self._service)
        try:
            with sender.pacer.following(utterance if asked.submit.live else None):
                async for result in utterance:
                    if isinstance(result, Pcm):
                        await sender.audio(result.pcm)
                    elif isinstance(result, Done):
                        await sender.done(result)
        except PlayheadError as error:
            if not sender.begun:
                raise
            await sender.failed(error)
        return sender.response


class _StreamResponse(web.StreamResponse):
    """Its headers go out with the first audio, in one packet."""

    _send_headers_immediately = False


class _Sender:
    """Writes one stream to its client: bare audio, or server-sent events around it."""

    def __init__(self, request: web.Request, asked: SpeechRequest, service: Service) -> None:
        content_type = FORMAT_TABLE[asked.response_format].content_type
        headers = {"Content-Type": "text/event-stream" if asked.sse else content_type}
        headers["Cache-Control"] = "no-store"
        self.response = _StreamResponse(headers=headers)
        self.begun = False
        self.pacer = Pacer(ClientClock(speed=asked.speed), service.options.stall_s)
        assert isinstance(request.writer, StreamWriter)
        self._writer = request.writer
        self._request = request
        self._asked = asked
        self._service = service
        self._encoder = encoder(asked.response_format, live=True, speed=asked.speed)

    async def audio(self, pcm: bytes) -> None:
        """Send a chunk; returns when the client's connection took it."""
        num_samples = len(pcm) // SAMPLE_BYTES
        self._service.handed(self._asked.submit.request_id, num_samples)
        await self._audio_bytes(self._encoder.push(pcm))
        self.pacer.took(num_samples)

    async def done(self, done: Done) -> None:
        """Send what is left, and the end."""
        await self._audio_bytes(self._encoder.end())
        if self._asked.sse:
            tokens_in = self._asked.num_chars
            usage = {"input_tokens": tokens_in, "output_tokens": done.num_frames}
            usage["total_tokens"] = tokens_in + done.num_frames
            event = {"type": "speech.audio.done", "usage": usage, "stop_reason": done.reason}
            if done.guard:
                event["guard"] = done.guard
            await self._write(_event(event))
        await self._begin()
        with self.pacer.waiting(self.stalled):
            await self.response.write_eof()

    async def failed(self, error: PlayheadError) -> None:
        """Tell of an error after the first byte: an event, or a body that visibly breaks off."""
        problem = problem_of(error)
        self._service.counters.problems[problem.code] += 1
        if self._asked.sse:
            await self._write(_event({"type": "error", "error": problem.body()}))
            await self.response.write_eof()
        elif self._request.transport is not None:
            self._request.transport.abort()

    def stalled(self) -> None:
        """Drop a client that takes nothing; its handler is cancelled by the lost connection."""
        self._service.counters.stalled += 1
        logger.info("client took nothing", extra={"request_id": self._request[REQUEST_ID]})
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _audio_bytes(self, data: bytes) -> None:
        if not data:
            return
        if self._asked.sse:
            text = base64.b64encode(data).decode()
            data = _event({"type": "speech.audio.delta", "audio": text})
        await self._write(data)

    async def _write(self, data: bytes) -> None:
        await self._begin()
        await self._writer.write(data, drain=False)
        transport = self._request.transport
        if transport is None or transport.get_write_buffer_size():  # the client is behind, or gone
            with self.pacer.waiting(self.stalled):
                await self._writer.drain()

    async def _begin(self) -> None:
        if not self.begun:
            self.begun = True
            tighten(self._request)
            await self.response.prepare(self._request)


def tighten(request: web.Request) -> None:
    """Let little wait between us and the client, so that what it took is what it wants."""
    if request.transport is None:
        return
    request.transport.set_write_buffer_limits(high=0)
    raw = request.transport.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"
