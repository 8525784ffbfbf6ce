"""A worker that is told to end: its live call goes on to its own end, no new one comes, exit 0."""

from pathlib import Path

import pytest
from livekit import api

from playhead.worker.demo.server import Access
from tests.worker.people import Person
from tests.worker.test_worker import SAID, Worker, ready

pytestmark = [pytest.mark.livekit, pytest.mark.slow, pytest.mark.timeout(170)]


async def test_a_live_call_ends_by_itself_and_no_new_one_is_taken(
    livekit_server: Access, room_name: str, tmp_path: Path
) -> None:
    said = f"{SAID} {SAID} {SAID}"
    running = Worker(livekit_server, tmp_path)
    try:
        await running.registered()
        async with Person(livekit_server, room_name, "ann") as ann:
            await ann.until(lambda: ann.worker, 30)
            await ann.say(said, "r1")
            await ann.told("r1", "started")
            running.process.terminate()
            await running.until(lambda: ready(running.port)[1]["draining"])
            assert ready(running.port)[0] == 503
            async with Person(livekit_server, f"{room_name}-late", "bob") as bob:
                end = await ann.end_of("r1", limit_s=60)
                assert (end["type"], end["heard_text"]) == ("finished", said)
                await ann.say(SAID, "r2")  # the call itself is not over
                assert (await ann.end_of("r2", limit_s=60))["heard_text"] == SAID
                assert bob.worker is None and running.process.poll() is None
        async with api.LiveKitAPI(
            livekit_server.url.replace("ws", "http", 1), livekit_server.key, livekit_server.secret
        ) as lk:
            await lk.room.delete_room(api.DeleteRoomRequest(room=room_name))
        await running.until(lambda: running.process.poll() is not None)
        assert running.process.returncode == 0, running.log
        assert running.log.count("received job request") == 1
    finally:
        running.stop()
