"""A step that never ends and a device that faults, in real processes: who hears, what restarts."""

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from playhead.engine.messages import Failed, Submit
from playhead.worker.demo.server import Access
from playhead.worker.thread_carrier import JOIN_S, ThreadCarrier
from playhead.worker.watchdog import STUCK_S, Watchdog
from tests.fakes import ScriptedEngine
from tests.worker.people import Person
from tests.worker.test_worker import Worker, ready

FAULTS = Path(__file__).parent / "faults"
LONG = "This sentence is said again and again, until somebody stops it. " * 16


# -- the parts


@pytest.mark.slow
def test_watchdog_barks_once_and_only_at_a_step_that_lasts() -> None:
    looks: list[float] = []
    barked: list[float] = []

    def step_started_s() -> float | None:
        looks.append(time.monotonic())
        if len(looks) <= 8:  # many steps, each shorter than the limit, and pauses between
            return None if len(looks) % 3 == 0 else looks[-1] - STUCK_S / 2
        return looks[8] - STUCK_S  # one that lasts

    watchdog = Watchdog(step_started_s, barked.append)
    watchdog.start()
    watchdog._thread.join(60)
    assert not watchdog._thread.is_alive() and len(looks) >= 9
    assert len(barked) == 1 and barked[0] > STUCK_S == 5.0


class StuckEngine(ScriptedEngine):
    """Answers nothing any more once told to; its thread stays where it is."""

    step_started_s: float | None = None

    def run(self) -> None:
        while not self._stopping.is_set():
            command = self._commands.get()
            if isinstance(command, Submit):
                self.step_started_s = time.monotonic() - STUCK_S
                time.sleep(600)


def test_a_stuck_engine_is_lost_once_and_close_does_not_wait_for_it() -> None:
    lost: list[str] = []
    told = threading.Event()
    carrier = ThreadCarrier(StuckEngine)  # type: ignore[arg-type]
    carrier.start(lambda _: None, lambda reason: (lost.append(reason), told.set())[0])
    assert carrier.status().ready
    carrier.send(Submit("a", text="Hello."))
    assert told.wait(20)
    assert not carrier.status().ready
    began_s = time.monotonic()
    carrier.close()
    assert time.monotonic() - began_s < JOIN_S, "it waited for a thread that never ends"
    assert len(lost) == 1 and "did not end" in lost[0]


# -- `playhead serve`, its engine a process or a thread of it


class Faulty:
    """A running `playhead serve` whose engine can be broken."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.log, self.fault, port = (folder / name for name in ("log", "fault", "port"))
        env = {k: v for k, v in os.environ.items() if not k.startswith("PLAYHEAD_")}
        env["PYTHONPATH"] = f"{FAULTS}{os.pathsep}{env.get('PYTHONPATH', 'src')}"
        env["PLAYHEAD_TEST_FAULT"] = str(self.fault)
        command = [sys.executable, "-m", "playhead.worker.cli", "serve", "--port", "0"]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--port-file", str(port), *flags], stdout=out, stderr=out, env=env
            )
        self.wait(lambda: port.is_file() and port.read_text().endswith("\n"))
        self.url = f"http://127.0.0.1:{port.read_text().strip()}"

    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, condition: Callable[[], Any], limit_s: float = 120) -> None:
        deadline_s = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline_s, self.told()[-4000:]
            time.sleep(0.1)

    def status(self) -> int:
        try:
            return httpx.get(f"{self.url}/ready", timeout=5).status_code
        except httpx.HTTPError:
            return 0

    def unready_page(self) -> str:
        """Return /metrics as it is while the service is not ready."""
        pages: list[str] = []

        def seen() -> bool:
            if self.status() == 503:
                pages.append(httpx.get(f"{self.url}/metrics", timeout=5).text)
            return "playhead_http_ready 0\n" in "".join(pages[-1:])

        self.wait(seen)
        return pages[-1]

    def break_(self, how: str) -> None:
        fresh = self.fault.with_suffix(".new")
        fresh.write_text(how)
        fresh.rename(self.fault)


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Callable[..., Faulty]]:
    running: list[Faulty] = []

    def start(*flags: str) -> Faulty:
        running.append(Faulty(tmp_path, *flags))
        return running[-1]

    yield start
    for served in running:
        family = (
            psutil.Process(served.process.pid).children() if served.process.poll() is None else []
        )
        served.process.kill()
        served.process.wait()
        for child in family:
            child.kill()


class Streams:
    """Live streams that are listened to until they end."""

    def __init__(self, served: Faulty, num: int) -> None:
        self._served = served
        self._begun = [threading.Event() for _ in range(num)]
        self.told = [""] * num
        self._threads = [threading.Thread(target=self._listen, args=(i,)) for i in range(num)]
        for thread in self._threads:
            thread.start()
        assert all(event.wait(60) for event in self._begun)

    def _listen(self, index: int) -> None:
        body = {"input": LONG, "response_format": "pcm", "stream_format": "sse"}
        url = f"{self._served.url}/v1/audio/speech"
        with httpx.stream("POST", url, json=body, timeout=60) as answer:
            for line in answer.iter_lines():  # one that takes nothing would be dropped
                self.told[index] += line + "\n"
                self._begun[index].set()

    def ended(self) -> list[str]:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        return self.told


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stuck", "fault"])
def test_a_broken_engine_ends_each_stream_once_and_is_restarted(
    faulty: Callable[..., Faulty], how: str
) -> None:
    served = faulty()
    served.wait(lambda: served.status() == 200)
    streams = Streams(served, 2)
    served.break_(how)
    assert "playhead_engine_load 1\n" in served.unready_page()
    for heard in streams.ended():
        assert "speech.audio.delta" in heard and "speech.audio.done" not in heard
        assert heard.count('"type":"error"') == 1
        assert '"code":"engine_away"' in heard
    served.wait(lambda: served.status() == 200)
    assert re.search(r"child ended with 1, restarting", served.told())
    assert served.told().count("engine ready at") == 2
    assert ("taken for stuck" in served.told()) is (how == "stuck")
    body = {"input": "Hello.", "response_format": "wav"}
    again = httpx.post(f"{served.url}/v1/audio/speech", json=body, timeout=60)
    assert again.status_code == 200 and served.process.poll() is None


@pytest.mark.slow
def test_three_faults_end_the_service_with_a_reason(faulty: Callable[..., Faulty]) -> None:
    served = faulty()
    served.break_("fault always")
    served.wait(lambda: served.process.poll() is not None)
    assert served.process.returncode == 1
    assert served.told().count("engine thread failed") == 3
    assert "3 faults within 300 s, giving up" in served.told()
    assert "the engine is gone for good" in served.told()


@pytest.mark.slow
def test_a_stuck_engine_in_the_same_process_ends_it(faulty: Callable[..., Faulty]) -> None:
    served = faulty("--carrier", "threads")
    served.wait(lambda: served.status() == 200)
    streams = Streams(served, 1)
    served.break_("stuck")
    (told,) = streams.ended()
    assert told.count('"type":"error"') == 1
    served.wait(lambda: served.process.poll() is not None)
    assert served.process.returncode == 1 and "the service ends" in served.told()


# -- `playhead worker`


@pytest.mark.slow
@pytest.mark.livekit
async def test_a_worker_with_a_stuck_device_tells_its_room_and_starts_anew(
    livekit_server: Access, room_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = tmp_path / "fault"
    monkeypatch.setenv("PLAYHEAD_TEST_FAULT", str(fault))
    monkeypatch.setenv("PYTHONPATH", f"{FAULTS}{os.pathsep}{os.environ.get('PYTHONPATH', 'src')}")
    worker = Worker(livekit_server, tmp_path, "--carrier", "thread")
    try:
        await worker.registered()
        first = worker.child("worker", "--no-supervise").pid
        async with Person(livekit_server, room_name, "ann") as ann:
            await ann.until(lambda: ann.worker, 30)
            await ann.say(LONG, "r1")
            await ann.told("r1", "started", limit_s=60)
            (tmp_path / "new").write_text("stuck")
            (tmp_path / "new").rename(fault)
            end = await ann.end_of("r1", limit_s=60)
            assert (end["type"], end["code"]) == ("error", "transport")
            assert len(ann.of("r1", "error", "finished", "interrupted")) == 1
        await worker.registered(times=2)
        await worker.until(lambda: ready(worker.port)[0] == 200)
        assert worker.child("worker", "--no-supervise").pid != first
        assert "child ended with 1, restarting" in worker.log
    finally:
        worker.stop()


@pytest.mark.slow
def test_a_worker_whose_engine_cannot_run_ends_at_once_with_two() -> None:
    command = [sys.executable, "-m", "playhead.worker.cli", "worker", "--carrier", "process"]
    keys = {"LIVEKIT_API_KEY": "k", "LIVEKIT_API_SECRET": "s" * 32}
    done = subprocess.run(
        [*command, "--profile", "ttfa"],
        env={**os.environ, **keys},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2 and "is for a GPU" in done.stderr
    assert done.stderr.count("child started") == 2, "one worker and one engine, none again"


# -- `playhead engine` and SIGTERM


@pytest.mark.slow
async def test_an_engine_asked_to_end_finishes_what_it_has_and_takes_no_more(
    private_folder: Path,
) -> None:
    from playhead.engine.errors import Busy
    from playhead.worker.client import EngineClient
    from playhead.worker.socket_carrier import SocketCarrier

    path = private_folder / "engine.sock"
    command = [sys.executable, "-m", "playhead.worker.cli", "engine", "--socket", str(path)]
    process = subprocess.Popen(command)
    client = EngineClient(SocketCarrier(path, connect_s=90))
    try:
        await asyncio.to_thread(client.start)
        # long enough to be on its way when the word comes, short enough for the drain's 30 s
        text = LONG[: len(LONG) // 4]
        speech = await client.submit(Submit("a", text=text, closed=True, live=False))
        first = await anext(speech)
        process.terminate()
        while client.status().ready:
            await asyncio.sleep(0.05)
        assert client.status().load == 1.0
        with pytest.raises(Busy):
            await client.submit(Submit("b", text="Too late.", closed=True))
        results = [first, *[result async for result in speech]]
        assert not any(isinstance(result, Failed) for result in results)
        assert type(results[-1]).__name__ == "Done"
        assert await asyncio.to_thread(process.wait, 30) == 0
    finally:
        process.kill()
        process.wait()
        await asyncio.to_thread(client.close)
