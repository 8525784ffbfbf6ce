"""World: one real engine in virtual time, its callers and listeners; what became of every call.

The engine, its scheduler, admission, stages and clocks are the product's own. Only the runner
computes nothing, and time passes as the step times and the calls say.
"""

import heapq
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from playhead.engine.engine import Engine
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
    Starved,
    Submit,
)
from playhead.engine.models.loader import Model, load_model
from playhead.engine.profile import Profile
from playhead.engine.replay_runner import ReplayRunner, Speech
from playhead.engine.replay_times import StepTimes
from playhead.engine.scheduler import Policy
from playhead.engine.units import FRAME_S, FRAME_SAMPLES, SAMPLE_BYTES, samples_to_s
from playhead.worker.simulate.listeners import Listener, RemoteListener, RoomListener
from playhead.worker.simulate.load import Call
from playhead.worker.simulate.policies import POLICIES, SERIAL
from playhead.worker.simulate.trace import Recorder

LOOK_S = 20e-6
"""Host time of a step that launches nothing."""
BEGIN_S = 1000.0
"""The virtual clock starts here: a monotonic clock never starts at 0."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The engine of a simulation."""

    times: StepTimes
    profile: Profile
    policy: str = "ours"


@dataclass(slots=True)
class Outcome:
    """What became of a call."""

    call: Call
    first_audio_s: float | None = None
    """From its first text to its first published sample."""
    refused: bool = False
    retry_s: float | None = None
    refused_after_s: float = 0.0
    """From asking to being told."""
    done: str = ""
    """Why it ended, or empty while it runs."""
    gaps_s: list[float] = field(default_factory=list)
    network_gaps: int = 0
    stretched_s: float = 0.0
    unheard_s: float | None = None
    """Made and not heard when its listener interrupted."""
    ahead_s: float | None = None
    """Published and not yet played at that moment."""
    largest_chunk_s: float = 0.0


@dataclass(slots=True)
class _Live:
    outcome: Outcome
    listener: Listener
    published: int = 0
    cut_heard: int | None = None


@cache
def small_model() -> Model:
    """Return a synthetic checkpoint of tiny shapes: its config and text front end are used."""
    from playhead.engine.models.synthetic import write_checkpoint

    folder = Path(tempfile.mkdtemp(prefix="playhead-simulate-"))
    return load_model(write_checkpoint(folder, "tiny"))


class World:
    """One engine; `now_s` moves only here."""

    def __init__(
        self,
        setup: Setup,
        on_step: Callable[["World"], None] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Start an idle engine; `on_step` looks on after every step."""
        self.now_s = BEGIN_S
        self.outcomes: list[Outcome] = []
        self.live: dict[str, _Live] = {}
        self._ended: dict[str, _Live] = {}
        self.most_live = 0
        self._speeches: dict[int, Speech] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._num_events = 0
        self._wake_s = float("inf")
        self._on_step = on_step
        times = setup.times
        if setup.policy in SERIAL:
            times = times.one_stream()
        self.runner = ReplayRunner(times, self._now, self._sleep_until, self._speeches.__getitem__)
        self.policy: Policy = POLICIES[setup.policy](self.runner)
        if recorder is None:
            self.engine = Engine(
                small_model(), setup.profile, self._take, clock=self._now, policy=self.policy,
                make_runner=lambda model, profile: self.runner,
            )  # fmt: skip
        else:
            self.engine = Engine(
                small_model(), setup.profile, recorder.results(self._take),
                clock=recorder.clock(self._now), policy=recorder.policy(self.policy),
                make_runner=recorder.runner(lambda model, profile: self.runner),
                commands=recorder.commands,
            )  # fmt: skip
        self._host_s = cache(times.host_s)

    def _now(self) -> float:
        return self.now_s

    def _sleep_until(self, at_s: float) -> None:
        self.now_s = max(self.now_s, at_s)

    # -- calls

    def offer(self, call: Call) -> Outcome:
        """Let a call happen at its time, counted from the beginning of the simulation."""
        outcome = Outcome(call)
        self.outcomes.append(outcome)
        self._at(BEGIN_S + call.at_s, lambda: self._begin(outcome))
        return outcome

    def _begin(self, outcome: Outcome) -> None:
        call = outcome.call
        request_id = str(call.number)
        self._speeches[call.number] = call.speech
        listener: Listener = (
            RemoteListener(
                request_id,
                call.drift_ppm,
                tuple(BEGIN_S + call.at_s + gap_s for gap_s in call.network_gap_s),
            )
            if call.remote
            else RoomListener(request_id, subscribed=not call.speculative)
        )
        self.live[request_id] = _Live(outcome, listener)
        self.most_live = max(self.most_live, len(self.live))
        (_, first), *rest = call.pieces
        self.engine.post(
            Submit(request_id, text=first, closed=not rest, seed=call.number, normalize=False,
                   speculative=call.speculative)
        )  # fmt: skip
        for i, (after_s, text) in enumerate(rest, start=1):
            closes = i == len(rest)
            self._at(
                BEGIN_S + call.at_s + after_s,
                partial(self._append, request_id, text, closes),
            )

    def _append(self, request_id: str, text: str, closes: bool) -> None:
        if request_id not in self.live:
            return
        self.engine.post(Append(request_id, text))
        if closes:
            self.engine.post(Close(request_id))

    def _interrupt(self, request_id: str) -> None:
        live = self.live.get(request_id)
        if live is None:
            self._interrupt_ended(self._ended[request_id])
            return
        live.cut_heard = live.listener.heard_samples(self.now_s)
        live.outcome.ahead_s = live.listener.snapshot(self.now_s).dry_at_s - self.now_s
        self.engine.post(Cancel(request_id))

    def _interrupt_ended(self, live: _Live) -> None:
        """All was made before the listener interrupted."""
        heard = live.listener.heard_samples(self.now_s)
        live.outcome.unheard_s = samples_to_s(live.published - heard)
        live.outcome.ahead_s = live.listener.snapshot(self.now_s).dry_at_s - self.now_s

    def _at(self, at_s: float, do: Callable[[], None]) -> None:
        self._num_events += 1
        heapq.heappush(self._events, (at_s, self._num_events, do))

    # -- time

    def run(self, until_s: float) -> None:
        """Let time pass until `until_s` from the beginning."""
        end_s = BEGIN_S + until_s
        while True:
            next_s = min(self._wake_s, self._events[0][0] if self._events else float("inf"))
            if next_s > end_s:
                self.now_s = max(self.now_s, end_s)
                return
            self.now_s = max(self.now_s, next_s)
            while self._events and self._events[0][0] <= self.now_s:
                heapq.heappop(self._events)[2]()
            self._step()

    def finish(self, limit_s: float = 600.0) -> None:
        """Let time pass until every call has ended or `limit_s` more have passed."""
        end_s = self.now_s + limit_s
        while (self.live or self._events) and self.now_s < end_s:
            self.run(self.now_s - BEGIN_S + 0.5)

    def _step(self) -> None:
        launches, rows = self.runner.launches, self.runner.frame_rows
        self._wake_s = self.engine.step()
        launched = self.runner.launches > launches
        self.now_s += self._host_s(self.runner.frame_rows - rows) if launched else LOOK_S
        if self._on_step is not None:
            self._on_step(self)

    # -- results

    def _take(self, results: list[Result]) -> None:
        for result in results:
            live = self.live.get(result.request_id)
            if live is None:
                continue
            if isinstance(result, Pcm):
                self._hear(live, result)
            elif isinstance(result, Accepted):
                self.engine.post(Playback(live.listener.snapshot(self.now_s)))
            elif isinstance(result, Starved):
                live.listener.starve()
            elif isinstance(result, Refused):
                live.outcome.refused, live.outcome.retry_s = True, result.retry_s
                live.outcome.refused_after_s = self.now_s - BEGIN_S - live.outcome.call.at_s
                self._end(live, result.request_id, "refused")
            elif isinstance(result, Done):
                self._done(live, result)
            elif isinstance(result, Failed):
                self._end(live, result.request_id, "failed")

    def _hear(self, live: _Live, pcm: Pcm) -> None:
        outcome, num_samples = live.outcome, len(pcm.pcm) // SAMPLE_BYTES
        live.listener.push(num_samples, self.now_s)
        live.published += num_samples
        outcome.largest_chunk_s = max(outcome.largest_chunk_s, pcm.num_frames * FRAME_S)
        self.engine.post(Playback(live.listener.snapshot(self.now_s)))
        if outcome.first_audio_s is None:
            outcome.first_audio_s = self.now_s - BEGIN_S - outcome.call.at_s
            if outcome.call.hang_up_s is not None:
                request_id = pcm.request_id
                self._at(self.now_s + outcome.call.hang_up_s, lambda: self._interrupt(request_id))

    def _done(self, live: _Live, done: Done) -> None:
        if live.cut_heard is not None:
            silent = live.outcome.call.silent_frames * FRAME_SAMPLES
            made = done.num_frames * FRAME_SAMPLES - silent
            live.outcome.unheard_s = samples_to_s(max(made, done.num_samples) - live.cut_heard)
        self._end(live, done.request_id, done.reason)

    def note(self) -> None:
        """Write down what the listeners of calls that still run have heard so far."""
        for live in self.live.values():
            _note(live)

    def _end(self, live: _Live, request_id: str, why: str) -> None:
        live.outcome.done = why
        _note(live)
        self._ended[request_id] = self.live.pop(request_id)
        del self._speeches[live.outcome.call.number]


def _note(live: _Live) -> None:
    outcome, listener = live.outcome, live.listener
    outcome.gaps_s = list(listener.gaps_s)
    outcome.network_gaps = listener.network_gaps
    outcome.stretched_s = listener.stretched_s
