"""Spoken: one utterance of a WebSocket, from its start to its done; on the connection's loop.

Text between two flushes is a segment: one request of the engine. The samples of all segments
count on as one utterance, and so does the client's playback.
"""

import asyncio
import logging
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from playhead.engine.errors import PlayheadError
from playhead.engine.messages import Done, Pcm, Starved, Submit, Word, Words
from playhead.engine.units import SAMPLE_BYTES, samples_to_s
from playhead.worker.client import SpeechResult, Utterance
from playhead.worker.heard import heard_text
from playhead.worker.http.keys import Account
from playhead.worker.http.messages import audio_frame
from playhead.worker.http.outlet import Outlet
from playhead.worker.http.pace import ClientClock, Pacer
from playhead.worker.http.problem import Problem, problem_of
from playhead.worker.http.service import Service

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Segment:
    """Text up to a flush; `utterance` once the engine speaks it."""

    text: str = ""
    closed: bool = False
    utterance: Utterance | None = None


@dataclass(slots=True)
class _Totals:
    """What went out so far."""

    samples: int = 0
    frames: int = 0
    words: list[Word] = field(default_factory=list)
    reason: str = "stop"
    guard: str = ""


class Spoken:
    """Takes text and the client's reports; sends audio and events."""

    def __init__(
        self,
        name: str,
        number: int,
        submit: Submit,
        service: Service,
        account: Account,
        outlet: Outlet,
    ) -> None:
        """`submit` has everything but text. Raises Problem when the key has nothing left."""
        self.name = name
        self.number = number
        self.text_at_s = time.monotonic()
        """When text last came or speech last went out: idle limits count from it."""
        self.next_sequence = 0
        self._submit = submit
        self._service = service
        self._account = account
        self._outlet = outlet
        self._pacer = Pacer(ClientClock(), service.options.stall_s)
        self._segments = deque([_Segment()])
        self._now: _Segment | None = None
        self._changed = asyncio.Event()
        self._total = _Totals()
        self._num_chars = 0
        self._ended = False
        self._num_instruct_chars = len(submit.instruct or "")
        with ExitStack() as held:
            held.enter_context(service.holding(account))
            service.spend(account, self._num_instruct_chars)
            self._held = held.pop_all()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._finish)  # also when it never got to run

    @property
    def over(self) -> bool:
        """Its done was sent."""
        return self._task.done()

    @property
    def awaits_text(self) -> bool:
        """The client has not said that its text is complete."""
        return not self._ended

    def append(self, text: str) -> None:
        """Add text; raises Problem and keeps nothing of it when a limit is reached."""
        self._check_open()
        most = self._service.options.max_chars
        if self._num_chars + len(text) > most:
            raise Problem(413, "text_too_long", f"an utterance has at most {most} characters")
        self._service.spend(self._account, len(text))
        self._num_chars += len(text)
        segment = self._segments[-1] if self._segments else self._now
        assert segment is not None, "the last segment is open until the end"
        if segment.utterance is not None:
            segment.utterance.append(text)
        else:
            segment.text += text
        self._touched()

    def flush(self) -> None:
        """Speak all text so far to its end; later text begins a new segment."""
        self._check_open()
        self._close_last()
        self._segments.append(_Segment())
        self._touched()

    def end(self) -> None:
        """No more text comes."""
        self._check_open()
        self._ended = True
        self._close_last()
        self._touched()

    def cancel(self) -> None:
        """Stop at once, never waiting; its done follows, and no audio of it after that."""
        self._task.cancel()

    def report(self, played_samples: int, paused: bool) -> None:
        """Take the client's playback; raises Problem when it can't be."""
        if not self._submit.live:
            message = "an utterance with live=false has no listener; report none"
            raise Problem(400, "invalid_playback", message)
        problem = self._pacer.clock.report(played_samples, paused, time.monotonic())
        if problem is not None:
            raise Problem(400, "invalid_playback", problem, param="played_samples")
        self._pacer.tell()

    def _check_open(self) -> None:
        if self._ended:
            raise Problem(400, "text_ended", "the text of this utterance ended; start another")

    def _touched(self) -> None:
        self.text_at_s = time.monotonic()
        self._changed.set()

    def _close_last(self) -> None:
        segment = self._segments[-1] if self._segments else self._now
        assert segment is not None
        segment.closed = True
        if segment.utterance is not None:
            segment.utterance.close()

    async def _run(self) -> None:
        try:
            while (segment := await self._next_segment()) is not None:
                await self._speak(segment)
        except PlayheadError as error:
            problem = problem_of(error)
            self._service.counters.problems[problem.code] += 1
            self._outlet.problem(problem, self.name)
            self._total.reason = "failed"
        except ConnectionError:  # the client is gone; the reader sees the end, too
            self._total.reason = "cancelled"

    def _finish(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            self._total.reason = "cancelled"
        elif task.exception() is not None:
            logger.error("utterance broke", exc_info=task.exception())
            self._total.reason = "failed"
        self._ended = True
        self._held.close()
        self._send_done()

    async def _next_segment(self) -> _Segment | None:
        """Wait for text worth a slot; None when all is spoken and the text ended."""
        self._now = None
        while True:
            head = self._segments[0] if self._segments else None
            if head is not None and head.text.strip():
                self._now = self._segments.popleft()
                return self._now
            if head is not None and head.closed and (len(self._segments) > 1 or self._ended):
                self._segments.popleft()  # nothing in it but white space
            elif head is None and self._ended:
                return None
            elif head is None:
                self._segments.append(_Segment())
            else:
                self._changed.clear()
                await self._changed.wait()

    async def _speak(self, segment: _Segment) -> None:
        base_samples = self._total.samples
        text, closed = segment.text, segment.closed
        submit = replace(self._submit, text=text, closed=closed)
        num_chars = len(text) + (0 if base_samples else self._num_instruct_chars)
        async with self._service.speaking(submit, self._account, num_chars) as utterance:
            if not base_samples:
                self._outlet.event("utterance.accepted", utterance=self.name)
            segment.utterance = utterance
            if rest := segment.text[len(text) :]:  # it came while the engine was asked
                utterance.append(rest)
            if segment.closed and not closed:
                utterance.close()
            listened = utterance if self._submit.live else None
            with self._pacer.following(listened, base_samples):
                self._pacer.tell()
                async for result in utterance:
                    await self._pass_on(result, base_samples)

    async def _pass_on(self, result: SpeechResult, base_samples: int) -> None:
        if isinstance(result, Pcm):
            await self._send_audio(base_samples + result.start_sample, result.pcm)
        elif isinstance(result, Words):
            self._send_words(result, base_samples)
        elif isinstance(result, Starved):
            end_sample = base_samples + result.end_sample
            self._outlet.event("text.starved", utterance=self.name, end_sample=end_sample)
        else:
            self._finish_segment(result)

    async def _send_audio(self, start_sample: int, pcm: bytes) -> None:
        num_samples = len(pcm) // SAMPLE_BYTES
        frame = audio_frame(self.number, start_sample, pcm)
        await self._outlet.audio(
            frame,
            lambda: self._sent(start_sample + num_samples),
            self._pacer.waiting(self._stalled),
        )
        self._pacer.took(num_samples)

    def _sent(self, end_sample: int) -> None:
        self._service.handed(self._submit.request_id, end_sample - self._total.samples)
        self._total.samples = end_sample
        self.text_at_s = time.monotonic()

    def _send_words(self, words: Words, base_samples: int) -> None:
        base_s = samples_to_s(base_samples)
        moved = [Word(w.text, w.start_s + base_s, w.end_s + base_s) for w in words.words]
        self._total.words += moved
        listed = [
            {"text": w.text, "start_s": round(w.start_s, 4), "end_s": round(w.end_s, 4)}
            for w in moved
        ]
        self._outlet.event("words", utterance=self.name, words=listed, estimated=words.estimated)

    def _finish_segment(self, done: Done) -> None:
        self._total.frames += done.num_frames
        self._total.reason = done.reason
        self._total.guard = self._total.guard or done.guard
        if done.reason != "stop":  # a limit was reached: later text has no place
            self._ended = True
            self._segments.clear()

    def _send_done(self) -> None:
        now_s = time.monotonic()
        clock, live = self._pacer.clock, self._submit.live
        played = clock.played_samples(now_s)
        complete = self._total.reason in ("stop", "length")
        self._outlet.event(
            "utterance.done",
            utterance=self.name,
            reason=self._total.reason,
            guard=self._total.guard or None,
            num_samples=self._total.samples,
            num_frames=self._total.frames if complete else None,
            played_samples=played if live else None,
            heard_text=heard_text(self._total.words, samples_to_s(played)) if live else None,
            playback=clock.source(now_s) if live else None,
        )

    def _stalled(self) -> None:
        self._service.counters.stalled += 1
        self._outlet.abort()
