"""One contract for both carriers: an engine thread, and an engine behind a Unix socket."""

import asyncio
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import patch

import pytest

from playhead.engine.errors import ConfigError, TransportError
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
    Word,
    Words,
)
from playhead.worker.carrier import Carrier
from playhead.worker.client import EngineClient
from playhead.worker.engine_server import check_private, starters_first
from playhead.worker.socket_carrier import SocketCarrier
from playhead.worker.thread_carrier import ThreadCarrier
from tests.fakes import ScriptedEngine
from tests.worker.conftest import ServedEngine


class Line:
    """A started carrier, the engine at its end, and what came out."""

    def __init__(self, carrier: Carrier, engines: list[ScriptedEngine]) -> None:
        self.carrier = carrier
        self.engines = engines
        self.results: list[Result] = []
        self.lost: list[str] = []
        self._changed = Event()
        carrier.start(self._take, self._lose)

    def _take(self, results: list[Result]) -> None:
        self.results.extend(results)
        self._changed.set()

    def _lose(self, reason: str) -> None:
        self.lost.append(reason)
        self._changed.set()

    def of(self, request_id: str) -> list[Any]:
        return [each for each in self.results if each.request_id == request_id]

    def until(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 10
        while not condition():
            self._changed.wait(0.2)
            self._changed.clear()
            assert time.monotonic() < deadline_s, "the carrier hangs"

    def until_over(self, request_id: str) -> list[Any]:
        self.until(lambda: any(isinstance(r, Done | Failed | Refused) for r in self.of(request_id)))
        return self.of(request_id)


class Home:
    """A loop on a thread of its own, for carriers that live on one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@pytest.fixture
def home() -> Iterator[Home]:
    home = Home()
    yield home
    home.stop()


@pytest.fixture(params=["thread", "socket", "socket at home"])
def line(request: pytest.FixtureRequest, private_folder: Path, home: Home) -> Iterator[Line]:
    engines: list[ScriptedEngine] = []

    def make(on_results: Any) -> Any:
        engines.append(ScriptedEngine(on_results))
        return engines[-1]

    if request.param == "thread":
        line = Line(ThreadCarrier(make), engines)
        yield line
        line.carrier.close()
        return
    served = ServedEngine(make, private_folder / "engine.sock")
    served.start()
    at = home.loop if request.param == "socket at home" else None
    line = Line(SocketCarrier(served.path, home=at), engines)
    yield line
    line.carrier.close()
    served.stop()


def test_results_come_in_order_when_text_comes_in_pieces(line: Line) -> None:
    line.carrier.send(Submit("a", text="one ", live=False))
    line.carrier.send(Append("a", "two "))
    line.until(lambda: any(isinstance(r, Starved) for r in line.of("a")))
    line.carrier.send(Append("a", "three"))
    line.carrier.send(Close("a"))
    results = line.until_over("a")
    assert isinstance(results[0], Accepted) and isinstance(results[-1], Done)
    pcm = [r for r in results if isinstance(r, Pcm)]
    assert [r.start_sample for r in pcm] == [0, 5760, 11520]
    assert all(len(r.pcm) == 2 * 5760 for r in pcm)
    words = [w.text for r in results if isinstance(r, Words) for w in r.words]
    assert words == ["one ", "two ", "three"]


def test_every_result_type_crosses_when_asked_for(line: Line) -> None:
    line.carrier.send(Submit("refused", voice="nobody"))
    line.carrier.send(Submit("busy", text="!busy"))
    line.carrier.send(Submit("failed", text="one !fail two", closed=True, live=False))
    line.carrier.send(Submit("done", text="one", closed=True, live=False))
    assert line.until_over("refused") == [
        Refused("refused", "unknown_voice", "no voice 'nobody'; have: tone")
    ]
    assert line.until_over("busy")[0].retry_s == 0.5
    assert line.until_over("failed")[-1] == Failed("failed", "engine_failure", "told to fail")
    assert line.until_over("done")[-1] == Done("done", "stop", 5760, 3)


def test_cancel_ends_a_request_when_it_is_live_and_is_idempotent(line: Line) -> None:
    line.carrier.send(Submit("a", text="one "))
    line.until(lambda: len(line.of("a")) > 1)
    line.carrier.send(Cancel("a"))
    line.carrier.send(Cancel("a"))
    line.carrier.send(Cancel("never there"))
    assert line.until_over("a")[-1].reason == "cancelled"
    line.carrier.send(Submit("b", text="one", closed=True, live=False))
    line.until_over("b")
    assert sum(isinstance(r, Done) for r in line.of("a")) == 1


def test_snapshots_reach_the_engine_when_a_request_plays(line: Line) -> None:
    snapshot = PlaybackSnapshot("a", 1.0, 2, 1, 1.5, 0.0, 0, "waiting", "assumed")
    line.carrier.send(Submit("a", text="one "))
    line.carrier.send(Playback(snapshot))
    line.until(lambda: any(isinstance(c, Playback) for c in line.engines[0].seen))
    seen = next(c for c in line.engines[0].seen if isinstance(c, Playback)).snapshot
    assert seen.request_id.endswith("a") and seen.dry_at_s == 1.5 and seen.state == "waiting"


def test_nothing_is_mixed_up_when_many_requests_run(line: Line) -> None:
    names = [f"r{i}" for i in range(60)]
    for i, name in enumerate(names):
        line.carrier.send(Submit(name, text="word " * (i % 5 + 1), closed=True, live=False))
    for i, name in enumerate(names):
        results = line.until_over(name)
        assert sum(isinstance(r, Pcm) for r in results) == i % 5 + 1
        assert isinstance(results[0], Accepted) and isinstance(results[-1], Done)


def test_loss_is_told_once_and_send_raises_when_the_engine_dies(line: Line) -> None:
    line.carrier.send(Submit("a", text="one "))
    line.until(lambda: len(line.of("a")) > 1)
    line.engines[0].die = True
    line.until(lambda: bool(line.lost))
    with pytest.raises(TransportError):
        line.carrier.send(Submit("b", text="one"))
    assert len(line.lost) == 1
    assert not line.carrier.status().ready


def test_status_tells_voices_and_load_when_the_engine_runs(line: Line) -> None:
    status = line.carrier.status()
    assert status.ready and status.voices == ("tone",) and status.languages == ("english",)
    line.carrier.send(Submit("a", text="one "))
    line.until(lambda: line.carrier.status().load > 0)


# -- what only the socket has


def make_scripted(on_results: Any) -> Any:
    return ScriptedEngine(on_results)


@pytest.fixture
def served(private_folder: Path) -> Iterator[ServedEngine]:
    served = ServedEngine(make_scripted, private_folder / "engine.sock")
    served.start()
    yield served
    served.stop()


def test_ids_never_meet_when_two_clients_use_the_same(served: ServedEngine) -> None:
    lines = [Line(SocketCarrier(served.path), []) for _ in range(2)]
    lines[0].carrier.send(Submit("same", text="one two", closed=True, live=False))
    lines[1].carrier.send(Submit("same", text="one", closed=True, live=False))
    assert lines[0].until_over("same")[-1].num_samples == 2 * 5760
    assert lines[1].until_over("same")[-1].num_samples == 5760
    for line in lines:
        line.carrier.close()


def test_requests_are_cancelled_when_their_client_goes(served: ServedEngine) -> None:
    gone, stays = (Line(SocketCarrier(served.path), []) for _ in range(2))
    gone.carrier.send(Submit("a", text="one "))
    gone.until(lambda: len(gone.of("a")) > 1)
    stays.until(lambda: stays.carrier.status().load > 0)
    gone.carrier.close()
    stays.until(lambda: stays.carrier.status().load == 0)
    stays.carrier.close()


def test_client_dials_again_when_the_server_comes_back(private_folder: Path) -> None:
    path = private_folder / "engine.sock"
    served = ServedEngine(make_scripted, path)
    served.start()
    line = Line(SocketCarrier(path), [])
    served.stop()
    line.until(lambda: len(line.lost) == 1)
    served = ServedEngine(make_scripted, path)
    served.start()
    line.until(lambda: line.carrier.status().ready)
    line.carrier.send(Submit("a", text="one", closed=True, live=False))
    assert isinstance(line.until_over("a")[-1], Done)
    line.carrier.close()
    served.stop()


def test_a_client_on_the_carriers_loop_hands_nothing_between_threads(
    served: ServedEngine, home: Home
) -> None:
    client = EngineClient(SocketCarrier(served.path, home=home.loop))
    client.start()

    async def speak() -> list[str]:
        with patch.object(home.loop, "call_soon_threadsafe") as handed:
            utterance = await client.submit(Submit("a", text="one two", closed=True, live=False))
            names = [type(result).__name__ async for result in utterance]
        handed.assert_not_called()
        return names

    assert asyncio.run_coroutine_threadsafe(speak(), home.loop).result(10)[-1] == "Done"
    client.close()


def test_first_audio_goes_out_before_what_others_hear_later() -> None:
    late, starter = (Pcm(name, start, b"ab", 1) for name, start in (("a", 1920), ("b", 0)))
    word = Words("b", (Word("hi ", 0.0, 0.1),), True)
    end = Done("a", "stop", 1921, 2)
    assert starters_first([late, end, word, starter]) == [word, starter, late, end]
    assert starters_first([late, end]) == [late, end]


def test_connection_is_dropped_when_a_client_sends_rubbish(served: ServedEngine) -> None:
    for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02\x00\x00\x00\x00{}"):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(served.path))
            client.sendall(rubbish)
            while True:
                try:
                    if not client.recv(65536):
                        break
                except ConnectionResetError:
                    break
    line = Line(SocketCarrier(served.path), [])
    line.carrier.send(Submit("a", text="one", closed=True, live=False))
    assert isinstance(line.until_over("a")[-1], Done)
    line.carrier.close()


def test_socket_is_private_when_served(served: ServedEngine) -> None:
    assert stat.S_IMODE(os.stat(served.path).st_mode) == 0o600


def test_server_refuses_when_its_folder_is_open_to_others(private_folder: Path) -> None:
    private_folder.chmod(0o755)
    with pytest.raises(ConfigError, match="mode 755, allowed is 700"):
        check_private(private_folder / "engine.sock")


def test_start_raises_when_nobody_answers(private_folder: Path) -> None:
    carrier = SocketCarrier(private_folder / "nobody.sock", connect_s=0.3)
    with pytest.raises(TransportError, match="no engine answers"):
        carrier.start(lambda results: None, lambda reason: None)
