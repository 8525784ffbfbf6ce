"""The framework's two kinds of streams: a whole text, and text as it is written."""

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from livekit.agents import APIConnectOptions, tts, utils
from livekit.plugins.playhead.api_errors import to_api_error
from livekit.plugins.playhead.attempt import Attempt

from playhead.engine.messages import Done

if TYPE_CHECKING:
    from livekit.plugins.playhead.tts import TTS

MIME_TYPE = "audio/pcm"
USERDATA_ATTEMPT = "playhead.attempt"
"""What a frame belongs to: an attached sink reports playback and tells words by it."""


class ChunkedStream(tts.ChunkedStream):
    """Speech of a whole text, made as fast as the engine's live listeners allow."""

    def __init__(self, *, tts: "TTS", input_text: str, conn_options: APIConnectOptions) -> None:
        """Made by TTS.synthesize; starts at once."""
        super().__init__(tts=tts, input_text=input_text, conn_options=conn_options)
        self._playhead = tts
        self._options = tts._options

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        request_id = utils.shortuuid()
        output_emitter.initialize(
            request_id=request_id,
            sample_rate=self._playhead.sample_rate,
            num_channels=1,
            mime_type=MIME_TYPE,
        )
        if not self.input_text.strip():
            return
        attempt = self._playhead._attempt(
            output_emitter, self._conn_options.timeout, segmented=False
        )
        try:
            asked_s = time.perf_counter()
            self._connection_reused = self._playhead._engine.ready
            client = await self._playhead._engine.client(self._conn_options.timeout)
            self._acquire_time = time.perf_counter() - asked_s
            submit = self._options.submit(request_id, self.input_text, closed=True, live=False)
            done: Done = await attempt.run(client, submit)
        except Exception as error:
            raise to_api_error(error, audible=attempt.audible) from error
        self._playhead._learn(attempt)
        self._set_token_usage(output_tokens=done.num_frames)


class SynthesizeStream(tts.SynthesizeStream):
    """Speech of text as it is written: each piece reaches the engine when it is pushed.

    One stream is one segment: `flush` says that its text is complete.
    """

    def __init__(self, *, tts: "TTS", conn_options: APIConnectOptions) -> None:
        """Made by TTS.stream; waits for text."""
        super().__init__(tts=tts, conn_options=conn_options)
        self._playhead = tts
        self._options = tts._options
        self._attempt: Attempt | None = None

    async def __anext__(self) -> tts.SynthesizedAudio:
        """Return the next audio, marked with the attempt that made it."""
        audio = await super().__anext__()
        audio.frame.userdata[USERDATA_ATTEMPT] = self._attempt
        return audio

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        request_id = utils.shortuuid()
        output_emitter.initialize(
            request_id=request_id,
            sample_rate=self._playhead.sample_rate,
            num_channels=1,
            mime_type=MIME_TYPE,
            stream=True,
        )
        attempt = self._playhead._attempt(
            output_emitter, self._conn_options.timeout, segmented=True
        )
        try:
            asked_s = time.perf_counter()
            self._connection_reused = self._playhead._engine.ready
            client = await self._playhead._engine.client(self._conn_options.timeout)
            self._acquire_time = time.perf_counter() - asked_s
            text = await self._first_text()
            if text is None:
                return
            self._mark_started()
            self._attempt = attempt
            submit = self._options.submit(request_id, text, closed=False, live=True)
            done: Done = await attempt.run(client, submit, self._more_text())
        except Exception as error:
            raise to_api_error(error, audible=attempt.audible) from error
        self._playhead._learn(attempt)
        self._set_token_usage(output_tokens=done.num_frames)

    async def _first_text(self) -> str | None:
        """Return the text up to and with the first piece that is not blank; None if none comes."""
        text = ""
        async for data in self._input_ch:
            if isinstance(data, str):
                text += data
                if text.strip():
                    return text
        return None

    async def _more_text(self) -> AsyncIterator[str]:
        """Yield the pieces that follow, until a flush: the framework takes no text behind one."""
        async for data in self._input_ch:
            if not isinstance(data, str):
                return
            yield data
