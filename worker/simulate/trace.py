"""Trace: everything an engine was told by its surroundings, in order, and what it decided.

A recorder stands between an engine and its clock, its queue, its runner. A replay gives another
engine the same answers in the same order, without a device: it must decide the same, plan by plan
and byte by byte. Any engine can be recorded, on real time or virtual. Engine thread only.
"""

import copy
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
from playhead.engine.backend import device_runner
from playhead.engine.engine import Engine
from playhead.engine.flight import Flight
from playhead.engine.messages import Command, Result
from playhead.engine.models.loader import Model
from playhead.engine.profile import Profile
from playhead.engine.runner import CodecResult, FrameResult, MakeRunner, Runner
from playhead.engine.scheduler import Columns, Plan, Policy, schedule

if TYPE_CHECKING:
    from playhead.engine.models.config import ResolvedSampling
    from playhead.engine.models.prompt import Prompt

T = TypeVar("T")


class TraceOver(BaseException):
    """The replay has used every answer; not an Exception, so that no request is blamed for it."""


class Diverged(BaseException):
    """The replay asked something else than the recorded engine, or planned something else."""


class Notes(Protocol):
    """Where a recorder writes."""

    def answer(self, what: str, value: Any) -> None:
        """Note an answer, in the order they were given."""

    def plan(self, plan: Plan) -> None:
        """Note a plan."""

    def published(self, results: list[Result]) -> None:
        """Note what the engine published together."""


@dataclass(slots=True)
class Trace:
    """Answers in the order they were given, as (what was asked, answer)."""

    answers: list[tuple[str, Any]] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def answer(self, what: str, value: Any) -> None:
        """Keep an answer."""
        self.answers.append((what, value))

    def plan(self, plan: Plan) -> None:
        """Keep a plan."""
        self.plans.append(plan)

    def published(self, results: list[Result]) -> None:
        """Keep results."""
        self.results.extend(results)


class _Source:
    """Gives answers: asks and notes them while recording, reads them while replaying."""

    def __init__(self, notes: Notes | None = None, trace: Trace | None = None) -> None:
        self._notes = notes
        self._left = deque(trace.answers if trace is not None else ())

    @property
    def used_up(self) -> bool:
        """Nothing is left to answer with."""
        return self._notes is None and not self._left

    def answer(self, what: str, ask: Callable[[], T]) -> T:
        if self._notes is not None:
            try:
                value: Any = ask()
            except Exception as error:
                value = error
            self._notes.answer(what, value)
        else:
            if not self._left:
                raise TraceOver
            recorded, value = self._left.popleft()
            if recorded != what:
                raise Diverged(f"the engine asked for {what}, recorded is {recorded}")
        if isinstance(value, Exception):
            raise value
        found: T = value
        return found


class _Queue(queue.SimpleQueue[Command | None]):
    """The engine's queue: what it got and when it found nothing."""

    def __init__(self, source: _Source) -> None:
        super().__init__()
        self._source = source

    def get_nowait(self) -> Command | None:
        return self._source.answer("command", super().get_nowait)

    def get(self, block: bool = True, timeout: float | None = None) -> Command | None:
        return self._source.answer("command", partial(super().get, block, timeout))


class _Event:
    """Says when a flight has landed."""

    def __init__(self, source: _Source, flight: Flight[Any] | None) -> None:
        self._source, self._flight = source, flight

    def query(self) -> bool:
        return self._source.answer("ready", lambda: self._flight is None or self._flight.ready())

    def synchronize(self) -> None:
        """The result is waited for when it is taken."""


class _Flight(Flight[T], Generic[T]):
    """A flight whose landing, result and time on the device are noted."""

    def __init__(self, source: _Source, inner: Flight[T] | None, copied: Callable[[T], T]) -> None:
        self._source, self._inner, self._copied = source, inner, copied
        super().__init__(lambda: source.answer("result", self._copy), _Event(source, inner))

    def took_s(self) -> float | None:
        def ask() -> float | None:
            assert self._inner is not None
            return self._inner.took_s()

        return self._source.answer("took", ask)

    def _copy(self) -> T:
        assert self._inner is not None
        return self._copied(self._inner.result())


class _Runner:
    """A runner whose answers are noted, or that has nothing but noted answers."""

    def __init__(self, source: _Source, inner: Runner | None) -> None:
        self._source, self._inner = source, inner

    def _ask(self, what: str, ask: Callable[[Runner], T]) -> T:
        def really() -> T:
            assert self._inner is not None
            return ask(self._inner)

        return self._source.answer(what, really)

    def open(self, slot: int, prompt: "Prompt", sampling: "ResolvedSampling", seed: int) -> int:
        return self._ask("open", lambda runner: runner.open(slot, prompt, sampling, seed))

    def restart(self, slot: int, prompt: "Prompt") -> int:
        return self._ask("restart", lambda runner: runner.restart(slot, prompt))

    def close(self, slot: int) -> None:
        self._ask("close", lambda runner: runner.close(slot))

    def costs(self) -> StepCosts:
        # A copy: the engine goes on learning in what it is given, the note stays as it was.
        return copy.deepcopy(self._ask("costs", lambda runner: runner.costs()))

    def prefill(self, slots: Sequence[int]) -> None:
        self._ask("prefill", lambda runner: runner.prefill(slots))

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        inner = self._inner
        flight = None if inner is None else inner.launch_frame(slots, text_ids, may_end)
        return _Flight(self._source, flight, lambda r: FrameResult(r.codes.copy(), r.ended.copy()))

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        inner = self._inner
        flight = None if inner is None else inner.launch_codec(slots, codes)
        return _Flight(self._source, flight, lambda r: CodecResult(r.pcm.copy(), r.broken.copy()))


class Recorder:
    """Wraps what an Engine is made of and notes what passes while it runs."""

    def __init__(self, notes: Notes) -> None:
        """Write into `notes`: a Trace in memory, or a file."""
        self._notes = notes
        self._source = _Source(notes)
        self.commands: queue.SimpleQueue[Command | None] = _Queue(self._source)

    def clock(self, inner: Callable[[], float]) -> Callable[[], float]:
        """Return a clock whose readings are noted."""
        return lambda: self._source.answer("clock", inner)

    def runner(self, make: MakeRunner) -> MakeRunner:
        """Return a runner's maker whose answers are noted."""
        return lambda model, profile: _Runner(self._source, make(model, profile))

    def policy(self, inner: Policy = schedule) -> Policy:
        """Return a policy whose plans are noted."""

        def noted(
            columns: Columns, now_s: float, profile: Profile, margin_s: float, costs: StepCosts
        ) -> Plan:
            plan = inner(columns, now_s, profile, margin_s, costs)
            self._notes.plan(plan)
            return plan

        return noted

    def results(self, inner: Callable[[list[Result]], None]) -> Callable[[list[Result]], None]:
        """Return a callback whose results are noted."""

        def noted(results: list[Result]) -> None:
            self._notes.published(results)
            inner(results)

        return noted


def recorded_engine(
    notes: Notes,
    model: str | Path | Model,
    profile: Profile,
    on_results: Callable[[list[Result]], None],
) -> Engine:
    """Return an engine on this machine's device and clock that is recorded from its start."""
    recorder = Recorder(notes)
    return Engine(
        model,
        profile,
        recorder.results(on_results),
        make_runner=recorder.runner(device_runner),
        clock=recorder.clock(time.monotonic),
        policy=recorder.policy(),
        commands=recorder.commands,
    )


def replay(
    trace: Trace,
    model: str | Path | Model,
    profile: Profile,
    policy: Policy = schedule,
    drive: Callable[[Engine], object] = Engine.step,
) -> Trace:
    """Run an engine on a trace's answers; return its own plans and results.

    `drive` is how the recorded engine was driven: `Engine.run` for one on a thread. Raises
    Diverged where it asks or plans something else than the recorded engine.
    """
    source, made = _Source(trace=trace), Trace()

    def planned(
        columns: Columns, now_s: float, profile: Profile, margin_s: float, costs: StepCosts
    ) -> Plan:
        plan = policy(columns, now_s, profile, margin_s, costs)
        if source.used_up and len(made.plans) == len(trace.plans):
            raise TraceOver  # a file may end between an answer and what was made of it
        if len(made.plans) >= len(trace.plans) or plan != trace.plans[len(made.plans)]:
            raise Diverged(f"plan {len(made.plans)} is {plan}")
        made.plans.append(plan)
        return plan

    engine = Engine(
        model,
        profile,
        made.results.extend,
        make_runner=lambda _, __: _Runner(source, None),
        clock=lambda: source.answer("clock", float),
        policy=planned,
        commands=_Queue(source),
    )
    try:
        while True:
            drive(engine)
    except TraceOver:
        return made
