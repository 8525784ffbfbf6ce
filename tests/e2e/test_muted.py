"""Muted or unsubscribed amid speech: no step is made for nobody, and nothing of it is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest
from livekit import api, rtc

from playhead.worker.client import EngineClient
from playhead.worker.demo.server import Access
from playhead.worker.listener import Listener
from tests.e2e.test_closed_loop import client, speaking, still_frames, until

__all__ = ["client"]  # the fixture of an engine

pytestmark = [pytest.mark.livekit, pytest.mark.slow]

TEXT = (
    "Let me check that for you. The package left our warehouse on Monday morning, and it should "
    "be at your door by Friday."
)
LOUD = 600
MOST_AHEAD_FRAMES = 25
"""The target of the profile, what is in flight, and the word's way to the speaker: 2 s."""

Mute = Callable[[bool], Awaitable[None]]


@asynccontextmanager
async def listening(access: Access, room_name: str) -> AsyncIterator[Listener]:
    listener = Listener()
    await listener.join(access.url, access.token("ann", room_name))
    try:
        yield listener
    finally:
        await listener.leave()


@asynccontextmanager
async def administration(access: Access) -> AsyncIterator[api.LiveKitAPI]:
    lk = api.LiveKitAPI(access.url.replace("ws", "http", 1), access.key, access.secret)
    try:
        yield lk
    finally:
        await lk.aclose()


def loud_s(listener: Listener) -> float:
    """Return how much loud sound came out of the jitter buffer, in steps of 10 ms."""
    pcm = listener.recording.pcm()
    blocks = np.abs(pcm[: len(pcm) // 240 * 240].reshape(-1, 240)).max(axis=1, initial=0)
    return float(np.sum(blocks > LOUD)) * 0.01


async def one_text() -> AsyncIterator[str]:
    yield TEXT


async def heard_with_a_mute(
    listener: Listener, client: EngineClient, request_id: str, mute: Mute | None
) -> tuple[float, float]:
    """Speak; mute once some was heard, until no more is made. Return loud and heard seconds."""
    before_s = loud_s(listener)
    await listener.speak(one_text(), request_id=request_id, seed="7")
    if mute is not None:
        await until(lambda: loud_s(listener) > before_s + 1.0)
        began = client.status().metrics["frame_rows"]
        await mute(True)
        made = await still_frames(client) - began
        assert made < MOST_AHEAD_FRAMES, "a muted listener costs steps"
        assert client.num_live == 1, "the speech waits for its listener"
        await mute(False)
    end = await listener.wait_for("finished", request_id, limit_s=60)
    await asyncio.sleep(0.3)  # the last of it is in the jitter buffer
    assert end["heard_text"] == TEXT
    return loud_s(listener) - before_s, end["heard_s"]


@pytest.mark.timeout(240)
async def test_a_mute_amid_speech_stops_the_steps_and_loses_nothing(
    livekit_server: Access, room_name: str, client: EngineClient
) -> None:
    async with (
        speaking(livekit_server, room_name, client) as room,
        listening(livekit_server, room_name) as listener,
        administration(livekit_server) as lk,
    ):
        (publication,) = room.local_participant.track_publications.values()
        (heard,) = listener.room.remote_participants["worker"].track_publications.values()

        async def unsubscribe(muted: bool) -> None:
            heard.set_subscribed(not muted)

        async def mute_track(muted: bool) -> None:
            if not muted:  # a server lets nobody else undo it by default
                assert isinstance(publication.track, rtc.LocalAudioTrack)
                publication.track.unmute()
                return
            await lk.room.mute_published_track(
                api.MuteRoomTrackRequest(
                    room=room_name, identity="worker", track_sid=publication.sid, muted=muted
                )
            )

        found = await lk.room.get_participant(
            api.RoomParticipantIdentity(room=room_name, identity="worker")
        )
        assert [track.disable_dtx for track in found.tracks] == [True], "silence is sent too"
        calm_s, whole_s = await heard_with_a_mute(listener, client, "calm", None)
        for name, mute in (("unsubscribed", unsubscribe), ("muted", mute_track)):
            got_s, length_s = await heard_with_a_mute(listener, client, name, mute)
            assert length_s == whole_s, "the same samples were made"
            assert got_s > calm_s - 0.4, (name, got_s, calm_s)
