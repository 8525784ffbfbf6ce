"""EngineClient over a scripted engine thread: many loops, many threads, errors, cancels."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from playhead.engine.errors import Busy, EngineFailure, TransportError, UnknownVoice
from playhead.engine.messages import Cancel, Done, Pcm, PlaybackSnapshot, Starved, Submit, Words
from playhead.worker.client import EngineClient
from playhead.worker.thread_carrier import ThreadCarrier
from tests.fakes import ScriptedEngine


class Bench:
    def __init__(self) -> None:
        self.engines: list[ScriptedEngine] = []
        self.client = EngineClient(ThreadCarrier(self._make))
        self.client.start()

    def _make(self, on_results: Any) -> Any:
        self.engines.append(ScriptedEngine(on_results))
        return self.engines[-1]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.client.close()


async def speak(client: EngineClient, text: str) -> list[Any]:
    utterance = await client.submit(Submit("r", live=False))
    for word in text.split(" "):
        utterance.append(word + " ")
        await asyncio.sleep(0)
    utterance.close()
    return [result async for result in utterance]


async def test_results_are_iterated_when_text_comes_in_pieces(bench: Bench) -> None:
    results = await asyncio.wait_for(speak(bench.client, "one two three"), 5)
    words = [w.text for r in results if isinstance(r, Words) for w in r.words]
    assert words == ["one ", "two ", "three "]
    assert isinstance(results[-1], Done) and results[-1].num_samples == 3 * 5760
    assert bench.client.num_live == 0


def test_each_loop_gets_its_own_when_many_threads_share_a_client(bench: Bench) -> None:
    async def many(number: int) -> list[int]:
        texts = [" ".join(["w"] * (number % 4 + 1 + i)) for i in range(8)]
        spoken = await asyncio.gather(*(speak(bench.client, text) for text in texts))
        return [sum(isinstance(r, Pcm) for r in results) for results in spoken]

    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda number: asyncio.run(many(number)), range(8)))
    assert counts == [[number % 4 + 1 + i for i in range(8)] for number in range(8)]
    assert bench.client.num_live == 0


async def test_submit_raises_what_the_refusal_means(bench: Bench) -> None:
    with pytest.raises(UnknownVoice, match="have: tone"):
        await bench.client.submit(Submit("r", voice="nobody"))
    with pytest.raises(Busy) as busy:
        await bench.client.submit(Submit("r", text="!busy"))
    assert busy.value.retry_s == 0.5
    assert bench.client.num_live == 0


async def test_iteration_raises_when_the_engine_fails_the_request(bench: Bench) -> None:
    utterance = await bench.client.submit(Submit("r", text="one !fail x", closed=True, live=False))
    with pytest.raises(EngineFailure, match="told to fail"):
        async for _ in utterance:
            pass
    utterance.append("late")
    utterance.cancel()


async def test_nothing_comes_when_cancelled_and_cancel_is_idempotent(bench: Bench) -> None:
    utterance = await bench.client.submit(Submit("r", text="one two three "))
    async for result in utterance:
        if isinstance(result, Pcm):
            utterance.cancel()
            utterance.cancel()
    assert bench.client.num_live == 0
    await asyncio.wait_for(speak(bench.client, "next"), 5)
    assert sum(isinstance(command, Cancel) for command in bench.engines[0].seen) == 1


async def test_waiting_iterator_ends_when_another_task_cancels(bench: Bench) -> None:
    utterance = await bench.client.submit(Submit("r"))
    waiting = asyncio.create_task(anext(utterance, None))
    await asyncio.sleep(0.02)
    utterance.cancel()
    assert await asyncio.wait_for(waiting, 5) is None


async def test_utterance_raises_when_the_engine_dies(bench: Bench) -> None:
    utterances = [await bench.client.submit(Submit("r", text="one ")) for _ in range(5)]
    bench.engines[0].die = True
    bench.client.send(Cancel("wake up"))
    for utterance in utterances:
        with pytest.raises(TransportError):
            await asyncio.wait_for(_drain(utterance), 5)
    with pytest.raises(TransportError):
        await asyncio.wait_for(bench.client.submit(Submit("r")), 5)
    assert bench.client.num_live == 0


async def test_slot_is_freed_when_submit_itself_is_cancelled(bench: Bench) -> None:
    for _ in range(20):
        submit = asyncio.create_task(bench.client.submit(Submit("r", text="one ")))
        await asyncio.sleep(0)
        submit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submit
    await asyncio.wait_for(speak(bench.client, "next"), 5)
    assert bench.engines[0].load() == 0


async def test_snapshot_and_starved_pass_when_live(bench: Bench) -> None:
    utterance = await bench.client.submit(Submit("r", text="one "))
    kinds = [type(await anext(utterance)) for _ in range(3)]
    assert kinds == [Words, Pcm, Starved]
    snapshot = PlaybackSnapshot(utterance.request_id, 0, 0, 0, 0, 0, 0, "playing", "exact")
    utterance.report(snapshot)
    utterance.cancel()
    utterance.report(snapshot)


async def _drain(utterance: Any) -> None:
    async for _ in utterance:
        pass
