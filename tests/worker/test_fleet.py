"""Fleet: requests spread over engines, and a lost engine that takes only its own with it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from playhead.engine.errors import TransportError
from playhead.engine.messages import Submit
from playhead.worker.client import EngineClient
from playhead.worker.fleet import FleetCarrier
from playhead.worker.thread_carrier import ThreadCarrier
from tests.fakes import ScriptedEngine


class Stale(ScriptedEngine):
    """Its load is told too late to tell the engines apart."""

    def load(self) -> float:
        return 0.5


class Engines:
    """Scripted engines in threads, behind one client."""

    def __init__(self, number: int) -> None:
        self.made: list[ScriptedEngine] = []
        self.client = EngineClient(FleetCarrier([self._carrier() for _ in range(number)]))
        self.client.start()

    def _carrier(self) -> ThreadCarrier:
        def make(on_results: Any) -> Any:
            self.made.append(Stale(on_results))
            return self.made[-1]

        return ThreadCarrier(make)

    def submits(self) -> list[int]:
        return sorted(sum(isinstance(c, Submit) for c in each.seen) for each in self.made)


async def test_live_requests_spread_evenly() -> None:
    engines = Engines(3)
    held = [await engines.client.submit(Submit(f"r{n}", text="one ", live=False)) for n in range(7)]
    assert engines.submits() == [2, 2, 3]
    for each in held:
        each.cancel()
    engines.client.close()


async def test_a_request_stays_with_its_engine_to_the_end() -> None:
    engines = Engines(2)
    speech = await engines.client.submit(Submit("a", text="one ", live=False))
    other = await engines.client.submit(Submit("b", text="uno ", live=False))
    speech.append("two ")
    speech.close()
    results = [type(result).__name__ async for result in speech]
    assert results.count("Pcm") == 2 and results[-1] == "Done"
    assert engines.client.status().metrics.keys() == ScriptedEngine(print).metrics.snapshot().keys()
    other.cancel()
    engines.client.close()


async def test_a_lost_engine_ends_only_its_own_requests() -> None:
    engines = Engines(2)
    mine = await engines.client.submit(Submit("a", text="one ", live=False))
    other = await engines.client.submit(Submit("b", text="one ", live=False))
    broken = next(
        e
        for e in engines.made
        if any(isinstance(c, Submit) and "a" in c.request_id for c in e.seen)
    )
    broken.die = True
    mine.append("two ")
    with pytest.raises(TransportError, match="gone"):
        async for _ in mine:
            continue
    other.append("two ")
    other.close()
    assert [type(result).__name__ async for result in other][-1] == "Done"
    status = engines.client.status()
    assert status.ready and status.load >= 0.5, "half of the fleet is away"
    again = await engines.client.submit(Submit("c", text="one ", closed=True, live=False))
    assert [type(result).__name__ async for result in again][-1] == "Done"
    engines.client.close()


def engine_of(engines: Engines, name: str) -> ScriptedEngine:
    """Return the engine that was asked for a request."""
    asked = [each for each in engines.made if name in submitted(each)]
    assert len(asked) == 1
    return asked[0]


def submitted(engine: ScriptedEngine) -> list[str]:
    ids = [command.request_id for command in engine.seen if isinstance(command, Submit)]
    return [each.partition("-")[2] for each in ids]


async def test_a_request_without_an_answer_goes_to_another_engine() -> None:
    engines = Engines(2)
    held = await engines.client.submit(Submit("held", text="one ", live=False))
    left = engine_of(engines, "held")
    (dying,) = [each for each in engines.made if each is not left]
    dying.die = True  # at its next command, before it says a word about it
    moved = await engines.client.submit(Submit("moved", text="one ", closed=True, live=False))
    assert [type(result).__name__ async for result in moved][-1] == "Done"
    assert submitted(left) == ["held", "moved"] and submitted(dying) == []
    held.close()
    assert [type(result).__name__ async for result in held][-1] == "Done"
    engines.client.close()


async def test_a_request_that_breaks_engines_does_not_break_them_all() -> None:
    engines = Engines(3)
    for each in engines.made:
        each.die = True
    with pytest.raises(TransportError, match="gone"):
        await engines.client.submit(Submit("a", text="one ", live=False))
    assert engines.client.status().ready
    assert engines.client.status().load == pytest.approx((0.5 + 1 + 1) / 3), "one is left"
    engines.client.close()


async def test_without_any_engine_nothing_is_taken() -> None:
    engines = Engines(1)
    engines.made[0].die = True
    engines.made[0].post(Submit("x"))
    while engines.client.status().ready:
        await asyncio.sleep(0.01)
    assert engines.client.status().load == 1.0
    with pytest.raises(TransportError):
        await engines.client.submit(Submit("a", text="one"))
    engines.client.close()


@pytest.mark.slow
def test_one_service_speaks_with_several_engine_processes(tmp_path: Path) -> None:
    port, log = tmp_path / "port", tmp_path / "log"
    command = [sys.executable, "-m", "playhead.worker.cli", "serve", "--port", "0"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PLAYHEAD_")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--engines", "2", "--port-file", str(port)],
            stdout=out,
            stderr=out,
            env=clean,
        )
    try:
        url = asyncio.run(_ready(process, port, log))
        engines = psutil.Process(process.pid).children()
        assert len(engines) == 2
        body = {"input": "Hello there.", "response_format": "wav"}
        answers = [
            httpx.post(f"{url}/v1/audio/speech", json=body, timeout=60).status_code
            for _ in range(2)
        ]
        assert answers == [200, 200]
        engines[0].kill()  # the loss may be noticed after the next requests came
        again = [
            httpx.post(f"{url}/v1/audio/speech", json=body, timeout=60).status_code
            for _ in range(4)
        ]
        assert again == [200] * 4, "the other one goes on, and no client is told to ask again"
        assert httpx.get(f"{url}/ready").status_code == 200
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()


async def _ready(process: "subprocess.Popen[bytes]", port: Path, log: Path) -> str:
    async with asyncio.timeout(150), httpx.AsyncClient() as client:
        while True:
            assert process.poll() is None, log.read_text()
            if port.is_file() and port.read_text().endswith("\n"):
                url = f"http://127.0.0.1:{port.read_text().strip()}"
                if (await client.get(f"{url}/ready")).status_code == 200:
                    return url
            await asyncio.sleep(0.1)
