"""SpeechSocket: one WebSocket connection as an engine: commands become messages, frames results.

One task writes in order, one reads. An utterance that was cancelled gets nothing more, whatever
is still on its way. Lives on one loop.
"""

import asyncio
import json
import struct
import time
from typing import Any

import aiohttp
from livekit.agents.utils.aio import cancel_and_wait
from livekit.plugins.playhead.log import logger

from playhead.engine.errors import PlayheadError, TransportError
from playhead.engine.messages import (
    Accepted,
    Append,
    Cancel,
    Close,
    Done,
    Failed,
    Pcm,
    Playback,
    Refused,
    Result,
    Sampling,
    Starved,
    Submit,
    Word,
    Words,
)
from playhead.engine.units import FRAME_SAMPLES, SAMPLE_BYTES
from playhead.worker.carrier import EngineStatus
from playhead.worker.client import LOST_CODE, Utterance
from playhead.worker.http.messages import AUDIO_HEADER, MAX_MESSAGE_TEXT_CHARS, PROTOCOL

ANSWER_S = 2.0
"""A live connection answers a start at once; one that was used before and stays silent is dead."""
FRESH_S = 5.0
REPORT_S = 0.2
"""Playback is reported so often, and at once when it pauses or goes on."""
BUSY_RETRY_S = 1.0
"""Where the server names none."""
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, struct.error)
_AWAY_CODES = ("engine_away", "not_ready")


class SpeechSocket:
    """Utterances over one connection; `open` until either side ended it."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        """Take an open connection."""
        self.model = ""
        """What the server speaks with, as it names it."""
        self._used = False
        self._opened_s = time.monotonic()
        self._connection = connection
        self._outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._live: dict[str, _Live] = {}
        self._by_number: dict[int, _Live] = {}
        self._max_live = 1
        self._lost = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def open(self) -> bool:
        """Utterances may be asked for."""
        return not (self._lost or self._connection.closed)

    @property
    def fresh(self) -> bool:
        """It was opened just now, so it can't have died unnoticed."""
        return not self._used and time.monotonic() - self._opened_s < FRESH_S

    @property
    def has_room(self) -> bool:
        """The server takes one more utterance."""
        return len(self._live) < self._max_live

    async def greeting(self) -> EngineStatus:
        """Return what the server says of itself first. Raises TransportError."""
        try:
            hello = json.loads(await self._connection.receive_str())
            self._max_live = hello["limits"]["utterances"]
            self.model = str(hello["model"])
            return EngineStatus(
                ready=True,
                voices=tuple(hello["voices"]),
                languages=tuple(hello["languages"]),
                exact_times=bool(hello["exact_times"]),
            )
        except (aiohttp.WSMessageTypeError, *_UNREADABLE) as error:
            raise TransportError(f"no playhead server answers there: {error}") from error

    def start(self) -> None:
        """Begin to read and write."""
        self._tasks = [asyncio.create_task(work()) for work in (self._read, self._write)]

    async def aclose(self) -> None:
        """Close the connection; its utterances end with TransportError."""
        self._lose("the connection was closed")
        await cancel_and_wait(*self._tasks)
        await self._connection.close()

    async def submit(self, name: str, submit: Submit) -> Utterance:
        """Start an utterance and wait for admission; raises what EngineClient.submit raises."""
        utterance = Utterance(self, name)
        live = self._live[name] = _Live(utterance)
        self._outgoing.put_nowait(_start_message(name, submit))
        self._say(live, submit.text)
        if submit.closed:
            self.send(Close(name))
        limit = asyncio.timeout(None if self.fresh else ANSWER_S)
        self._used = True
        live.limit = limit
        try:
            async with limit:
                await utterance.admission()
        except TimeoutError:
            if not limit.expired():
                raise  # somebody else's limit
            self._lose("the server does not answer")
            raise TransportError("the server does not answer") from None
        except asyncio.CancelledError:
            utterance.cancel()
            raise
        except PlayheadError:
            self.forget(name, cancel=False)
            raise
        return utterance

    def send(self, command: Append | Close | Cancel | Playback) -> None:
        """Post a command; one for an utterance that ended is dropped."""
        if isinstance(command, Playback):
            self._report(command)
            return
        live = self._live.get(command.request_id)
        if live is None:
            return
        if isinstance(command, Append):
            self._say(live, command.text)
        elif isinstance(command, Close):
            message = {"type": "text.end", "utterance": command.request_id}
            self._outgoing.put_nowait({**message, "sequence": live.next_sequence()})

    def forget(self, request_id: str, cancel: bool) -> None:
        """Route nothing more to an utterance, and cancel it at the server if asked."""
        live = self._live.pop(request_id, None)
        if live is None:
            return
        if live.number is not None:
            del self._by_number[live.number]
        if cancel and self.open:
            self._outgoing.put_nowait({"type": "utterance.cancel", "utterance": request_id})

    def _say(self, live: "_Live", text: str) -> None:
        for start in range(0, len(text), MAX_MESSAGE_TEXT_CHARS):
            self._outgoing.put_nowait(
                {
                    "type": "text.append",
                    "utterance": live.name,
                    "sequence": live.next_sequence(),
                    "text": text[start : start + MAX_MESSAGE_TEXT_CHARS],
                }
            )

    def _report(self, playback: Playback) -> None:
        snapshot = playback.snapshot
        live = self._live.get(snapshot.request_id)
        if live is None or snapshot.state in ("waiting", "gone"):
            return
        paused, now_s = snapshot.state == "paused", time.monotonic()
        if paused == live.paused and now_s - live.reported_s < REPORT_S:
            return
        live.paused, live.reported_s = paused, now_s
        self._outgoing.put_nowait(
            {
                "type": "playback.report",
                "utterance": live.name,
                "played_samples": min(snapshot.exited_samples, live.num_samples),
                "state": "paused" if paused else "playing",
            }
        )

    async def _write(self) -> None:
        try:
            while True:
                await self._connection.send_json(await self._outgoing.get())
        except (aiohttp.ClientError, OSError) as error:
            self._lose(f"{type(error).__name__}: {error}")

    async def _read(self) -> None:
        try:
            async for message in self._connection:
                if message.type is aiohttp.WSMsgType.BINARY:
                    self._take_audio(message.data)
                elif message.type is aiohttp.WSMsgType.TEXT:
                    self._take_event(json.loads(message.data))
        except _UNREADABLE as unread:
            logger.warning("server sent what the protocol has not: %s", type(unread).__name__)
            self._lose(f"the server sent what {PROTOCOL} has not")
            return
        code, error = self._connection.close_code, self._connection.exception()
        self._lose(f"closed by the server, {error or code}")

    def _take_audio(self, data: bytes) -> None:
        _, _, _, number, start_sample = AUDIO_HEADER.unpack_from(data)
        live = self._by_number.get(number)
        if live is None:
            return
        pcm = data[AUDIO_HEADER.size :]
        num_samples = len(pcm) // SAMPLE_BYTES
        live.num_samples = start_sample + num_samples
        frames = -(-num_samples // FRAME_SAMPLES)
        live.utterance.deliver(Pcm(live.name, start_sample, pcm, frames))

    def _take_event(self, event: dict[str, Any]) -> None:
        kind, live = event["type"], self._live.get(event.get("utterance", ""))
        if kind == "error":
            self._take_error(event, live)
        elif live is None:
            return
        elif kind == "utterance.created":
            live.number = event["number"]
            self._by_number[event["number"]] = live
            if live.limit is not None and not live.limit.expired():
                live.limit.reschedule(None)
        elif kind == "utterance.accepted":
            live.accepted = True
            live.utterance.deliver(Accepted(live.name))
        elif kind == "words":
            words = tuple(Word(w["text"], w["start_s"], w["end_s"]) for w in event["words"])
            live.utterance.deliver(Words(live.name, words, event["estimated"]))
        elif kind == "text.starved":
            live.utterance.deliver(Starved(live.name, event["end_sample"]))
        elif kind == "utterance.done":
            self._take_done(event, live)

    def _take_done(self, event: dict[str, Any], live: "_Live") -> None:
        reason, frames = event["reason"], event.get("num_frames", 0)
        if not live.accepted:  # nothing in it to speak
            live.utterance.deliver(Accepted(live.name))
        if reason in ("stop", "length", "cancelled"):
            guard = event.get("guard", "")
            self._end(live, Done(live.name, reason, event["num_samples"], frames, guard))
        else:
            self._end(live, Failed(live.name, "engine_failure", f"the utterance {reason}"))

    def _take_error(self, event: dict[str, Any], live: "_Live | None") -> None:
        code = event["error"]["code"]
        if live is None or code == "invalid_playback":
            logger.debug("server refused a message: %s", code)
            return
        cancel = live.accepted
        self._end(live, _failure(live, event))
        if cancel and self.open:
            self._outgoing.put_nowait({"type": "utterance.cancel", "utterance": live.name})

    def _end(self, live: "_Live", result: Result) -> None:
        self.forget(live.name, cancel=False)
        live.utterance.deliver(result)

    def _lose(self, reason: str) -> None:
        """Fail every utterance: the connection is gone."""
        self._lost = True
        for live in list(self._live.values()):
            self._end(live, Failed(live.name, LOST_CODE, reason))


class _Live:
    """What the connection knows of one utterance."""

    def __init__(self, utterance: Utterance) -> None:
        self.utterance = utterance
        self.name = utterance.request_id
        self.number: int | None = None
        self.accepted = False
        self.limit: asyncio.Timeout | None = None
        self.num_samples = 0
        self.paused = False
        self.reported_s = 0.0
        self._sequence = 0

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence - 1


def _start_message(name: str, submit: Submit) -> dict[str, Any]:
    sampling: Sampling = submit.sampling
    fields = {
        "voice": submit.voice,
        "language": submit.language,
        "instructions": submit.instruct,
        "seed": submit.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "repetition_penalty": sampling.repetition_penalty,
        "normalize": None if submit.normalize else False,
        "pronunciations": dict(submit.pronunciations) or None,
        "live": None if submit.live else False,
    }
    given = {key: value for key, value in fields.items() if value is not None}
    return {"type": "utterance.start", "utterance": name, **given}


def _failure(live: _Live, event: dict[str, Any]) -> Refused | Failed:
    """Return an error event as what an engine in this process would have said."""
    error = event["error"]
    code, message, retry_s = error["code"], error["message"], event.get("retry_s")
    if code in _AWAY_CODES:
        return Failed(live.name, LOST_CODE, message)
    if retry_s is None and error["type"] == "rate_limit_error":
        retry_s = BUSY_RETRY_S
    if live.accepted or (retry_s is None and error["type"] == "server_error"):
        return Failed(live.name, code, message)
    return Refused(live.name, code, message, retry_s)
