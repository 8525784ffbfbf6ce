"""A worker that dies in the middle of a sentence: a fresh one registers and speaks."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from playhead.worker.demo.llm import PARAGRAPH, write_tokens
from playhead.worker.demo.server import LocalServer
from playhead.worker.listener import Listener
from tests.e2e.rig import Spoken, WorkerProcess, run_listener, wait_until

pytestmark = [pytest.mark.livekit, pytest.mark.slow, pytest.mark.timeout(240)]


def child_of(worker: WorkerProcess) -> int:
    assert worker.process is not None
    pid = worker.process.pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


async def kill_mid_sentence(server: LocalServer, worker: WorkerProcess, room: str) -> None:
    """Have a paragraph spoken and kill the worker once some of it was heard."""
    listener = Listener()
    await listener.join(server.access.url, server.access.token("victim", room))
    try:
        tokens: AsyncIterator[str] = write_tokens(PARAGRAPH, 0.03)
        await listener.speak(tokens, request_id="k1")
        async with asyncio.timeout(20):
            while (event := await listener.events.get())["type"] != "clock" or event["heard_s"] < 1:
                pass
        os.kill(child_of(worker), signal.SIGKILL)
        await asyncio.sleep(1.0)
    finally:
        await listener.leave()


async def test_worker_speaks_again_when_it_was_killed_mid_sentence(
    tmp_path: Path, room_name: str
) -> None:
    with LocalServer() as server:
        worker = WorkerProcess(server.access, tmp_path / "worker.log")
        worker.start()
        try:
            first = child_of(worker)
            await kill_mid_sentence(server, worker, room_name)
            wait_until(worker.ready, 60, "a fresh worker is ready")
            assert child_of(worker) != first
            heard = await asyncio.to_thread(
                run_listener,
                *(server.access, f"{room_name}-after", [Spoken("k2", "Hello again.")], tmp_path),
            )
        finally:
            worker.stop()
    assert heard.end_of("k2")["type"] == "finished"
