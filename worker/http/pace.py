"""ClientClock and Pacer: where a client's playback stands, known from what it took or reports.

A client without reports is assumed to play in real time from the first byte it took. One that
stops reading plays what it has and then stands still, so the engine holds at most the profile's
target for it. Clock: pure; pacer: on the connection's loop.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
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
    _paused: bool = False
    _from_sample: int = 0
    _from_s: float = 0.0
    _reported_s: float | None = None

    def push(self, num_samples: int, now_s: float) -> None:
        """Count samples that the client took."""
        if self.played_samples(now_s) >= self.pushed_samples:  # it was dry: playing starts now
            self._from_sample, self._from_s = self.pushed_samples, now_s
        self.pushed_samples += num_samples

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
        return min(self._from_sample + s_to_samples(since_s), self.pushed_samples)

    def source(self, now_s: float) -> ClockSource:
        """Say what the clock rests on."""
        recent = self._reported_s is not None and now_s - self._reported_s <= REPORT_LIFE_S
        return "reported" if recent or self._paused else "assumed"

    def snapshot(self, request_id: str, now_s: float, base_samples: int = 0) -> PlaybackSnapshot:
        """Return the clock as the engine takes it, for a request that began at `base_samples`."""
        played = self.played_samples(now_s)
        left_s = samples_to_s(self.pushed_samples - played)
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

    def __init__(self, clock: ClientClock, stall_s: float, on_stall: Callable[[], None]) -> None:
        """`on_stall` ends a client that took nothing for `stall_s`."""
        self.clock = clock
        self.utterance: Utterance | None = None
        """Whom to tell; None while nothing is generated."""
        self.base_samples = 0
        """Samples of the client's utterance before this request's first."""
        self._stall_s = stall_s
        self._on_stall = on_stall
        self._blocked_since_s: float | None = None

    def tell(self) -> None:
        """Send a snapshot now."""
        if self.utterance is not None:
            snapshot = self.clock.snapshot(
                self.utterance.request_id, time.monotonic(), self.base_samples
            )
            self.utterance.report(snapshot)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch for a blocked client meanwhile."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()

    @contextlib.contextmanager
    def taking(self, num_samples: int) -> Iterator[None]:
        """Wrap the wait until the client took a chunk; counts it when it did."""
        self._blocked_since_s = time.monotonic()
        try:
            yield
        finally:
            self._blocked_since_s = None
            self.clock.blocked = False
        if num_samples:
            self.clock.push(num_samples, time.monotonic())
            self.tell()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            since_s = self._blocked_since_s
            if since_s is None:
                continue
            waited_s = time.monotonic() - since_s
            if waited_s > self._stall_s:
                self._on_stall()
                return
            if waited_s > TICK_S:
                self.clock.blocked = True
                self.tell()
