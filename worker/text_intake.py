"""TextIntake: reads one room's text streams into speeches; on the room's loop.

A stream that stays silent is closed after `idle_s` and what came of it is spoken; a stream that
breaks off likewise. A stream over the size limit fails its request. Text is never logged.
"""

import asyncio
import logging
from dataclasses import dataclass

from livekit import rtc

from playhead.engine.errors import Busy, InputError, PlayheadError, TextTooLong
from playhead.worker.events import Notice, SpeechError
from playhead.worker.speaker import Emit, Speaker
from playhead.worker.speech import Speech
from playhead.worker.text_request import read_request, request_id_of

logger = logging.getLogger(__name__)

TEXT_TOPIC = "playhead.text"


@dataclass(frozen=True, slots=True)
class TextLimits:
    """What a text stream may take."""

    idle_s: float = 30.0
    """A stream silent for this long counts as closed."""
    max_chars: int = 100_000
    """Most characters of one stream."""


class TextIntake:
    """Turns text streams of participants that may speak into speeches."""

    def __init__(self, speaker: Speaker, emit: Emit, limits: TextLimits) -> None:
        """Take the room's speaker and its event callback."""
        self._speaker = speaker
        self._emit = emit
        self._limits = limits
        self._live: set[str] = set()
        """Requests that no event has ended yet."""
        self._reading: dict[str, asyncio.Task[None]] = {}

    def accept(self, reader: rtc.TextStreamReader) -> None:
        """Start a request from a stream; a request that can't be is answered with an event."""
        attributes, stream_id = reader.info.attributes or {}, reader.info.stream_id
        request_id = request_id_of(attributes, stream_id)
        if request_id in self._live:  # the live one keeps its name: the new one has its stream's
            message = f"request id {request_id!r} is in use; choose another"
            reader.close()
            self._emit(SpeechError(stream_id, InputError.code, message))
            return
        try:
            request = read_request(attributes, stream_id)
            speech = self._speaker.speak(request.submit, request_id, cut=request.cut)
        except PlayheadError as error:
            reader.close()
            retry_s = error.retry_s if isinstance(error, Busy) else None
            self._emit(SpeechError(request_id, error.code, str(error), retry_s))
            return
        self._live.add(request_id)
        task = asyncio.create_task(self._read(reader, speech))
        self._reading[request_id] = task
        task.add_done_callback(lambda done: self._forget(request_id, done))

    def ended(self, request_id: str) -> None:
        """The request is over: read no more of its text."""
        self._live.discard(request_id)
        task = self._reading.get(request_id)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def close(self) -> None:
        """Stop reading everything."""
        for task in list(self._reading.values()):
            task.cancel()

    async def _read(self, reader: rtc.TextStreamReader, speech: Speech) -> None:
        num_chars = 0
        try:
            while (piece := await self._next(reader, speech)) is not None:
                num_chars += len(piece)
                if num_chars > self._limits.max_chars:
                    raise TextTooLong(
                        f"more than {self._limits.max_chars} characters; split the text"
                    )
                speech.append(printable(piece))
            speech.close()
        except PlayheadError as error:
            self._speaker.fail(speech, error)
        finally:
            reader.close()

    async def _next(self, reader: rtc.TextStreamReader, speech: Speech) -> str | None:
        try:
            return await asyncio.wait_for(anext(reader), self._limits.idle_s)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            message = f"no text for {self._limits.idle_s:g} s: the stream counts as closed"
            self._emit(Notice(speech.request_id, "text_idle", message))
            return None
        except rtc.StreamError:
            message = "the text stream broke off: what came of it is spoken"
            self._emit(Notice(speech.request_id, "text_aborted", message))
            return None

    def _forget(self, request_id: str, task: asyncio.Task[None]) -> None:
        self._reading.pop(request_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("reading a text stream failed", exc_info=error)


def printable(text: str) -> str:
    """Replace what no encoder takes (lone surrogates) and drop NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")
