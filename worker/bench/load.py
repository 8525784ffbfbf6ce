"""The load generator: a process of its own that asks as planned and tells what came, and when.

    stdin   one JSON object: target, where, requests, options
    stdout  "ready", then one JSON line a request as it ends, then one with the process's own lag
    stdin   "go <monotonic time>": when the load begins, on the clock all processes of a host share

Latency counts from the first byte of the request's body to the first sample read from the socket;
connection set-up is excluded. What this process adds is told: how late it sent, how its loop lags.
"""

import asyncio
import contextlib
import gc
import json
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from playhead.engine.errors import Busy, PlayheadError
from playhead.engine.messages import Done, Pcm, Submit
from playhead.engine.units import SAMPLE_BYTES, frames_to_s
from playhead.worker.bench.plan import Planned
from playhead.worker.bench.player import Outcome, nearest_rank
from playhead.worker.http.messages import PROTOCOL

PATIENCE_S = 30.0
"""Beyond its own length; a request that has not ended by then has failed."""
OPEN_S = 0.5
"""A WebSocket is opened so long before its request."""
LAG_S = 0.01
_HEADER = struct.Struct("<BBHIQ")
_REFUSED = (429, 503)

Ask = Callable[[Planned, Outcome], Awaitable[None]]


class _HungUp(Exception):
    """The planned listener interrupted."""


class Generator:
    """Sends one plan at one target and prints what came."""

    def __init__(self, job: dict[str, Any]) -> None:
        """Take the job as read from stdin."""
        self._job = job
        self._plans = [Planned(**each) for each in job["requests"]]
        self._lags_s: list[float] = []
        self._begin_s = 0.0

    async def run(self) -> None:
        """Run to the end of the plan."""
        async with contextlib.AsyncExitStack() as stack:
            ask = await self._open(stack)
            gc.collect()
            gc.freeze()  # what is loaded is not searched through while the load runs
            _say("ready")
            line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            self._begin_s = float(line.split()[1])
            watch = asyncio.create_task(self._watch())
            await asyncio.gather(*(self._one(each, ask) for each in self._plans))
            watch.cancel()
        _say(json.dumps({"lag_p99_s": nearest_rank(self._lags_s or [0.0], 0.99)}))

    async def _open(self, stack: contextlib.AsyncExitStack) -> Ask:
        target, where = self._job["target"], self._job["where"]
        if target == "inprocess":
            from playhead.worker.bench.inprocess import opened

            return InProcess(await stack.enter_async_context(opened(**where))).ask
        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(_note_sent)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            trace_configs=[trace],
            read_bufsize=2**20,
        )
        await stack.enter_async_context(session)
        return (Http if target == "http" else Socket)(session, where["url"]).ask

    async def _one(self, planned: Planned, ask: Ask) -> None:
        outcome = Outcome(planned.number)
        early_s = OPEN_S if self._job["target"] == "ws" else 0.0
        await _until(self._begin_s + planned.at_s - early_s)
        limit_s = early_s + frames_to_s(planned.max_frames) + PATIENCE_S
        try:
            async with asyncio.timeout(limit_s):
                await ask(planned, outcome)
        except _HungUp:
            outcome.state = "hung_up"
        except TimeoutError:
            outcome.state, outcome.error = "failed", f"no end within {limit_s:.0f} s"
        except (aiohttp.ClientError, OSError, PlayheadError) as error:
            outcome.state = "failed"
            outcome.error = f"{type(error).__name__}: {error}"[:200]
        outcome.ended_s = time.monotonic()
        outcome.late_s = max(outcome.sent_s - self._begin_s - planned.at_s, 0.0)
        _say(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}))

    async def _watch(self) -> None:
        """Note how much later than asked this process's loop wakes."""
        while True:
            asked_s = time.monotonic()
            await asyncio.sleep(LAG_S)
            self._lags_s.append(time.monotonic() - asked_s - LAG_S)


async def _note_sent(
    session: aiohttp.ClientSession, context: Any, params: aiohttp.TraceRequestChunkSentParams
) -> None:
    outcome = context.trace_request_ctx
    if outcome is not None and not outcome.sent_s:
        outcome.sent_s = time.monotonic()


class Http:
    """POST /v1/audio/speech, one streamed answer of raw PCM a request."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        """Share a session whose trace notes when a body is sent."""
        self._session, self._url = session, f"{url}/v1/audio/speech"

    async def ask(self, planned: Planned, outcome: Outcome) -> None:
        """Ask and read to the end."""
        body = {"input": planned.text, "response_format": "pcm", "stream": True, **_asked(planned)}
        post = self._session.post(self._url, json=body, trace_request_ctx=outcome)
        async with post as answer:
            if answer.status != 200:
                outcome.state = "refused" if answer.status in _REFUSED else "failed"
                outcome.error = f"{answer.status}: {(await answer.text())[:150]}"
                return
            with_limit = _Listener(planned, outcome)
            odd = 0
            async with with_limit:
                async for data in answer.content.iter_any():
                    odd += len(data)
                    with_limit.heard(odd // SAMPLE_BYTES)
                    odd %= SAMPLE_BYTES
        outcome.state = "done"


class Socket:
    """The WebSocket: one connection and one utterance a request, its text in one piece."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        """Share a session."""
        self._session, self._url = session, f"{url}/v1/audio/speech/ws"

    async def ask(self, planned: Planned, outcome: Outcome) -> None:
        """Open, wait for the planned moment, ask, read to the end."""
        due_s = time.monotonic() + OPEN_S
        async with self._session.ws_connect(self._url, protocols=[PROTOCOL]) as socket:
            await socket.receive_json()
            await _until(due_s)
            name = {"utterance": "a"}
            outcome.sent_s = time.monotonic()
            await socket.send_json({"type": "utterance.start", **name, **_asked(planned)})
            append = {"type": "text.append", **name, "sequence": 0, "text": planned.text}
            await socket.send_json(append)
            await socket.send_json({"type": "text.end", **name, "sequence": 1})
            listener = _Listener(planned, outcome)
            async with listener:
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.BINARY:
                        listener.heard((len(message.data) - _HEADER.size) // SAMPLE_BYTES)
                    elif message.type is aiohttp.WSMsgType.TEXT and self._over(
                        json.loads(message.data), outcome
                    ):
                        return
        outcome.state, outcome.error = "failed", "the connection ended before the utterance"

    @staticmethod
    def _over(event: dict[str, Any], outcome: Outcome) -> bool:
        """Note what ends the request; return whether this event does."""
        if event["type"] == "error":
            problem = event["error"]
            outcome.state = "refused" if problem.get("code") == "busy" else "failed"
            outcome.error = f"{problem.get('code')}: {problem.get('message', '')}"[:200]
            return True
        if event["type"] != "utterance.done":
            return False
        whole = event["reason"] in ("stop", "length")
        outcome.state = "done" if whole else "failed"
        outcome.error = "" if whole else event["reason"]
        return True


class InProcess:
    """An engine on a thread of this process, asked through its client."""

    def __init__(self, client: Any) -> None:
        """Take a started EngineClient."""
        self._client = client

    async def ask(self, planned: Planned, outcome: Outcome) -> None:
        """Submit and read to the end."""
        submit = Submit(
            f"load{planned.number}",
            text=planned.text,
            closed=True,
            seed=planned.seed,
            max_frames=planned.max_frames,
        )
        outcome.sent_s = time.monotonic()
        try:
            utterance = await self._client.submit(submit)
        except Busy as error:
            outcome.state, outcome.error = "refused", str(error)
            return
        listener = _Listener(planned, outcome)
        try:
            async with listener:
                async for result in utterance:
                    if isinstance(result, Pcm):
                        listener.heard(len(result.pcm) // SAMPLE_BYTES)
                    elif isinstance(result, Done):
                        outcome.state = "done"
        finally:
            utterance.cancel()


class _Listener:
    """Notes chunks as they come; hangs up when its plan says so."""

    def __init__(self, planned: Planned, outcome: Outcome) -> None:
        self._planned, self._outcome = planned, outcome
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self._limit.__aexit__(*raised)
        except TimeoutError:
            raise _HungUp from None

    def heard(self, num_samples: int) -> None:
        """Note a chunk that was read just now."""
        now_s = time.monotonic()
        if not num_samples:
            return
        if not self._outcome.chunks and self._planned.hang_up_s is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._planned.hang_up_s)
        self._outcome.chunks.append((now_s, num_samples))


def _asked(planned: Planned) -> dict[str, Any]:
    return {"seed": planned.seed, "max_new_tokens": planned.max_frames}


async def _until(at_s: float) -> None:
    await asyncio.sleep(max(at_s - time.monotonic(), 0.0))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(Generator(json.loads(sys.stdin.readline())).run())
