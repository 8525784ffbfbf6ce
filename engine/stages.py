"""Stages: batches of requests through prefill, frame and codec, and what of them is in flight.

A launch returns at once; `collect` gives finished batches back in order. At most one frame batch
runs with one more queued behind it, so the device does not wait for the host; codec batches of
one plan fly together. Engine thread only.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from playhead.engine.admission import StepCosts
from playhead.engine.errors import DeviceFault
from playhead.engine.flight import Flight
from playhead.engine.guard import RunawayGuard
from playhead.engine.intake import Intake, ValidSubmit
from playhead.engine.metrics import EngineMetrics, Window
from playhead.engine.profile import Profile
from playhead.engine.request import Request
from playhead.engine.runner import CodecResult, FrameResult, Runner
from playhead.engine.scheduler import Plan
from playhead.engine.segments import Fail, Segments
from playhead.engine.table import RequestTable, Slots

T = TypeVar("T")
Clock = Callable[[], float]
QUEUE_LEAD_S = 0.0005
"""The next frame batch is queued so long before the last one may be done, or a step's measured host
time (p90) where that is longer: a device that waited for its host idled 7 % of 64 rows' time."""


@dataclass(slots=True)
class Batch(Generic[T]):
    """Requests that share one launch."""

    slots: Slots
    num_frames: int
    """Frames of each request."""
    flight: Flight[T]
    launched_s: float
    due_s: float
    """When it should be done, by what such batches took before."""
    done_s: float | None = None
    """When it was done, where its launch returned no earlier."""


class Stages:
    """The three stages of the model on one runner."""

    def __init__(
        self,
        runner: Runner,
        intake: Intake,
        table: RequestTable,
        profile: Profile,
        metrics: EngineMetrics,
        costs: StepCosts,
        clock: Clock,
        fail: Fail,
    ) -> None:
        """Take the parts; `fail` ends one request with an error."""
        self.free_slots = list(range(profile.max_streams, 0, -1))
        self._frames: deque[Batch[FrameResult]] = deque()
        self._codecs: deque[Batch[CodecResult]] = deque()
        self._runner, self._intake, self._table, self._profile = runner, intake, table, profile
        self._metrics, self._costs, self._clock, self._fail = metrics, costs, clock, fail
        self._guard = RunawayGuard(profile.max_streams)
        self.segments = Segments(runner, intake, table, self._guard, fail)
        self._frame_done_s = self._codec_done_s = 0.0
        self._early_s = Window()
        """How much sooner than predicted frames were done: a codec batch beside them slows some."""
        self._worked_s = 0.0
        """Up to when it is counted that something flies."""
        self._leaving: set[int] = set()
        """Slots of released requests that a batch in flight may still hold."""
        self.waited_s = 0.0
        """Time spent waiting for the device."""
        self.num_landed = 0
        """Batches collected so far."""

    # -- streams

    def open(self, valid: ValidSubmit, now_s: float) -> Request:
        """Give a checked request a slot and its row. Raises TextTooLong or Busy."""
        slot = self.free_slots[-1]
        request = self._intake.request(valid, slot, now_s)
        sampling, seed = valid.sampling, valid.submit.seed
        request.prompt_rows = self._runner.open(slot, valid.prompt, sampling, seed)
        self.free_slots.pop()
        self._table.add(request)
        self._guard.open(slot)
        return request

    def close(self, request: Request) -> None:
        """Make no more of a request; its slot is free once no batch in flight holds it."""
        request.ended = request.released = True
        self._table.remove(request)
        self._table.mark(request, True)
        self._table.end_run(request.slot)
        self._leaving.add(request.slot)
        self._free_left()

    @property
    def leaving(self) -> bool:
        """Return whether a slot waits for its batches to land before it is free."""
        return bool(self._leaving)

    @property
    def idle(self) -> bool:
        """Return whether every slot is free, so that nothing flies either; any thread."""
        return len(self.free_slots) == self._profile.max_streams

    def _free_left(self) -> None:
        for slot in [slot for slot in self._leaving if not self._table.flying(slot)]:
            self._leaving.remove(slot)
            self._runner.close(slot)
            self.free_slots.append(slot)

    # -- launches

    def launch(self, plan: Plan, now_s: float) -> bool:
        """Launch what has room of a plan; return whether anything was.

        The codec goes first: its samples are the next to be heard.
        """
        if plan.idle:
            return False
        requests, launched = self._table.requests, False
        # Rows count in the table as it is now: a launch that fails takes requests out.
        prefill = [requests[row] for row in plan.prefill]
        slots = self._table.slots(plan.frame)
        if plan.codec_rows and self.codec_free:
            self.launch_codec(self._table.slots(plan.codec_rows), plan.codec_frames)
            launched = True
        if (plan.frame or prefill) and self.frame_free(now_s):
            self.prefill(prefill)
            self.launch_frames(slots)
            launched = True
        return launched

    def prefill(self, requests: Sequence[Request]) -> None:
        """Run the prompts of requests; one that holds its segment's text takes it now."""
        ready: list[Request] = []
        for request in requests:
            try:
                if not request.ended and request.feed and request.feed.in_prompt:
                    num_frames, _ = self._table.position(request.slot)
                    self.segments.restart(request, request.feed.segment_body(num_frames))
            except Exception as error:
                self._fail(request, error)
            if not request.ended:
                ready.append(request)
        if not ready:
            return
        started_s = self._clock()
        try:
            self._runner.prefill([request.slot for request in ready])
        except Exception as error:
            self._broken([request.slot for request in ready], error)
            return
        num_rows = sum(request.prompt_rows for request in ready)
        self._costs.saw_prompt(num_rows, self._clock() - started_s)
        self._metrics.prefill_rows += len(ready)
        for request in ready:
            request.needs_prefill = False
            request.prompt_rows = 0
            self._table.begin_segment(request.slot)
            self._table.update(request)

    def launch_frames(self, slots: Slots) -> None:
        """Start the next frame of slots; recorded speech takes its frame from the recording."""
        asked = self._table.without_run(slots).nonzero()[0]
        if len(asked):
            now_s, kept = self._clock(), np.ones(len(slots), np.bool_)
            for i, slot in zip(asked.tolist(), slots[asked].tolist(), strict=True):
                kept[i] = self.segments.next_run(self._table.request(slot), now_s)
            slots = slots[kept]
        if len(slots):
            self._launch_rows(slots)

    def _launch_rows(self, slots: Slots) -> None:
        ids, may_end = self._table.next_rows(slots)
        started_s = self._clock()
        try:
            flight = self._runner.launch_frame(slots.tolist(), ids, may_end)
        except Exception as error:
            self._broken(slots.tolist(), error)
            return
        began_s = max(started_s, self._frames[-1].due_s) if self._frames else started_s
        due_s = began_s + self._costs.frame_s(len(slots))
        done_s = self._done_s(flight)
        self._launched(started_s)
        self._frames.append(Batch(slots, 1, flight, started_s, due_s, done_s))
        self._table.launched(slots, 1, due_s)

    def launch_codec(self, members: Slots, lengths: Sequence[int]) -> None:
        """Start decoding so many frames of each slot; those of equal length go together."""
        different = sorted(set(lengths))
        for num_frames in different:
            slots = members if len(different) == 1 else members[np.equal(lengths, num_frames)]
            codes = self._table.take(slots, num_frames)
            started_s = self._clock()
            try:
                flight = self._runner.launch_codec(slots.tolist(), codes)
            except Exception as error:
                self._broken(slots.tolist(), error)
                continue
            began_s = max(started_s, self._codecs[-1].due_s) if self._codecs else started_s
            due_s = began_s + self._costs.codec_s(num_frames * len(slots))
            done_s = self._done_s(flight)
            self._launched(started_s)
            batch = Batch(slots, num_frames, flight, started_s, due_s, done_s)
            self._codecs.append(batch)
            self._table.launched(slots, num_frames, due_s)
            for slot in self._table.new_to_codec(slots):
                self._table.request(slot).first_codec_s = started_s

    # -- flights

    @property
    def flying(self) -> bool:
        """Return whether any batch is in flight."""
        return bool(self._frames or self._codecs)

    @property
    def codec_free(self) -> bool:
        """Return whether codec batches may be launched: none flies."""
        return not self._codecs

    def frame_free(self, now_s: float) -> bool:
        """Return whether a frame batch may be launched: none flies, or the only one is due."""
        if not self._frames:
            return True
        return len(self._frames) == 1 and now_s >= self._queue_s(self._frames[0])

    def look_s(self) -> float:
        """Return when to look next: a batch should be done, or the next one be queued."""
        looks = [self._codecs[0].due_s] if self._codecs else []
        if len(self._frames) == 1:
            looks.append(self._queue_s(self._frames[0]))
        elif self._frames:
            looks.append(self._frames[0].due_s)
        return min(looks, default=float("inf"))

    def _queue_s(self, batch: Batch[FrameResult]) -> float:
        if not self._profile.launch_ahead:
            return batch.due_s
        lead_s = max(QUEUE_LEAD_S, self._metrics.step_s.quantile(0.9))
        lead_s += max(self._early_s.quantile(0.9), 0.0)
        return batch.due_s - min(lead_s, (batch.due_s - batch.launched_s) / 2)

    def collect(self, wait: bool) -> Iterator[tuple[Batch[CodecResult], CodecResult]]:
        """Take finished batches; yield those of the codec. `wait` waits for the first one due."""
        frame_first = bool(self._frames) and not (
            self._codecs and self._codecs[0].due_s <= self._frames[0].due_s
        )
        yield from self._collect_codecs(wait and not frame_first)
        self._collect_frames(wait and frame_first)

    def _collect_frames(self, wait: bool) -> None:
        while self._frames and (wait or self._frames[0].flight.ready()):
            batch, wait = self._frames.popleft(), False
            made = self._finish(batch)
            # A batch that was queued began when the one before it was done.
            took_s, self._frame_done_s = self._worked(batch, self._frame_done_s)
            if made is not None:
                self._early_s.add(self._costs.frame_s(len(batch.slots)) - took_s)
                self._costs.saw_frame(len(batch.slots), took_s)
                self._metrics.saw_frames(len(batch.slots), took_s)
                self._store(batch, made)

    def _store(self, batch: Batch[FrameResult], made: FrameResult) -> None:
        """Keep the codes of a frame batch; rows that ended made none."""
        slots, codes = batch.slots, made.codes
        looked_at = (made.ended | self._table.special(slots)).nonzero()[0]
        if len(looked_at):
            kept = np.ones(len(slots), np.bool_)
            for i, slot in zip(looked_at.tolist(), slots[looked_at].tolist(), strict=True):
                request = self._table.request(slot)
                num_behind = sum(slot in behind.slots for behind in self._frames)
                kept[i] = self.segments.landed(request, bool(made.ended[i]), num_behind)
            slots, codes = slots[kept], codes[kept]
        self._table.store(slots, codes)
        in_tail = self._table.in_tail(batch.slots)
        for i in self._guard.saw_codes(batch.slots, made.codes, in_tail):
            self.segments.stop(self._table.request(batch.slots[i]), "repetition")

    def _collect_codecs(self, wait: bool) -> Iterator[tuple[Batch[CodecResult], CodecResult]]:
        """Yield finished codec batches; with `wait` the oldest is waited for."""
        while self._codecs and (wait or self._codecs[0].flight.ready()):
            batch, wait = self._codecs.popleft(), False
            result = self._finish(batch)
            took_s, self._codec_done_s = self._worked(batch, self._codec_done_s)
            if result is not None:
                num_frames = batch.num_frames * len(batch.slots)
                self._costs.saw_codec(num_frames, took_s)
                self._metrics.saw_codec(num_frames, took_s)
                yield batch, result  # what is heard next goes before the guard
                in_tail = self._table.in_tail(batch.slots)
                for i in self._guard.saw_samples(batch.slots, result.pcm, in_tail):
                    self.segments.stop(self._table.request(batch.slots[i]), "silence")

    def _worked(self, batch: Batch[T], before_s: float) -> tuple[float, float]:
        """Return how long a batch took, by the device or from when it could begin, and its end."""
        done_s = self._clock() if batch.done_s is None else batch.done_s
        took_s = batch.flight.took_s()
        if took_s is None:
            took_s = done_s - max(batch.launched_s, before_s)
        self._costs.saw_work(took_s, max(done_s - self._worked_s, 0.0))
        self._worked_s = max(done_s, self._worked_s)
        return took_s, done_s

    def _launched(self, started_s: float) -> None:
        """Count from here if nothing flew before."""
        if not self.flying:
            self._worked_s = started_s

    def _done_s(self, flight: Flight[T]) -> float | None:
        """Return the time if a batch just launched is done: it ran within the launch."""
        return self._clock() if flight.ready() else None

    def _finish(self, batch: Batch[T]) -> T | None:
        asked_s = self._clock()
        try:
            result: T | None = batch.flight.result()
        except Exception as error:
            result = None
            self._broken(batch.slots.tolist(), error)
        self.waited_s += self._clock() - asked_s
        self._table.landed(batch.slots, batch.num_frames)
        self.num_landed += 1
        if self._leaving:
            self._free_left()
        return result

    def _broken(self, slots: Sequence[int], error: Exception) -> None:
        """End the requests of a batch that failed; a broken device ends the engine."""
        if isinstance(error, DeviceFault):
            raise error
        for slot in slots:
            self._fail(self._table.request(slot), error)
