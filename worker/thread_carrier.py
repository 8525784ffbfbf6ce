"""Carrier over a thread: owns the engine of this process and the thread that runs it."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from playhead.engine.errors import ConfigError, TransportError
from playhead.engine.messages import Command
from playhead.worker.carrier import EngineStatus, OnLost, OnResults
from playhead.worker.interpreter import go_first
from playhead.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from playhead.engine.engine import Engine
    from playhead.engine.profile import Profile

logger = logging.getLogger(__name__)

JOIN_S = 10.0
"""How long close waits for the step in flight; not for one that the watchdog gave up."""

MakeEngine = Callable[[OnResults], "Engine"]
"""Builds the engine around a results callback; may take minutes (weights, graph capture)."""


class ThreadCarrier:
    """An engine in this process, on its own thread."""

    def __init__(self, make_engine: MakeEngine) -> None:
        """Keep the recipe; the engine is built by `start`."""
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._thread: threading.Thread | None = None
        self._running = False
        self._closing = False
        self._stuck = False
        self._watchdog = Watchdog(self._step_started_s, self._give_up)
        self._on_lost: OnLost | None = None

    def start(self, on_results: OnResults, on_lost: OnLost) -> None:
        """Build the engine here and run it on its thread; errors of building pass through."""
        assert self._thread is None, "a carrier starts once"
        self._on_lost = on_lost
        self._engine = self._make_engine(on_results)
        self._running = True
        self._thread = threading.Thread(target=self._run, name="playhead-engine", daemon=True)
        self._thread.start()
        self._watchdog.start()

    def send(self, command: Command) -> None:
        """Post a command; raises TransportError after the engine's thread ended."""
        if self._engine is None or not self._running:
            raise TransportError("the engine is not running; retry when the worker is ready again")
        self._engine.post(command)

    def status(self) -> EngineStatus:
        """Return the engine's state as its own counters give it."""
        engine = self._engine
        if engine is None:
            return EngineStatus()
        return EngineStatus(
            ready=self._running,
            load=engine.load(),
            voices=engine.voices,
            languages=engine.languages,
            exact_times=engine.exact_times,
            clones=_clones(engine),
            metrics=engine.metrics.snapshot(),
        )

    def close(self) -> None:
        """Stop the engine and wait for its thread."""
        self._closing = True
        self._watchdog.stop()
        if self._engine is None or self._thread is None:
            return
        self._engine.stop()
        if self._thread is not threading.current_thread() and not self._stuck:
            self._thread.join(JOIN_S)

    def _step_started_s(self) -> float | None:
        started_s: float | None = getattr(self._engine, "step_started_s", None)
        return started_s

    def _give_up(self, lasts_s: float) -> None:
        assert self._on_lost is not None
        self._stuck, self._running = True, False
        if not self._closing:
            self._on_lost(f"a step did not end within {lasts_s:.0f} s")

    def _run(self) -> None:
        assert self._engine is not None and self._on_lost is not None
        reason = "the engine stopped"
        go_first()
        try:
            self._engine.run()
        except Exception as error:
            logger.exception("engine thread failed")
            reason = f"the engine failed: {type(error).__name__}"
        finally:
            self._running = False
            self._watchdog.stop()
            if not (self._closing or self._stuck):
                self._on_lost(reason)


def _clones(engine: "Engine") -> bool:
    """Say whether an engine's voices are stored ones; one that plays a script has no model."""
    model = getattr(engine, "model", None)
    return model is not None and model.config.kind == "base"


def engine_maker(model: str | None, profile: str, trace: Path | None = None) -> MakeEngine:
    """Return the recipe of a checkpoint (None: the embedded voice) under a profile.

    `trace`: folder of a file that records what the engine is told and decides.
    """

    def make(on_results: OnResults) -> "Engine":
        from playhead.engine.engine import Engine  # torch: only where an engine is built
        from playhead.engine.library import EMBEDDED_VOICE
        from playhead.engine.profile import load_profile, sha256

        resolved = load_profile(profile)
        logger.info("profile %s, sha256 %s: %s", resolved.name, sha256(resolved), resolved)
        _check_device(resolved)
        which = EMBEDDED_VOICE if model is None else model
        if trace is None:
            return Engine(which, resolved, on_results)
        from playhead.worker.simulate.trace import recorded_engine
        from playhead.worker.simulate.trace_file import TraceFile

        return recorded_engine(TraceFile(trace, model, resolved), which, resolved, on_results)

    return make


def _check_device(profile: "Profile") -> None:
    """Raise ConfigError if this machine has not the device a profile is for."""
    if profile.device != "cuda":
        return
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(
            f"profile {profile.name} is for a GPU and torch {torch.__version__} finds none; use "
            "the profile cpu, or see that a driver and a CUDA build of torch are installed"
        )
