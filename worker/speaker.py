"""Speaker: the one voice of a room; queues speeches and plays them; lives on the room's loop.

    Speech ─▶ Utterance (engine) ─▶ Pump (track) ─▶ PlaybackClock ─▶ snapshots back to the engine

Speeches are generated and played in order; the next is asked for once the one before is fully
generated, so its sound follows without a hole. Events leave through one callback, in order.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from playhead.engine.errors import Busy, EngineFailure, PlayheadError, TransportError
from playhead.engine.messages import Done, Pcm, PlaybackSnapshot, Starved, Submit, Words
from playhead.engine.units import samples_to_s
from playhead.worker.client import EngineClient, SpeechResult, Utterance
from playhead.worker.events import (
    Caption,
    Finished,
    Interrupted,
    SpeakerEvent,
    SpeechError,
    Started,
    WordsTimed,
)
from playhead.worker.keep import PcmKeeper
from playhead.worker.receivers import Receivers
from playhead.worker.speech import Speech
from playhead.worker.track import Pump

logger = logging.getLogger(__name__)

TICK_S = 0.08
"""Snapshots go to the engine at 12.5 Hz: once per codec frame."""
MAX_QUEUED = 64
"""Speeches waiting in one room."""

Emit = Callable[[SpeakerEvent], None]


@dataclass(frozen=True, slots=True)
class Heard:
    """What an interruption cut, and what was heard of it."""

    request_id: str | None
    text: str
    heard_s: float


class Speaker:
    """Plays one room's speeches through one pump."""

    def __init__(
        self,
        client: EngineClient,
        pump: Pump,
        receivers: Receivers,
        emit: Emit,
        *,
        clock_events: bool = False,
        keeper: PcmKeeper | None = None,
    ) -> None:
        """Take the room's parts; nothing plays before `listen`."""
        self._clock_events = clock_events
        self._keeper = keeper
        self._client = client
        self._pump = pump
        self._receivers = receivers
        self._emit = emit
        self._queue: deque[Speech] = deque()
        self._sounding: deque[Speech] = deque()
        """Admitted and not fully heard, oldest first; the last may still be generated."""
        self._arrived = asyncio.Event()
        self._tick = asyncio.Event()
        self._current: asyncio.Task[None] | None = None
        self._listening = False
        self._paused = False

    async def run(self) -> None:
        """Speak until cancelled; cancellation cuts what sounds."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump.run())
                group.create_task(self._watch())
                group.create_task(self._work())
        finally:
            self.interrupt("closed")
            await self._pump.settle()

    def speak(self, submit: Submit, request_id: str, *, cut: bool = False) -> Speech:
        """Queue a speech (its text comes through the result); `cut` drops all before it."""
        if cut:
            self.interrupt("replaced")
        if len(self._queue) >= MAX_QUEUED:
            raise Busy(f"{len(self._queue)} speeches wait in this room already", retry_s=1.0)
        speech = Speech(submit, request_id)
        self._queue.append(speech)
        self._arrived.set()
        return speech

    def interrupt(self, reason: str = "interrupted") -> Heard:
        """Stop generation, silence the track, drop the queue; return what was heard."""
        cut = [*self._sounding, *self._queue]
        for speech in cut:
            speech.cancel()
        now_s = time.monotonic()
        self._pump.clear()
        if self._current is not None:
            self._current.cancel()
        self._sounding.clear()
        self._queue.clear()
        for speech in cut:
            self._end_cut(speech, reason, now_s)
        if not cut:
            return Heard(None, "", 0.0)
        first = cut[0]
        return Heard(first.request_id, first.heard_text(now_s), first.heard_s(now_s))

    def fail(self, speech: Speech, error: PlayheadError) -> None:
        """End a speech whose text is at fault; what is on its way is still heard."""
        if speech.over:
            return
        speech.cancel()
        if self._queue and speech is self._queue[0] and self._current is not None:
            self._current.cancel()
        self._fail(speech, error)

    def listen(self) -> None:
        """Somebody hears the track: play what waits."""
        if self._listening:
            return
        self._listening = True
        now_s = time.monotonic()
        for speech in self._sounding:
            self._begin(speech, now_s)
        if not self._paused:
            self._pump.resume()
        self._tick.set()

    def unheard(self) -> None:
        """Nobody is left: cancel everything and wait for the next listener."""
        if not self._listening:
            return
        now_s = time.monotonic()
        for speech in self._sounding:
            speech.clock.leave()
            speech.report(self._snapshot_of(speech, now_s))
        self.interrupt("no_listener")
        self._pump.pause()
        self._listening = False

    def pause(self) -> None:
        """Stop sending and keep what has not left: nobody hears it, or the room reconnects."""
        self._paused = True
        if not self._listening:
            return
        self._pump.pause()
        now_s = time.monotonic()
        for speech in self._sounding:
            speech.clock.pause(now_s)
        self._report(now_s)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._paused = False
        if not self._listening:
            return
        for speech in self._sounding:
            speech.clock.resume()
        self._pump.resume()
        self._report(time.monotonic())

    def restarted(self) -> None:
        """The pump sends again after a dry queue; its callback."""
        self._tick.set()

    async def _work(self) -> None:
        while True:
            while not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            task = asyncio.create_task(self._speak(self._queue[0]))
            self._current = task
            try:
                await asyncio.wait([task])
            finally:  # an interruption cancels only the task; our own cancellation ends both
                task.cancel()
                self._current = None

    async def _speak(self, speech: Speech) -> None:
        """Generate one speech to its end; leaves it in `_sounding` to be heard."""
        try:
            text = await speech.first_text()
            utterance = await self._client.submit(replace(speech.submit, text=text))
            self._admit(speech, utterance)
            async for result in utterance:
                self._take(speech, result)
        except PlayheadError as error:
            self._fail(speech, error)
        except Exception as error:  # a fault of ours ends this speech, never the room
            logger.exception("speech failed", extra={"request_id": speech.request_id})
            self._fail(speech, EngineFailure(f"{type(error).__name__} in the worker"))
        finally:
            speech.cancel()

    def _admit(self, speech: Speech, utterance: Utterance) -> None:
        now_s = time.monotonic()
        speech.admitted(utterance, self._receivers.estimate(now_s))
        self._queue.remove(speech)
        self._sounding.append(speech)
        if self._listening:
            self._begin(speech, now_s)
        self._report(now_s)
        self._tick.set()

    def _begin(self, speech: Speech, now_s: float) -> None:
        speech.clock.start()
        if self._paused:
            speech.clock.pause(now_s)

    def _take(self, speech: Speech, result: SpeechResult) -> None:
        if isinstance(result, Pcm):
            speech.received(result, self._client.pace, time.monotonic())
            if self._keeper is not None:
                self._keeper.add(speech.request_id, result)
            self._pump.push(speech.clock, result.pcm)
        elif isinstance(result, Words):
            speech.words.extend(result.words)
            self._emit(WordsTimed(speech.request_id, result.words, result.estimated))
        elif isinstance(result, Starved):
            speech.starved()
            self._pump.starve(speech.clock)
        elif isinstance(result, Done) and result.reason == "cancelled":
            self._fail(speech, TransportError("the engine stopped; try again"))
        elif isinstance(result, Done):
            speech.done = result
            self._pump.end(speech.clock)
            self._tick.set()

    def _fail(self, speech: Speech, error: PlayheadError) -> None:
        """End a speech with an error; what is already on its way is still heard."""
        if speech in self._queue:
            self._queue.remove(speech)
        if speech in self._sounding:
            self._pump.end(speech.clock)
            self._sounding.remove(speech)
            self._close_caption(speech, "")
        retry_s = error.retry_s if isinstance(error, Busy) else None
        self._emit(SpeechError(speech.request_id, error.code, str(error), retry_s))

    async def _watch(self) -> None:
        """Report, caption and finish at every tick, and at once when something changed."""
        while True:
            self._tick.clear()
            now_s = time.monotonic()
            self._report(now_s)
            wait_s = TICK_S
            for speech in list(self._sounding):
                self._show(speech, now_s)
                end_s = speech.heard_at_s(now_s)
                if end_s is not None and end_s <= now_s:
                    self._end_heard(speech)
                elif end_s is not None:
                    wait_s = min(wait_s, end_s - now_s + 0.001)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._tick.wait(), wait_s if self._sounding else None)

    def _report(self, now_s: float) -> None:
        estimate = self._receivers.estimate(now_s)
        for speech in self._sounding:
            speech.clock.receiver = estimate
            snapshot = self._snapshot_of(speech, now_s)
            speech.report(snapshot)
            if self._clock_events:
                self._emit(speech.reading(snapshot))

    def _snapshot_of(self, speech: Speech, now_s: float) -> PlaybackSnapshot:
        return replace(speech.clock.snapshot(now_s), bridge_s=self._pump.bridge_s(now_s))

    def _show(self, speech: Speech, now_s: float) -> None:
        if not speech.started and speech.clock.pushed_samples:
            speech.started = True
            self._emit(Started(speech.request_id))
        text = speech.new_caption(now_s)
        if text:
            self._emit(Caption(speech.request_id, text, final=False))

    def _close_caption(self, speech: Speech, text: str) -> None:
        if text or speech.captioned:
            self._emit(Caption(speech.request_id, text, final=True))

    def _end_heard(self, speech: Speech) -> None:
        assert speech.done is not None
        self._sounding.remove(speech)
        self._close_caption(speech, speech.rest_of_caption())
        heard_s = samples_to_s(speech.done.num_samples)
        gaps, breaks_s = speech.num_gaps, speech.breaks_s()
        heard = "".join(word.text for word in speech.words).strip() if heard_s else ""
        reason, guard = speech.done.reason, speech.done.guard
        self._emit(
            Finished(speech.request_id, reason, heard, heard_s, gaps, **breaks_s, guard=guard)
        )

    def _end_cut(self, speech: Speech, reason: str, now_s: float) -> None:
        self._close_caption(speech, "")
        heard_s, text = speech.heard_s(now_s), speech.heard_text(now_s)
        gaps, breaks_s = speech.num_gaps, speech.breaks_s()
        self._emit(Interrupted(speech.request_id, reason, text, heard_s, gaps, **breaks_s))
