"""ClientClock and Pacer: where a client's playback stands, known from what it took or reports.

A client without reports is assumed to play in real time from the first byte it took. One that
stops reading plays what it has and then stands still, so the engine holds at most the profile's
target for it.

The engine assumes the same of every sample it publishes, so it is told only what it could not
know: when playing began or began anew, that a client takes nothing, what a client reports, each
chunk that is played at another speed, and at the end how much was heard. Clock: pure; pacer: on
the connection's loop.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from playhead.engine.messages import ClockSource, PlaybackSnapshot
from playhead.engine.units import s_to_samples, samples_to_s
from playhead.worker.client import Utterance

TICK_S = 0.1
"""How often a blocked client's clock is told to the engine."""
REPORT_LIFE_S = 3.0
"""A client silent for longer is assumed to play on from its last report."""


@dataclass(slots=True)
class ClientClock:
    """Playback of one utterance at one client; counts are samples of the utterance."""

    pushed_samples: int = 0
    """Taken by the client's connection."""
    blocked: bool = False
    """The client does not take what is offered."""
    speed: float = 1.0
    """Seconds of the utterance that are played in one."""
    _paused: bool = False
    _from_sample: int = 0
    _from_s: float = 0.0
    _reported_s: float | None = None

    def push(self, num_samples: int, now_s: float) -> bool:
        """Count samples that the client took; return whether playing starts with them."""
        dry = self.played_samples(now_s) >= self.pushed_samples
        if dry:
            self._from_sample, self._from_s = self.pushed_samples, now_s
        self.pushed_samples += num_samples
        return dry

    def report(self, played_samples: int, paused: bool, now_s: float) -> str | None:
        """Take the client's own word; return what is absurd about it, or None."""
        if not 0 <= played_samples <= self.pushed_samples:
            return f"played_samples is {played_samples}, allowed is 0 to {self.pushed_samples}"
        self._from_sample, self._from_s = played_samples, now_s
        self._paused = paused
        self._reported_s = now_s
        return None

    def played_samples(self, now_s: float) -> int:
        """Return how many samples are taken to be heard."""
        since_s = 0.0 if self._paused else max(now_s - self._from_s, 0.0)
        return min(self._from_sample + s_to_samples(since_s * self.speed), self.pushed_samples)

    def source(self, now_s: float) -> ClockSource:
        """Say what the clock rests on."""
        recent = self._reported_s is not None and now_s - self._reported_s <= REPORT_LIFE_S
        return "reported" if recent or self._paused else "assumed"

    def snapshot(self, request_id: str, now_s: float, base_samples: int = 0) -> PlaybackSnapshot:
        """Return the clock as the engine takes it, for a request that began at `base_samples`."""
        played = self.played_samples(now_s)
        left_s = samples_to_s(self.pushed_samples - played) / self.speed
        still = self._paused or (self.blocked and left_s == 0.0)
        return PlaybackSnapshot(
            request_id=request_id,
            at_s=now_s,
            pushed_samples=max(self.pushed_samples - base_samples, 0),
            exited_samples=max(played - base_samples, 0),
            dry_at_s=now_s + left_s,
            bridge_s=0.0,
            heard_samples=max(played - base_samples, 0),
            state="paused" if still else "playing",
            source=self.source(now_s),
        )


class Pacer:
    """Keeps the engine told of one client's clock, also while the client takes nothing."""

    def __init__(self, clock: ClientClock, stall_s: float) -> None:
        """`stall_s`: how long a client may take nothing."""
        self.clock = clock
        self._utterance: Utterance | None = None
        self._base_samples = 0
        self._stall_s = stall_s
        self._timer: asyncio.TimerHandle | None = None
        self._moved_on = False
        """The client takes again what it did not take for a while."""

    @contextlib.contextmanager
    def following(self, utterance: Utterance | None, base_samples: int = 0) -> Iterator[None]:
        """Tell the engine of this request meanwhile, and at the end how much of it was heard.

        None: nobody listens. `base_samples`: samples of the client's utterance before the
        request's first.
        """
        self._utterance, self._base_samples = utterance, base_samples
        try:
            yield
        finally:
            self.tell()
            self._utterance = None

    def tell(self) -> None:
        """Send a snapshot now, if something is being generated."""
        if self._utterance is not None:
            snapshot = self.clock.snapshot(
                self._utterance.request_id, time.monotonic(), self._base_samples
            )
            self._utterance.report(snapshot)

    def took(self, num_samples: int) -> None:
        """Count samples that the client's connection took."""
        begins = self.clock.push(num_samples, time.monotonic())
        if begins or self._moved_on or self.clock.speed != 1.0:
            self._moved_on = False
            self.tell()

    @contextlib.contextmanager
    def waiting(self, on_stall: Callable[[], None]) -> Iterator[None]:
        """Wrap the wait for a client that does not take what is offered; `on_stall` ends it.

        It is not kept: a pacer that knows its owner would leave both to the garbage collector.
        """
        self._look_later(time.monotonic(), on_stall)
        try:
            yield
        finally:
            assert self._timer is not None
            self._timer.cancel()
            self._moved_on |= self.clock.blocked
            self.clock.blocked = False

    def _look_later(self, since_s: float, on_stall: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TICK_S, self._look, since_s, on_stall)

    def _look(self, since_s: float, on_stall: Callable[[], None]) -> None:
        """The client has taken nothing since `since_s`."""
        if time.monotonic() - since_s > self._stall_s:
            on_stall()
            return
        self.clock.blocked = True
        self.tell()
        self._look_later(since_s, on_stall)
