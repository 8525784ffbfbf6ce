"""An interruption in a real room does not click: measured on what the listener receives."""

import asyncio
import itertools

import numpy as np
import pytest

from playhead.worker import sdk_routing
from playhead.worker.client import EngineClient
from playhead.worker.demo.server import Access
from playhead.worker.thread_carrier import ThreadCarrier
from tests.fakes import ScriptedEngine
from tests.worker.people import Person
from tests.worker.test_session import Rooms

pytestmark = pytest.mark.livekit

CUTS = 6


async def test_a_tone_ends_without_a_step_when_interrupted(
    livekit_server: Access, room_name: str
) -> None:
    sdk_routing.touch()
    sdk_routing.install()
    client = EngineClient(ThreadCarrier(ScriptedEngine))
    client.start()
    rooms = Rooms(livekit_server, room_name, client)
    smooth = 0
    async with rooms.person("ann") as ann, rooms.session():
        await ann.until(lambda: ann.worker)
        for number in range(CUTS):
            first = len(ann.sound)
            await ann.say("tone " * 30, f"r{number}")
            await ann.until(lambda first=first: loud_s(ann, first) > 0.6)
            await asyncio.sleep(0.0137 * number)  # another phase of the tone at each cut
            await ann.interrupt("worker")
            await ann.until(lambda: ann.sound and quiet_s(ann) > 0.3)
            smooth += ends_smoothly(np.concatenate(ann.sound[first:]))
    client.close()
    assert smooth >= CUTS - 1, "one may miss its tick on a busy machine"


def loud_s(person: Person, first: int) -> float:
    """Return the seconds of tone that were heard since a frame."""
    return 0.01 * sum(int(np.abs(frame).max()) > 500 for frame in person.sound[first:])


def quiet_s(person: Person) -> float:
    """Return the seconds of silence that were heard at the end."""
    return 0.01 * sum(1 for _ in itertools.takewhile(is_quiet, reversed(person.sound)))


def is_quiet(frame: np.ndarray) -> bool:
    return int(np.abs(frame).max()) <= 500


def ends_smoothly(sound: np.ndarray) -> bool:
    """Say whether no step at the end is much steeper than the tone itself."""
    loud = np.flatnonzero(np.abs(sound) > 500)
    start, end = int(loud[0]), int(loud[-1])
    steps = np.abs(np.diff(sound.astype(float)))
    return bool(steps[end - 480 : end + 480].max() < 2 * steps[start + 2400 : end - 2400].max())
