"""Engine: drain commands, collect, schedule, launch, publish; one thread owns all of its state.

    commands ─▶ step(): drain ─▶ collect ─▶ schedule() ─▶ codec, prefill, frame ─▶ on_results

`post` is the only entry from other threads. A request that breaks gets one Failed and frees its
slot in the same step; the loop goes on. Only a broken device ends it.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from playhead.engine.admission import busy_share, offline_retry_s, retry_s
from playhead.engine.backend import device_runner
from playhead.engine.errors import Busy, DeviceFault, InputError, told
from playhead.engine.intake import FIRST_CHARS, MORE_CHARS, Intake
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
    PlaybackSnapshot,
    Refused,
    Result,
    Starved,
    Submit,
)
from playhead.engine.metrics import EngineMetrics
from playhead.engine.models.loader import Model, load_model
from playhead.engine.outlet import Outlet
from playhead.engine.profile import Profile
from playhead.engine.request import Request
from playhead.engine.runner import MakeRunner
from playhead.engine.scheduler import LIVE, NO_PLAN, SPECULATIVE, Policy, schedule
from playhead.engine.stages import Stages
from playhead.engine.table import RequestTable


class Engine:
    """One model on one device, speaking for many requests at once."""

    def __init__(
        self,
        model: str | Path | Model,
        profile: Profile,
        on_results: Callable[[list[Result]], None],
        *,
        make_runner: MakeRunner = device_runner,
        clock: Callable[[], float] = time.monotonic,
        policy: Policy = schedule,
        commands: "queue.SimpleQueue[Command | None] | None" = None,
    ) -> None:
        """Load the model; `on_results` is called on the engine thread, in order.

        Raises CheckpointError or ConfigError before anything runs.
        """
        self.profile = profile
        self.metrics = EngineMetrics()
        self.model = model if isinstance(model, Model) else load_model(model)
        self._intake = Intake(self.model, profile)
        self._on_results = on_results
        self._clock = clock
        self._policy = policy
        self._commands = queue.SimpleQueue() if commands is None else commands
        self._requests: dict[str, Request] = {}
        runner, self._table = make_runner(self.model, profile), RequestTable(profile.max_streams)
        self._costs = runner.costs()
        self._stages = Stages(
            runner, self._intake, self._table, profile, self.metrics,
            self._costs, clock, self._fail,
        )  # fmt: skip
        self._outlet = Outlet(self._table, self.metrics, self._costs, profile.max_rows)
        self._reading: dict[str, Request] = {}
        """Those with text that was not read yet."""
        self._results: list[Result] = []
        self._stopping = threading.Event()
        self.step_started_s: float | None = None
        """When the step in progress began; None between steps. A watchdog reads it."""

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

    @property
    def idle(self) -> bool:
        """Return whether no request holds a slot and nothing is in flight; any thread."""
        return not self._requests and self._stages.idle

    def run(self) -> None:
        """Run steps until `stop`: the body of the engine thread. Raises DeviceFault."""
        while not self._stopping.is_set():
            wake_s = self.step()
            wait_s = wake_s - self._clock()
            if wait_s <= 0:
                continue
            with contextlib.suppress(queue.Empty):
                first = self._commands.get(timeout=min(wait_s, 3600.0))
                self._drain(self._clock(), first)
        for request in list(self._requests.values()):
            self._end(request, "cancelled")
        self._flush()

    def step(self) -> float:
        """Drain, collect, schedule, launch, publish; return when the next step is due (monotonic).

        Raises DeviceFault once every request has been failed; the engine is of no use then.
        """
        self.step_started_s = started_s = self._clock()
        try:
            return self._step(started_s)
        except DeviceFault as fault:
            for request in list(self._requests.values()):
                self._fail(request, fault)
            self._flush()
            raise
        finally:
            self.step_started_s = None

    def _step(self, started_s: float) -> float:
        self._drain(started_s)
        stages = self._stages
        waited_s, num_before = stages.waited_s, stages.num_landed
        late = stages.flying and started_s >= stages.look_s()
        self._collect()
        now_s = self._clock()
        plan = NO_PLAN
        if stages.codec_free or stages.frame_free(now_s):
            columns = self._table.columns(now_s)
            plan = self._policy(columns, now_s, self.profile, self._margin_s(), self._costs)
        launched = stages.launch(plan, now_s)
        self._flush()  # what is in hand must not wait for what is not
        read = self._read_on()
        num_landed = stages.num_landed
        self._collect(wait=late and not launched)
        wake_s = self._settle()
        self._flush()
        if launched or stages.num_landed > num_before:
            self.metrics.step_s.add(self._clock() - started_s - stages.waited_s + waited_s)
        if stages.num_landed > num_landed or read:
            return self._clock()  # what came after the plan was made may be worth a launch now
        if stages.flying:
            wake_s = min(wake_s, stages.look_s())
        return min(wake_s, plan.wake_s) if plan.idle or not stages.flying else wake_s

    def _margin_s(self) -> float:
        return self.metrics.frame_s.quantile(0.99) + self.metrics.codec_s.quantile(0.99)

    def _drain(self, now_s: float, command: Command | None = None) -> None:
        """Take all commands that came, `command` first; playback in a row is written at once."""
        played: dict[int, PlaybackSnapshot] = {}
        requests, take = self._requests, self._commands.get_nowait
        with contextlib.suppress(queue.Empty):
            while True:
                if type(command) is Playback:
                    snapshot = command.snapshot
                    request = requests.get(snapshot.request_id)
                    if request is not None:
                        slot = request.slot
                        if slot in played:
                            self._play(played)
                        played[slot] = request.playback = snapshot
                elif command is not None:
                    self._play(played)
                    self._handle(command, now_s)
                command = take()
        self._play(played)

    def _handle(self, command: Append | Cancel | Close | Playback | Submit, now_s: float) -> None:
        assert not isinstance(command, Playback)
        if isinstance(command, Submit):
            self._submit(command, now_s)
            return
        request = self._requests.get(command.request_id)
        if request is None:
            return  # ended already: late commands are normal
        if isinstance(command, Cancel):
            self._end(request, "cancelled")
            return
        try:
            if isinstance(command, Append):
                self._intake.push(request, command.text)
            elif request.feed is not None:
                request.feed.close()
        except Exception as error:  # only this request ends
            self._fail(request, error)
            return
        if request.id not in self._reading:
            self._read(request, now_s, FIRST_CHARS)

    def _read(self, request: Request, now_s: float, most: int) -> None:
        """Read up to `most` characters of a request's text, and on until its next row is known."""
        feed = request.feed
        self._reading.pop(request.id, None)
        if feed is None:
            return
        self._stages.segments.end_run(request)
        try:
            while feed.read(most) and not request.text_known:
                continue
        except Exception as error:  # the front end choked on this text: only this request ends
            self._fail(request, error)
            return
        if feed.unread:
            self._reading[request.id] = request
        if request.first_text_s is None and feed.speakable:
            request.first_text_s = now_s
        self._table.update(request)
        if request.text_wait_since_s is not None and request.text_known:
            self.metrics.text_wait_s += now_s - request.text_wait_since_s
            request.text_wait_since_s = None

    def _read_on(self) -> bool:
        """Read a little of a text that waits, the longest waiting one; return if any did."""
        request = next(iter(self._reading.values()), None)
        if request is not None:
            self._read(request, self._clock(), MORE_CHARS)
        return request is not None

    def _play(self, played: dict[int, PlaybackSnapshot]) -> None:
        """Take the newest snapshot of each listener, by slot; empties `played`."""
        if not played:
            return
        self.metrics.saw_playback([snapshot.source for snapshot in played.values()])
        self._table.played(played)
        for snapshot in played.values() if self.metrics.speculative else ():
            request = self._requests[snapshot.request_id]
            if request.kind == SPECULATIVE and not request.frozen:
                self._stages.segments.end_run(request)
                request.confirmed = True
                self.metrics.speculative -= 1
                self.metrics.live += 1
                self._table.update(request)
        played.clear()

    def _submit(self, submit: Submit, now_s: float) -> None:
        try:
            if submit.request_id in self._requests:
                raise InputError(f"request id {submit.request_id!r} is in use; choose another")
            request = self._admit(submit, now_s)
        except DeviceFault:
            raise
        except Exception as error:  # whatever is wrong with it harms nobody else
            self.metrics.refused += 1
            self.metrics.refused_busy += isinstance(error, Busy)
            wait_s = error.retry_s if isinstance(error, Busy) else None
            reason = told(error, submit.request_id)
            self._results.append(Refused(submit.request_id, *reason, wait_s))
            return
        self._requests[request.id] = request
        self.metrics.accepted += 1
        self.metrics.count(request.kind, 1)
        self._results.append(Accepted(request.id))
        if submit.text:
            self._handle(Append(request.id, submit.text), now_s)
        if submit.closed:
            self._handle(Close(request.id), now_s)

    def _admit(self, submit: Submit, now_s: float) -> Request:
        """Give a valid request a slot; raises Busy with a time to retry when there is no room."""
        valid = self._intake.check(submit)
        if submit.live and not submit.speculative and not self._stages.free_slots:
            self._drop_speculative()
        while self._stages.leaving and self._stages.flying and not self._stages.free_slots:
            self._collect(wait=True)  # a slot that was left is free once its batches have landed
        wait_s = self._retry_s(submit)
        if wait_s is not None:
            message = f"{len(self._requests)} requests are live; try again in {wait_s:.1f} s"
            raise Busy(message, wait_s)
        return self._stages.open(valid, now_s)

    def _retry_s(self, submit: Submit) -> float | None:
        """Return None to admit; speculative streams count beside live ones only for their kind."""
        metrics, num_free = self.metrics, len(self._stages.free_slots)
        if not submit.live:
            return offline_retry_s(metrics.offline, num_free, self.profile)
        num_live = metrics.live + (metrics.speculative if submit.speculative else 0)
        return retry_s(num_live, num_free, self._costs, self.profile)

    def _drop_speculative(self) -> None:
        """Make room for a confirmed request: the newest speculative one gives way."""
        for request in reversed(self._table.requests):
            if request.kind == SPECULATIVE:
                self._fail(request, Busy("a confirmed turn took its place; submit it again", 1.0))
                return

    def _collect(self, wait: bool = False) -> None:
        """Take what the device has done; with `wait`, wait for the batch that is due first."""
        for batch, result in self._stages.collect(wait):
            self._results += self._outlet.publish(batch, result, self._clock())
            self._flush()
            for slot in batch.slots[result.broken].tolist():
                self._fail(self._table.request(slot), ValueError("the codec returned no numbers"))

    def _settle(self) -> float:
        """End those whose last sample is out; return when one that waits for text needs a look."""
        now_s, wake_s = self._clock(), float("inf")
        for request in self._table.quiet():
            self._results += self._outlet.flush(request, now_s)
            if request.feed is not None and request.feed.exhausted:
                request.ended = True  # nothing to speak is left, and none comes
            if request.ended:
                self._end(request, "length" if request.reached_limit else "stop")
            elif request.waits_for_text:
                wake_s = min(wake_s, self._await_text(request, now_s))
        return wake_s

    def _await_text(self, request: Request, now_s: float) -> float:
        """All text so far is spoken: say so, and let its last sound end before the sender is dry.

        Return when to look again.
        """
        num_published = self._table.num_published(request.slot)
        if not num_published:
            return float("inf")
        if request.text_wait_since_s is None:
            request.text_wait_since_s = now_s
        if not self._table.starved(request.slot):
            self._table.starve(request.slot)
            self._results.append(Starved(request.id, num_published))
        if request.kind != LIVE or request.frozen or request.feed is None:
            return float("inf")
        spare_s = self._table.slack_s(request.slot, now_s) - self.profile.guard_s
        if spare_s > 0:
            return now_s + spare_s
        lingers = request.feed.linger()
        self._table.update(request)
        return now_s if lingers else float("inf")

    def _end(self, request: Request, reason: DoneReason) -> None:
        num_samples = self._table.num_published(request.slot)
        num_frames, _ = self._table.position(request.slot)
        self._stages.segments.end_run(request)
        if request.feed is not None and reason != "cancelled":
            request.pending_words += request.feed.take_rest()
        self._results.extend(request.timed_words(num_frames))
        self._release(request)
        heard = request.playback
        if reason == "cancelled":
            self.metrics.cancelled += 1
            if heard is not None:
                self.metrics.unheard_samples += num_samples - heard.heard_samples
        else:
            self.metrics.done += 1
        self.metrics.published_samples += num_samples
        self.metrics.runaways += bool(request.guard)
        self._results.append(Done(request.id, reason, num_samples, num_frames, request.guard))

    def _fail(self, request: Request, error: Exception) -> None:
        """End one request with an error; its slot is free before the next step."""
        if request.released:
            return
        self._release(request)
        self.metrics.failed += 1
        self._results.append(Failed(request.id, *told(error, request.id)))

    def _release(self, request: Request) -> None:
        """Forget a request; its slot is free as soon as no batch in flight holds it."""
        del self._requests[request.id]
        self._reading.pop(request.id, None)
        self.metrics.count(request.kind, -1)
        self._stages.close(request)

    def _flush(self) -> None:
        if self._results:
            results, self._results = self._results, []
            self._on_results(results)
