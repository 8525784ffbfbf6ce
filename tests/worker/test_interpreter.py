"""Searches for garbage, in interpreters of their own: what is tuned stays tuned. Who goes first."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from playhead.worker import interpreter
from playhead.worker.thread_carrier import ThreadCarrier
from tests.fakes import ScriptedEngine

ROOT = Path(__file__).parents[2]
CODE = """
import gc, sys, weakref
from playhead.worker import interpreter as here

class Ring:
    def __init__(self):
        self.me = self

def ring():
    return weakref.ref(Ring())

own_s = sys.getswitchinterval()
here.settle()
assert sys.getswitchinterval() == own_s
here.hand_over_at_once()
assert abs(sys.getswitchinterval() - here.HANDOVER_S) < 1e-9
assert gc.get_freeze_count() > 1_000, "what is loaded is left out of every search"
lost = ring()
more = [[] for _ in range(20_000)]
assert lost() is not None, "20,000 new objects start no search"
here.search_garbage()
assert lost() is None, "an idle moment does"
lost = ring()
here.search_garbage()
assert lost() is not None, "unless there is too little to be found"
most = [[] for _ in range(here.MOST_OBJECTS + 1_000)]
assert lost() is None, "and so does very much of it"
"""

ROOMS = """
import asyncio, gc, sys, weakref
from livekit.agents import JobExecutorType, JobProcess
from playhead.worker import app, interpreter
from tests.fakes import ScriptedEngine
from tests.worker.conftest import ServedEngine

class Ring:
    def __init__(self):
        self.me = self

def tuned():
    assert sys.getswitchinterval() > 0.004, "rooms have threads of their own: none is cut short"
    return gc.get_freeze_count()

def worker(carrier):
    options = app.WorkerOptions("ws://nowhere", "key", "secret" * 6, carrier=carrier)
    return app.WorkerApp(options)

async def tidied(client):
    task = asyncio.create_task(app._tidy(client))
    lost = weakref.ref(Ring())
    more = [[] for _ in range(2 * interpreter.WORTH_OBJECTS)]
    for _ in range(200):
        await asyncio.sleep(0.05)
        if lost() is None:
            break
    task.cancel()
    assert lost() is None, "nobody is spoken to: it is searched for"
"""
IN_THREADS = """
made = worker("socket")
seen = [tuned()]
for _ in range(2):  # the second time the server was away: rooms may be live
    made._server.emit("worker_registered", "id", None)
    seen.append(tuned())
    later = [Ring() for _ in range(1000)]
assert seen[0] == 0 < seen[1] == seen[2], seen
asyncio.run(tidied(made.client))
"""
IN_PROCESSES = """
made = worker("process")
made._server.emit("worker_registered", "id", None)
assert not tuned(), "nobody is spoken to in that process"
engine = ServedEngine(ScriptedEngine, made._engine_process.path)
engine.start()
job = JobProcess(executor_type=JobExecutorType.PROCESS, user_arguments=None, http_proxy=None)
app._dial_engine(engine.path, app.RoomOptions(), job)
assert tuned()
asyncio.run(tidied(job.userdata["client"]))
job.userdata["client"].close()
engine.stop()
"""


def run(code: str) -> None:
    path = f"import sys; sys.path.append({str(ROOT)!r})\n"
    command = [sys.executable, "-c", path + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_garbage_is_searched_for_in_idle_moments_and_when_there_is_very_much() -> None:
    run(CODE)


@pytest.mark.slow
@pytest.mark.parametrize("code", [IN_THREADS, IN_PROCESSES], ids=["threads", "processes"])
def test_every_process_that_speaks_in_rooms_is_tuned_once_it_is_loaded(code: str) -> None:
    run(ROOMS + code)


def niceness_of_an_engine() -> int:
    """Start one on its thread and ask the system about that thread."""
    carrier = ThreadCarrier(ScriptedEngine)  # type: ignore[arg-type]
    others = set(threading.enumerate())
    carrier.start(lambda results: None, lambda reason: None)
    (thread,) = [
        each for each in {*threading.enumerate()} - others if each.name == "playhead-engine"
    ]
    niceness, asked_s = 0, time.monotonic()
    while not niceness and time.monotonic() < asked_s + 1.0:
        niceness = os.getpriority(os.PRIO_PROCESS, thread.native_id or 0)
    assert carrier.status().ready
    carrier.close()
    return niceness


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has no niceness of its own")
def test_an_engine_goes_first_where_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"import os; os.setpriority(os.PRIO_PROCESS, 0, {interpreter.ENGINE_NICE})"
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True).returncode
    assert niceness_of_an_engine() == (0 if refused else interpreter.ENGINE_NICE)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == 0, "it alone"

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse)
    assert niceness_of_an_engine() == 0
