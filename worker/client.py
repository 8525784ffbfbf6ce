"""EngineClient and Utterance: the asyncio face of an engine, behind either carrier.

Many event loops in many threads may share one client. Results come on the carrier's thread, or on
the very loop that waits for them; each batch wakes each loop it concerns once. An utterance
belongs to the loop that submitted it; what arrives after its cancel is dropped by id.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Protocol

from playhead.engine.errors import (
    Busy,
    DeviceFault,
    EngineFailure,
    InputError,
    NotInstructable,
    PlayheadError,
    TextTooLong,
    TransportError,
    UnknownLanguage,
    UnknownVoice,
)
from playhead.engine.messages import (
    Accepted,
    Append,
    Cancel,
    Close,
    Done,
    Failed,
    Pcm,
    Playback,
    PlaybackSnapshot,
    Refused,
    Result,
    Starved,
    Submit,
    Words,
)
from playhead.worker.carrier import Carrier, EngineStatus, running_loop
from playhead.worker.pace import Pace

SpeechResult = Pcm | Words | Starved | Done
_INPUT_ERRORS: dict[str, type[InputError]] = {
    kind.code: kind
    for kind in (InputError, UnknownVoice, UnknownLanguage, NotInstructable, TextTooLong)
}
LOST_CODE = TransportError.code


class Sender(Protocol):
    """Where an utterance's commands go: an engine's client, or a connection to another machine."""

    def send(self, command: Append | Close | Cancel | Playback) -> None:
        """Post a command; never blocks."""

    def forget(self, request_id: str, cancel: bool) -> None:
        """Route nothing more to an utterance, and cancel it if asked."""


class Utterance:
    """One accepted request; iterate it for its results, on the loop that submitted it.

    Ends after Done. Raises EngineFailure if the engine failed it, an InputError if its later text
    was at fault, TransportError if the engine went away. After `cancel` it simply ends.
    """

    def __init__(self, client: Sender, request_id: str) -> None:
        """Made by whoever submits."""
        self.request_id = request_id
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._results: deque[Result] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False

    def append(self, text: str) -> None:
        """Add text; a no-op once the utterance is over."""
        if not self._over:
            self._client.send(Append(self.request_id, text))

    def close(self) -> None:
        """Say that no more text comes."""
        if not self._over:
            self._client.send(Close(self.request_id))

    def cancel(self) -> None:
        """Stop generation now; idempotent, returns at once."""
        if self._over:
            return
        self._over = True
        self._results.clear()
        self._client.forget(self.request_id, cancel=True)
        self._wake()

    def report(self, snapshot: PlaybackSnapshot) -> None:
        """Tell the engine where playback stands."""
        if not self._over:
            self._client.send(Playback(snapshot))

    def __aiter__(self) -> AsyncIterator[SpeechResult]:
        """Iterate over the results."""
        return self

    async def __anext__(self) -> SpeechResult:
        """Return the next result."""
        while not self._results:
            if self._over:
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        result = self._results.popleft()
        if isinstance(result, Failed):
            self._over = True
            raise failure(result)
        if isinstance(result, Done):
            self._over = True
        assert isinstance(result, Pcm | Words | Starved | Done), result
        return result

    def deliver(self, result: Result) -> None:
        """Take a result; the client's part, on the utterance's loop."""
        if not self._over:
            self._results.append(result)
            self._wake()

    async def admission(self) -> None:
        """Wait for the engine's answer to Submit; raises what it refused with."""
        while not self._results:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        first = self._results[0]
        if isinstance(first, Accepted):
            self._results.popleft()
            return
        self._over = True
        if isinstance(first, Refused):
            raise refusal(first)
        assert isinstance(first, Failed), first
        raise failure(first)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EngineClient:
    """Shares one carrier between any number of event loops and threads."""

    def __init__(self, carrier: Carrier) -> None:
        """Take a carrier that is not started yet."""
        self._carrier = carrier
        self.pace = Pace()
        """Of this engine, as all who share the client see it."""
        self._lock = threading.Lock()
        self._live: dict[str, Utterance] = {}
        self._num_submitted = 0

    def start(self) -> None:
        """Start the carrier; blocks until its engine answers."""
        self._carrier.start(self._on_results, self._on_lost)

    def close(self) -> None:
        """Stop the carrier; live utterances end with TransportError."""
        self._carrier.close()
        self._on_lost("the engine client was closed")

    def status(self) -> EngineStatus:
        """Return what the engine last said of itself."""
        return self._carrier.status()

    async def submit(self, submit: Submit) -> Utterance:
        """Ask for an utterance under an id of the client's own making; wait for admission.

        Raises Busy, InputError or a subclass, TransportError.
        """
        with self._lock:
            self._num_submitted += 1
            request_id = f"{self._num_submitted}-{submit.request_id}"
            utterance = Utterance(self, request_id)
            self._live[request_id] = utterance
        try:
            self._carrier.send(replace(submit, request_id=request_id))
            await utterance.admission()
        except asyncio.CancelledError:
            utterance.cancel()
            raise
        except PlayheadError:
            self.forget(request_id, cancel=False)
            raise
        return utterance

    def send(self, command: Append | Close | Cancel | Playback) -> None:
        """Post a command; a lost engine is reported through the utterance, not here."""
        try:
            self._carrier.send(command)
        except TransportError:
            return  # on_lost has failed, or is failing, every live utterance

    def forget(self, request_id: str, cancel: bool) -> None:
        """Route nothing more to an utterance, and cancel it at the engine if asked."""
        with self._lock:
            known = self._live.pop(request_id, None)
        if cancel and known is not None:
            self.send(Cancel(request_id))

    @property
    def num_live(self) -> int:
        """Utterances that have not ended."""
        return len(self._live)

    def _on_results(self, results: list[Result]) -> None:
        batches: dict[asyncio.AbstractEventLoop, list[tuple[Utterance, Result]]] = {}
        with self._lock:
            for result in results:
                utterance = self._live.get(result.request_id)
                if utterance is None:
                    continue
                if isinstance(result, Done | Failed | Refused):
                    del self._live[result.request_id]
                batches.setdefault(utterance._loop, []).append((utterance, result))
        for loop, batch in batches.items():
            _post(loop, batch)

    def _on_lost(self, reason: str) -> None:
        with self._lock:
            lost = list(self._live.values())
            self._live.clear()
        for utterance in lost:
            failed = Failed(utterance.request_id, LOST_CODE, f"the engine is gone: {reason}")
            _post(utterance._loop, [(utterance, failed)])


def refusal(refused: Refused) -> PlayheadError:
    """Return the error a refusal stands for."""
    if refused.retry_s is not None:
        return Busy(refused.message, refused.retry_s)
    return _INPUT_ERRORS.get(refused.code, InputError)(refused.message)


def failure(failed: Failed) -> PlayheadError:
    """Return the error a failed request stands for."""
    if failed.code in (LOST_CODE, DeviceFault.code):
        return TransportError(failed.message)
    return _INPUT_ERRORS.get(failed.code, EngineFailure)(failed.message)


def _post(loop: asyncio.AbstractEventLoop, batch: list[tuple[Utterance, Result]]) -> None:
    if loop is running_loop():
        _deliver(batch)
        return
    try:
        loop.call_soon_threadsafe(_deliver, batch)
    except RuntimeError:
        for utterance, _ in batch:  # its loop was closed: a job that ended without cancelling
            utterance._client.forget(utterance.request_id, cancel=True)


def _deliver(batch: list[tuple[Utterance, Result]]) -> None:
    for utterance, result in batch:
        utterance.deliver(result)
