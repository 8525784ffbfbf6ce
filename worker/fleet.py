"""FleetCarrier: several engines behind one face, as on a host with several GPUs.

A new request goes to the ready engine with the fewest live ones: the cards of one host are alike.
An engine that is lost fails its own requests and no others. One it had not answered yet goes to
another engine, once: nothing of it was spoken, so nothing is said twice.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from playhead.engine.errors import TransportError
from playhead.engine.messages import (
    Cancel,
    Command,
    Done,
    Failed,
    Playback,
    Refused,
    Result,
    Submit,
)
from playhead.engine.metrics import describe
from playhead.worker.carrier import Carrier, EngineStatus, OnLost, OnResults


@dataclass(slots=True)
class _Route:
    """Which engine has a request."""

    index: int
    unanswered: Submit | None
    """What it was asked, until its first word: then it belongs to that engine for good."""


class FleetCarrier:
    """Routes requests over the carriers of several engines; a carrier itself."""

    def __init__(self, carriers: Sequence[Carrier]) -> None:
        """Take carriers that are not started yet, one for each engine."""
        assert carriers, "a fleet has an engine"
        self._carriers = list(carriers)
        self._lock = threading.Lock()
        self._routes: dict[str, _Route] = {}
        self._closing = False
        self._on_results: OnResults | None = None

    def start(self, on_results: OnResults, on_lost: OnLost) -> None:
        """Start every engine at once; raises what the first of them raised.

        `on_lost` is never called: an engine that is lost ends its own requests only.
        """
        self._on_results = on_results

        def begin(index: int) -> None:
            self._carriers[index].start(
                lambda results: self._deliver(results),
                lambda reason: self._lost(index, reason),
            )

        with ThreadPoolExecutor(len(self._carriers)) as pool:
            for _ in pool.map(begin, range(len(self._carriers))):
                continue

    def send(self, command: Command) -> None:
        """Post a command to the request's engine; raises TransportError if none is there."""
        if isinstance(command, Submit):
            with self._lock:
                if not self._place(command):
                    raise TransportError("no engine is ready; retry soon")
            return
        request_id = (
            command.snapshot.request_id if isinstance(command, Playback) else command.request_id
        )
        with self._lock:
            route = self._routes.get(request_id)
            if route is not None and isinstance(command, Cancel):
                route.unanswered = None  # nobody waits for it: a lost engine's is not said again
        if route is not None:
            self._carriers[route.index].send(command)

    def status(self) -> EngineStatus:
        """Return the fleet's status: an engine that is away counts as full."""
        statuses = [carrier.status() for carrier in self._carriers]
        ready = [status for status in statuses if status.ready]
        if not ready:
            return EngineStatus(load=1.0)
        return EngineStatus(
            ready=True,
            load=sum(status.load if status.ready else 1.0 for status in statuses) / len(statuses),
            voices=ready[0].voices,
            languages=ready[0].languages,
            exact_times=ready[0].exact_times,
            clones=ready[0].clones,
            metrics=_together([status.metrics for status in ready]),
        )

    def close(self) -> None:
        """Stop every engine's carrier."""
        self._closing = True
        for carrier in self._carriers:
            carrier.close()

    def _place(self, submit: Submit) -> bool:
        """Give a request to the ready engine with the fewest live ones; under the lock.

        Under one lock with `_lost`, so that a request is never with two. False: none took it.
        """
        live = Counter(route.index for route in self._routes.values())
        statuses = [carrier.status() for carrier in self._carriers]
        ready = [index for index, status in enumerate(statuses) if status.ready]
        for index in sorted(ready, key=lambda i: (live[i], statuses[i].load)):
            with contextlib.suppress(TransportError):  # it is just being lost
                self._carriers[index].send(submit)
                self._routes[submit.request_id] = _Route(index, submit)
                return True
        return False

    def _deliver(self, results: list[Result]) -> None:
        assert self._on_results is not None
        with self._lock:
            for result in results:
                if isinstance(result, Done | Failed | Refused):
                    self._routes.pop(result.request_id, None)
                elif (route := self._routes.get(result.request_id)) is not None:
                    route.unanswered = None
        self._on_results(results)

    def _lost(self, index: int, reason: str) -> None:
        if self._closing:
            return
        told = f"the engine is gone: {reason}"
        lost: list[Result] = []
        with self._lock:
            hit = {name: each for name, each in self._routes.items() if each.index == index}
            for request_id, route in hit.items():
                del self._routes[request_id]
                if route.unanswered is None or not self._place(route.unanswered):
                    lost.append(Failed(request_id, TransportError.code, told))
                else:  # only once: a request that breaks engines must not break them all
                    self._routes[request_id].unanswered = None
        if lost and self._on_results is not None:
            with contextlib.suppress(RuntimeError):  # a loop that ended meanwhile
                self._on_results(lost)


def _together(metrics: Sequence[dict[str, float]]) -> dict[str, float]:
    """Add counters and live requests up; of other gauges the largest is told."""
    names = {name: None for each in metrics for name in each}
    out: dict[str, float] = {}
    for name in names:
        values = [each[name] for each in metrics if name in each]
        adds_up = describe(name)[0] == "counter" or name == "live"
        out[name] = sum(values) if adds_up else max(values)
    return out
