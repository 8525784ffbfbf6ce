"""Attempt: one try at speaking one text, from an engine into the framework's AudioEmitter.

Lives on the loop of its stream. Whatever ends it, the engine has dropped the request by then.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

from livekit import rtc
from livekit.agents.tts import AudioEmitter
from livekit.agents.types import TimedString
from livekit.agents.utils.aio import cancel_and_wait
from livekit.plugins.playhead.log import logger

from playhead.engine.errors import TransportError
from playhead.engine.messages import Done, Guard, Pcm, PlaybackSnapshot, Submit, Word, Words
from playhead.engine.units import FRAME_SAMPLES, SAMPLE_BYTES, SAMPLE_RATE_HZ, samples_to_s
from playhead.worker.client import Utterance

STALL_S = 5.0
"""Least time the engine may stay silent once it spoke: it holds back up to a profile's target."""
SILENT_SAMPLES = SAMPLE_RATE_HZ // 50
"""20 ms stand for a text without a sound (dots, a lone emoji): the framework expects audio."""


class Speaks(Protocol):
    """An engine of this process or machine, or one behind a WebSocket."""

    async def submit(self, submit: Submit) -> Utterance:
        """Ask for an utterance; wait for admission. Raises PlayheadError."""


class Attempt:
    """Moves an utterance's results into an emitter that was initialized for mono PCM."""

    def __init__(
        self,
        emitter: AudioEmitter,
        *,
        timeout_s: float,
        segmented: bool,
        all_words: bool,
        sample_rate: int = SAMPLE_RATE_HZ,
    ) -> None:
        """Take where audio goes; `segmented` emitters get their segment with the first audio.

        `all_words` passes on estimated word times too. Audio is resampled to `sample_rate`.
        """
        self.audible = False
        """Audio was pushed: from here nothing may be tried again."""
        self.exact_words = False
        """The engine timed words exactly."""
        self.words: list[Word] = []
        """All words timed so far, whether or not the framework gets them."""
        self.guard: Guard = ""
        """What ended speech that went on behind its text; known once the attempt is over."""
        self.request_id = ""
        """As the engine knows it; empty before admission."""
        self._utterance: Utterance | None = None
        self._emitter = emitter
        self._timeout_s = timeout_s
        self._segmented = segmented
        self._all_words = all_words
        self._resampler = (
            None
            if sample_rate == SAMPLE_RATE_HZ
            else rtc.AudioResampler(
                SAMPLE_RATE_HZ, sample_rate, quality=rtc.AudioResamplerQuality.HIGH
            )
        )
        self._limit = asyncio.timeout(None)
        self._complete = True
        self._untold: deque[Word] = deque()
        """Words that go with audio which is not pushed yet."""
        self._num_pushed = 0
        """Samples of the engine's that were pushed."""

    async def run(
        self, engine: Speaks, submit: Submit, more: AsyncIterator[str] | None = None
    ) -> Done:
        """Speak until the last sample is pushed; `more` is the text that follows, piece by piece.

        Raises PlayheadError, or TimeoutError if the engine owes audio and stays silent.
        """
        writer: asyncio.Task[None] | None = None
        utterance: Utterance | None = None
        self._complete = more is None
        try:
            async with asyncio.timeout(self._timeout_s) as self._limit:
                self._utterance = utterance = await engine.submit(submit)
                self.request_id = utterance.request_id
                self._await_audio()
                if more is not None:
                    writer = asyncio.create_task(self._write(utterance, more))
                return await self._read(utterance)
        finally:
            self._utterance = None
            if utterance is not None:
                utterance.cancel()
            if writer is not None:
                await cancel_and_wait(writer)

    def report(self, snapshot: PlaybackSnapshot) -> None:
        """Tell the engine where playback stands, while it still generates."""
        if self._utterance is not None:
            self._utterance.report(snapshot)

    async def _write(self, utterance: Utterance, more: AsyncIterator[str]) -> None:
        async for text in more:
            utterance.append(text)
        utterance.close()
        self._complete = True
        self._await_audio()

    async def _read(self, utterance: Utterance) -> Done:
        async for result in utterance:
            if isinstance(result, Pcm):
                self._push(utterance.request_id, result.pcm)
            elif isinstance(result, Words):
                self._time(result)
            elif isinstance(result, Done):
                if result.reason == "cancelled":
                    raise TransportError("the engine stopped; retry when it runs again")
                if not self.audible:
                    self._push(utterance.request_id, bytes(SILENT_SAMPLES * SAMPLE_BYTES))
                self._push_rest()
                self._tell_words(math.inf)
                self._end(result)
                return result
            self._await_audio()
        raise TransportError("the utterance was cancelled")

    def _await_audio(self) -> None:
        """Start the time the engine may stay silent anew; no limit while it may lack text."""
        if self._limit.expired():
            return  # the attempt is over and about to be told so
        if not self._complete:
            self._limit.reschedule(None)
            return
        limit_s = max(self._timeout_s, STALL_S) if self.audible else self._timeout_s
        self._limit.reschedule(asyncio.get_running_loop().time() + limit_s)

    def _push(self, segment_id: str, pcm: bytes) -> None:
        """Push samples codec frame by codec frame: the emitter passes them on as they are."""
        if not self.audible and self._segmented:
            self._emitter.start_segment(segment_id=segment_id)
        self.audible = True
        step_bytes = FRAME_SAMPLES * SAMPLE_BYTES
        for start in range(0, len(pcm), step_bytes):
            piece = pcm[start : start + step_bytes]
            frame = rtc.AudioFrame(piece, SAMPLE_RATE_HZ, 1, len(piece) // SAMPLE_BYTES)
            self._num_pushed += frame.samples_per_channel
            self._tell_words(samples_to_s(self._num_pushed))
            for made in [frame] if self._resampler is None else self._resampler.push(frame):
                self._emitter.push_frame(made)

    def _push_rest(self) -> None:
        if self._resampler is not None:
            for frame in self._resampler.flush():
                self._emitter.push_frame(frame)

    def _end(self, done: Done) -> None:
        self.guard = done.guard
        if done.guard:
            logger.warning(
                "speech went on behind its text and was ended, guard %s",
                done.guard,
                extra={"request_id": done.request_id},
            )

    def _time(self, words: Words) -> None:
        self.exact_words = not words.estimated
        self.words += words.words
        if words.estimated and not self._all_words:
            return
        self._untold.extend(words.words)

    def _tell_words(self, until_s: float) -> None:
        """Push the words that begin before a moment: with the frame they begin in."""
        while self._untold and self._untold[0].start_s < until_s:
            word = self._untold.popleft()
            timed = TimedString(word.text, start_time=word.start_s, end_time=word.end_s)
            self._emitter.push_timed_transcript(timed)
