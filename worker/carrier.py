"""Carrier: the one way commands reach an engine and results come back, whatever lies between.

Two carriers pass the same contract test: an engine thread of this process, and an engine process
behind a Unix socket. Both deliver results in order, in batches, on a thread of their own (the
socket's also on a loop that is given to it); both report a lost engine once and never leave a
caller waiting.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from playhead.engine.messages import Command, Result

OnResults = Callable[[list[Result]], None]
"""Takes results in order, on the carrier's thread; must not block."""
OnLost = Callable[[str], None]
"""The engine is gone, with the reason; every live request is dead. On the carrier's thread."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What an engine says of itself beside the results."""

    ready: bool = False
    load: float = 0.0
    """0 to 1: predicted busy share or slot use, admitted-but-silent requests included."""
    voices: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    exact_times: bool = False
    """Word times of spoken text have a verified error bound."""
    clones: bool = False
    """It speaks with the stored voices of its machine."""
    metrics: dict[str, float] = field(default_factory=dict)


class Carrier(Protocol):
    """A connection to one engine; `send`, `status` and `close` may be called from any thread."""

    def start(self, on_results: OnResults, on_lost: OnLost) -> None:
        """Begin; raises TransportError if no engine answers."""

    def send(self, command: Command) -> None:
        """Post a command without blocking; raises TransportError if the engine is gone."""

    def status(self) -> EngineStatus:
        """Return the newest status; never blocks."""

    def close(self) -> None:
        """Stop; idempotent. No callback comes after it returns."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs on this thread; None where none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
