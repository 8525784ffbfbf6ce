"""A real engine on its thread, in this process: what in-process callers get, with the times."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from playhead.engine.engine import Engine
from playhead.engine.errors import EngineFailure
from playhead.engine.messages import Cancel, Done, Failed, Pcm, Refused, Result, Submit
from playhead.engine.models.loader import Model
from playhead.engine.profile import Profile
from playhead.engine.runner import Runner
from playhead.engine.units import SAMPLE_BYTES

ANSWER_S = 120.0
LOOK_S = 0.001
LOOK_ALIVE_S = 1.0

MakeRunner = Callable[[Model, Profile], Runner]


def runner_maker(device: str) -> MakeRunner:
    """Return what builds the runner of a device: captured graphs on a GPU, eager on a CPU."""
    if device.startswith("cuda"):
        from playhead.engine.backend import cuda_runner

        return cuda_runner
    from playhead.engine.eager_runner import eager_runner

    return eager_runner


@dataclass(slots=True)
class _Watched:
    """What came of a request until it ended."""

    first_ms: float | None = None
    """From submit to the first samples; None: there were none."""
    num_samples: int = 0


class EngineThread:
    """Runs an engine while the context lasts; notes when each result left it."""

    def __init__(
        self, model: Path, profile: Profile, device: str, make_runner: MakeRunner | None = None
    ) -> None:
        """Build engine and runner; `make_runner` builds another one than that of the device."""
        self.results: queue.SimpleQueue[tuple[float, Result]] = queue.SimpleQueue()
        self.runner: Runner | None = None
        make = make_runner or runner_maker(device)

        def made(model: Model, profile: Profile) -> Runner:
            self.runner = make(model, profile)
            return self.runner

        self.engine = Engine(model, profile, self._take, make_runner=made)
        self._thread = threading.Thread(target=self.engine.run, name="playhead-engine")

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.engine.stop()
        self._thread.join()

    def _take(self, results: list[Result]) -> None:
        at_s = time.perf_counter()
        for result in results:
            self.results.put((at_s, result))

    def first_pcm_ms(self, submit: Submit) -> float:
        """Submit to the idle engine, wait for the first samples, cancel; return the wait.

        Batches of an earlier request that still fly are waited for, so that none delays this one.
        Raises EngineFailure when no samples come.
        """
        self._settle()
        first_ms = self._watch(submit, cancel=True).first_ms
        if first_ms is None:
            raise EngineFailure("it ended without audio")
        return first_ms

    def spoken(self, submit: Submit) -> int:
        """Submit and wait for the end; return its samples. Raises EngineFailure without an end."""
        return self._watch(submit, cancel=False).num_samples

    def _settle(self) -> None:
        """Wait until the engine is idle."""
        until_s = time.perf_counter() + ANSWER_S
        while not self.engine.idle:
            if not self._thread.is_alive():
                raise EngineFailure("the engine's thread has ended; its error is above")
            if time.perf_counter() > until_s:
                raise EngineFailure(f"the engine is not idle after {ANSWER_S:.0f} s")
            time.sleep(LOOK_S)

    def _watch(self, submit: Submit, cancel: bool) -> "_Watched":
        began_s = time.perf_counter()
        self.engine.post(submit)
        watched = _Watched()
        while True:
            at_s, result = self._answer()
            if result.request_id != submit.request_id:
                continue
            if isinstance(result, Pcm):
                watched.num_samples += len(result.pcm) // SAMPLE_BYTES
                if watched.first_ms is None:
                    watched.first_ms = (at_s - began_s) * 1e3
                    if cancel:
                        self.engine.post(Cancel(submit.request_id))
            elif isinstance(result, Refused | Failed):
                raise EngineFailure(result.message)
            elif isinstance(result, Done):
                return watched

    def _answer(self) -> tuple[float, Result]:
        """Return the next result; raises EngineFailure once none can come."""
        until_s = time.perf_counter() + ANSWER_S
        while time.perf_counter() < until_s:
            alive = self._thread.is_alive()
            with contextlib.suppress(queue.Empty):
                return self.results.get(timeout=LOOK_ALIVE_S)
            if not alive:
                raise EngineFailure("the engine's thread has ended; its error is above")
        raise EngineFailure(f"no answer within {ANSWER_S:.0f} s")


def sized(profile: Profile, max_streams: int, max_rows: int) -> Profile:
    """Return the profile with exactly the slots and rows a benchmark needs."""
    return replace(
        profile, max_streams=max_streams, max_rows=max_rows,
        flat_rows=min(profile.flat_rows, max_rows),
    )  # fmt: skip
