"""Engine: drain commands, schedule, launch, publish; one thread owns all of its state.

    commands ─▶ step(): drain ─▶ schedule() ─▶ codec, prefill, frame batches ─▶ on_results

`post` is the only entry from other threads. A request that breaks gets one Failed and frees its
slot in the same step; the loop goes on.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from playhead.engine.admission import StepCosts, busy_share, retry_s
from playhead.engine.errors import InputError, PlayheadError, TextTooLong
from playhead.engine.intake import Intake
from playhead.engine.messages import (
    Accepted,
    Append,
    Cancel,
    Close,
    Command,
    Done,
    DoneReason,
    Failed,
    Playback,
    Refused,
    Result,
    Starved,
    Submit,
)
from playhead.engine.metrics import EngineMetrics
from playhead.engine.models.loader import load_model
from playhead.engine.profile import Profile
from playhead.engine.request import Request, columns_of
from playhead.engine.runner import MakeRunner, eager_runner
from playhead.engine.scheduler import LIVE, OFFLINE, CodecRow, schedule
from playhead.engine.text.feed import TextFeed

log = logging.getLogger(__name__)


class Engine:
    """One model on one device, speaking for many requests at once."""

    def __init__(
        self,
        model: str | Path,
        profile: Profile,
        on_results: Callable[[list[Result]], None],
        *,
        make_runner: MakeRunner = eager_runner,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load the model; `on_results` is called on the engine thread, in order.

        Raises CheckpointError or ConfigError before anything runs.
        """
        self.profile = profile
        self.metrics = EngineMetrics()
        self.model = load_model(model)
        self._intake = Intake(self.model, profile)
        self._runner = make_runner(self.model, profile)
        self._on_results = on_results
        self._clock = clock
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._requests: dict[str, Request] = {}
        self._free_slots = list(range(profile.max_streams, 0, -1))
        self._costs = StepCosts()
        self._results: list[Result] = []
        self._stopping = threading.Event()

    @property
    def voices(self) -> tuple[str, ...]:
        """Names of the speakers of the loaded checkpoint."""
        return self.model.config.voices

    @property
    def languages(self) -> tuple[str, ...]:
        """Names of its languages; `auto` is always allowed too."""
        return self.model.config.languages

    @property
    def exact_times(self) -> bool:
        """Word times of spoken text have a verified error bound."""
        return self._intake.exact_times

    def post(self, command: Command) -> None:
        """Hand a command to the engine; any thread, never blocks."""
        self._commands.put(command)

    def stop(self) -> None:
        """End `run` after the step in progress; live requests end as cancelled."""
        self._stopping.set()
        self._commands.put(None)

    def load(self) -> float:
        """Return 0..1: predicted busy share against its limit, or slots in use; any thread."""
        live = self.metrics.live
        share = busy_share(live, self._costs, self.profile) / self.profile.busy_limit
        return min(max(share, live / self.profile.max_streams), 1.0)

    def run(self) -> None:
        """Run steps until `stop`: the body of the engine thread."""
        while not self._stopping.is_set():
            wake_s = self.step()
            wait_s = wake_s - self._clock()
            if wait_s <= 0:
                continue
            with contextlib.suppress(queue.Empty):
                command = self._commands.get(timeout=min(wait_s, 3600.0))
                self._handle(command, self._clock())
        for request in list(self._requests.values()):
            self._end(request, "cancelled")
        self._flush()

    def step(self) -> float:
        """Drain, schedule, launch, publish; return when the next step is due (monotonic)."""
        started_s = self._clock()
        self._drain(started_s)
        requests = list(self._requests.values())
        now_s = self._clock()
        margin_s = self.metrics.frame_s.quantile(0.99) + self.metrics.codec_s.quantile(0.99)
        plan = schedule(columns_of(requests, now_s), now_s, self.profile, margin_s)
        if plan.codec:
            self._decode([(requests[row.row], row) for row in plan.codec])
        if plan.prefill:
            self._prefill([requests[i] for i in plan.prefill])
        if plan.frame:
            self._make_frames([r for i in plan.frame if not (r := requests[i]).ended])
        wake_s = min(plan.wake_s, self._settle(requests))
        self._flush()
        if not plan.idle:
            self.metrics.step_s.add(self._clock() - started_s)
        return wake_s

    def _drain(self, now_s: float) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._handle(self._commands.get_nowait(), now_s)

    def _handle(self, command: Command | None, now_s: float) -> None:
        if command is None:
            return
        if isinstance(command, Submit):
            self._submit(command, now_s)
            return
        if isinstance(command, Playback):
            request = self._requests.get(command.snapshot.request_id)
            if request is not None and request.kind != OFFLINE:
                request.playback = command.snapshot
            return
        request = self._requests.get(command.request_id)
        if request is None:
            return  # ended already: late commands are normal
        try:
            if isinstance(command, Append):
                self._push_text(request, command.text, now_s)
            elif isinstance(command, Close) and request.feed is not None:
                request.feed.close()
            elif isinstance(command, Cancel):
                self._end(request, "cancelled")
        except Exception as error:  # the front end choked on this text: only this request ends
            self._fail(request, error)

    def _submit(self, submit: Submit, now_s: float) -> None:
        try:
            if submit.request_id in self._requests:
                raise InputError(f"request id {submit.request_id!r} is in use; choose another")
            request = self._admit(submit, now_s)
        except PlayheadError as error:
            self.metrics.refused += 1
            self._results.append(Refused(submit.request_id, error.code, str(error)))
            return
        if request is None:
            return
        self._requests[request.id] = request
        self.metrics.accepted += 1
        self.metrics.live += request.kind != OFFLINE
        self._results.append(Accepted(request.id))
        if submit.text:
            self._handle(Append(request.id, submit.text), now_s)
        if submit.closed:
            self._handle(Close(request.id), now_s)

    def _admit(self, submit: Submit, now_s: float) -> Request | None:
        """Give a valid request a slot; refuse with a time to retry when there is no room."""
        valid = self._intake.check(submit)
        num_live = self.metrics.live if submit.live else 0
        wait_s = retry_s(num_live, len(self._free_slots), self._costs, self.profile)
        if wait_s is not None:
            self.metrics.refused += 1
            message = f"{len(self._requests)} requests are live; try again in {wait_s:.1f} s"
            self._results.append(Refused(submit.request_id, "busy", message, wait_s))
            return None
        slot = self._free_slots.pop()
        self._runner.open(slot, valid.prompt, valid.sampling, submit.seed)
        return self._intake.request(valid, slot, now_s)

    def _push_text(self, request: Request, text: str, now_s: float) -> None:
        feed = request.feed
        if feed is None:
            raise InputError("a recording takes no text; submit text and recording apart")
        if feed.closed:
            raise InputError("the text was closed; submit a new request for more")
        total = feed.num_chars + len(text)
        if total > self.profile.max_text_chars:
            raise TextTooLong(
                f"{total} characters, allowed are {self.profile.max_text_chars}; split the text"
            )
        feed.push(text)
        if request.first_text_s is None and feed.speakable:
            request.first_text_s = now_s

    def _prefill(self, requests: list[Request]) -> None:
        ready: list[Request] = []
        for request in (r for r in requests if not r.ended):
            try:
                if request.submit.text_mode == "full" and request.feed is not None:
                    body = request.feed.segment_body(request.num_frames)
                    self._runner.restart(request.slot, self._intake.prompt(request.submit, body))
                ready.append(request)
            except Exception as error:
                self._fail(request, error)
        try:
            self._runner.prefill([r.slot for r in ready])
        except Exception as error:
            for request in ready:
                self._fail(request, error)
            return
        for request in ready:
            request.needs_prefill = False
            request.segment_frames = 0
        self.metrics.prefill_rows += len(ready)

    def _make_frames(self, requests: list[Request]) -> None:
        for request in requests:
            if request.feed is None:
                request.record_frame()
        rows = [(r, r.feed) for r in requests if r.feed is not None]
        if not rows:
            return
        started_s = self._clock()
        try:
            text_ids = [feed.next_row(r.num_frames, r.segment_frames) for r, feed in rows]
            may_end = [feed.may_end for _, feed in rows]
            result = self._runner.frame([r.slot for r, _ in rows], text_ids, may_end)
        except Exception as error:
            for request, _ in rows:
                self._fail(request, error)
            return
        took_s = self._clock() - started_s
        self._costs.saw_frame(len(rows), took_s)
        self.metrics.saw_frames(len(rows), took_s)
        for (request, feed), codes, ended in zip(rows, result.codes, result.ended, strict=True):
            if ended:
                self._segment_ended(request, feed)
                continue
            request.undecoded.append(codes)
            request.num_frames += 1
            request.segment_frames += 1
            if request.num_frames >= request.max_frames:
                request.ended = request.reached_limit = True
            elif feed.overdue(request.segment_frames):
                request.reached_limit = True
                self._segment_ended(request, feed)

    def _segment_ended(self, request: Request, feed: TextFeed) -> None:
        """End the speech, or go on with the next segment: fresh talker, same codec and seed."""
        if not feed.more_segments:
            request.ended = True
            return
        request.reached_limit = False
        feed.begin_segment()
        request.needs_prefill = True
        if request.submit.text_mode == "streaming":
            self._runner.restart(request.slot, self._intake.prompt(request.submit, []))

    def _decode(self, rows: list[tuple[Request, CodecRow]]) -> None:
        """Run codec batches: rows of equal length go together."""
        by_length: dict[int, list[Request]] = {}
        for request, row in rows:
            by_length.setdefault(row.num_frames, []).append(request)
        for num_frames, requests in sorted(by_length.items()):
            codes = np.stack([r.take_codes(num_frames) for r in requests])
            started_s = self._clock()
            try:
                pcm = self._runner.codec([r.slot for r in requests], codes)
            except Exception as error:
                for request in requests:
                    self._fail(request, error)
                continue
            now_s = self._clock()
            self._costs.saw_codec(num_frames * len(requests), now_s - started_s)
            self.metrics.saw_codec(num_frames * len(requests), now_s - started_s)
            for request, samples in zip(requests, pcm, strict=True):
                if np.isfinite(samples).all():
                    self._publish(request, samples, num_frames, now_s)
                else:
                    self._fail(request, ValueError("the codec returned no numbers"))

    def _publish(
        self, request: Request, samples: np.ndarray, num_frames: int, now_s: float
    ) -> None:
        first = request.published_samples == 0
        late_s = 0.0 if request.starved else -request.slack_s(now_s)
        out = request.publish(samples, num_frames, now_s)
        self._results.extend(out)
        if not out:
            return
        if first:
            self.metrics.trimmed_samples += request.trim.dropped_samples
            self.metrics.first_audio_s.add(now_s - (request.first_text_s or request.arrival_s))
        elif late_s > 0 and request.kind == LIVE:
            self.metrics.late_chunks += 1
            self.metrics.late_s += late_s

    def _settle(self, requests: list[Request]) -> float:
        """End those whose last sample is out; return when one that waits for text needs a look."""
        now_s = self._clock()
        wake_s = float("inf")
        for request in requests:
            if request.id not in self._requests or request.undecoded:
                continue
            if request.feed is not None and request.feed.exhausted:
                request.ended = True  # nothing to speak is left, and none comes
            if request.ended:
                self._end(request, "length" if request.reached_limit else "stop")
            elif request.waits_for_text and not request.needs_prefill:
                wake_s = min(wake_s, self._await_text(request, now_s))
            elif request.text_wait_since_s is not None and request.published_samples:
                self.metrics.text_wait_s += now_s - request.text_wait_since_s
                request.text_wait_since_s = None
        return wake_s

    def _await_text(self, request: Request, now_s: float) -> float:
        """All text so far is spoken: say so, and let its last sound end before the sender is dry.

        Return when to look again.
        """
        if request.text_wait_since_s is None:
            request.text_wait_since_s = now_s
        if not request.published_samples:
            return float("inf")
        if not request.starved:
            request.starved = True
            self._results.append(Starved(request.id, request.published_samples))
        if request.kind != LIVE or request.frozen or request.feed is None:
            return float("inf")
        spare_s = request.slack_s(now_s) - self.profile.guard_s
        if spare_s > 0:
            return now_s + spare_s
        return now_s if request.feed.linger() else float("inf")

    def _end(self, request: Request, reason: DoneReason) -> None:
        if request.feed is not None and reason != "cancelled":
            request.pending_words += request.feed.take_rest()
        self._results.extend(request.timed_words())
        self._release(request)
        heard = request.playback
        if reason == "cancelled":
            self.metrics.cancelled += 1
            if heard is not None:
                self.metrics.unheard_samples += request.published_samples - heard.heard_samples
        else:
            self.metrics.done += 1
        self.metrics.published_samples += request.published_samples
        self._results.append(
            Done(request.id, reason, request.published_samples, request.num_frames)
        )

    def _fail(self, request: Request, error: Exception) -> None:
        """End one request with an error; its slot is free before the next step."""
        if request.id not in self._requests:
            return
        known = isinstance(error, PlayheadError)
        if not known:
            log.exception("request failed", extra={"request_id": request.id})
        self._release(request)
        self.metrics.failed += 1
        code = error.code if isinstance(error, PlayheadError) else "engine_failure"
        message = str(error) if known else f"{type(error).__name__}: {error}"
        self._results.append(Failed(request.id, code, message))

    def _release(self, request: Request) -> None:
        del self._requests[request.id]
        self._free_slots.append(request.slot)
        self.metrics.live -= request.kind != OFFLINE
        request.ended = True
        request.undecoded.clear()

    def _flush(self) -> None:
        if self._results:
            results, self._results = self._results, []
            self._on_results(results)
