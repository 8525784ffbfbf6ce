"""Trace: everything an engine was told by its surroundings, in order, and what it decided.

A recorder stands between an engine and its clock, its queue, its runner. A replay gives another
engine the same answers in the same order, without a device: it must decide the same, plan by plan
and byte by byte. Any engine can be recorded, on real time or virtual. Engine thread only.
"""

import copy
import queue
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
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


@dataclass(slots=True)
class Trace:
    """Answers in the order they were given, as (what was asked, answer)."""

    answers: list[tuple[str, Any]] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)


class _Source:
    """Gives answers: asks and notes them while recording, reads them while replaying."""

    def __init__(self, trace: Trace, replay: bool) -> None:
        self._trace = trace
        self._left = deque(trace.answers) if replay else None

    def answer(self, what: str, ask: Callable[[], T]) -> T:
        if self._left is None:
            try:
                value: Any = ask()
            except Exception as error:
                value = error
            self._trace.answers.append((what, value))
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
        return self._flight(flight, lambda r: FrameResult(r.codes.copy(), r.ended.copy()))

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        inner = self._inner
        flight = None if inner is None else inner.launch_codec(slots, codes)
        return self._flight(flight, lambda r: CodecResult(r.pcm.copy(), r.broken.copy()))

    def _flight(self, flight: Flight[T] | None, copied: Callable[[T], T]) -> Flight[T]:
        def finish() -> T:
            assert flight is not None
            return copied(flight.result())

        return Flight(lambda: self._source.answer("result", finish), _Event(self._source, flight))


class Recorder:
    """Wraps what an Engine is made of; `trace` grows while it runs."""

    def __init__(self) -> None:
        """Begin an empty trace."""
        self.trace = Trace()
        self._source = _Source(self.trace, replay=False)
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
            self.trace.plans.append(plan)
            return plan

        return noted

    def results(self, inner: Callable[[list[Result]], None]) -> Callable[[list[Result]], None]:
        """Return a callback whose results are noted."""

        def noted(results: list[Result]) -> None:
            self.trace.results.extend(results)
            inner(results)

        return noted


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
    source, made = _Source(trace, replay=True), Trace()

    def planned(
        columns: Columns, now_s: float, profile: Profile, margin_s: float, costs: StepCosts
    ) -> Plan:
        plan = policy(columns, now_s, profile, margin_s, costs)
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
