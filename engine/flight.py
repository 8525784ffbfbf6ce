"""Flight: a launched batch whose results are on their way; engine thread only, torch-free."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")


class Event(Protocol):
    """A mark in a device's stream of work; torch.cuda.Event is one."""

    def query(self) -> bool:
        """Return whether all work before the mark is done."""

    def synchronize(self) -> None:
        """Wait until it is."""


class TimedEvent(Event, Protocol):
    """An event that knows how long before another one it was."""

    def elapsed_time(self, end: Any) -> float:
        """Return the device's milliseconds from this mark to `end`, both done."""


class Flight(Generic[T]):
    """Results of one launched batch; `finish` runs once, when they are collected."""

    def __init__(
        self,
        finish: Callable[[], T],
        event: Event | None = None,
        began: TimedEvent | None = None,
    ) -> None:
        """Wrap what turns landed bytes into a result; no event means it has landed already.

        `began` marks when the device began with the batch, where it can tell.
        """
        self._finish, self._event, self._began = finish, event, began
        self._result: T | None = None
        self._collected = False

    @classmethod
    def landed(cls, result: T) -> "Flight[T]":
        """Return a flight whose result is known: what an eager runner launches."""
        return cls(lambda: result)

    def took_s(self) -> float | None:
        """Return how long the device worked on a collected batch; None: it can't tell."""
        return None if self._began is None else self._began.elapsed_time(self._event) / 1e3

    @property
    def marks(self) -> tuple[TimedEvent, TimedEvent] | None:
        """The device's marks of when it began with the batch and was done; None: it has none."""
        return None if self._began is None else (self._began, cast(TimedEvent, self._event))

    def ready(self) -> bool:
        """Return whether `result` would return at once."""
        return self._event is None or bool(self._event.query())

    def result(self) -> T:
        """Return the result, waiting for the device if it must; the same object every time.

        Raises DeviceFault when the device broke under the batch.
        """
        if not self._collected:
            if self._event is not None:
                self._event.synchronize()
            self._result, self._collected = self._finish(), True
        return self._result  # type: ignore[return-value]
