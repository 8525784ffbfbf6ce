"""Many rooms in one process: a frame wakes its own listener only, an event its own room."""

import asyncio

import numpy as np
import pytest
from livekit import rtc
from livekit.rtc import _ffi_client as ffi

from playhead.worker import sdk_routing
from playhead.worker.demo.server import Access

FRAME = rtc.AudioFrame(np.full(240, 1_000, "<i2").tobytes(), 24_000, 1, 240)


async def taken_by_two_streams(frames: int) -> tuple[int, int]:
    """Send frames on the first of two tracks; return how many events each one's stream got."""
    sources = [rtc.AudioSource(24_000, 1, queue_size_ms=0) for _ in range(2)]
    tracks = [rtc.LocalAudioTrack.create_audio_track("t", source) for source in sources]
    streams = [rtc.AudioStream(track, sample_rate=24_000, num_channels=1) for track in tracks]
    for stream in streams:
        stream._task.cancel()  # what came stays in the queue
    async with asyncio.timeout(20):
        while streams[0]._ffi_queue.qsize() < frames:
            await sources[0].capture_frame(FRAME)
            await asyncio.sleep(0.01)
    counts = streams[0]._ffi_queue.qsize(), streams[1]._ffi_queue.qsize()
    for stream in streams:
        stream._ffi_handle.dispose()
    return counts


async def test_a_frame_goes_to_its_own_stream_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((rtc.AudioSource, "capture_frame"), (ffi.FfiQueue, "put")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back afterwards
    monkeypatch.setattr(rtc.AudioStream, "_create_owned_stream", sdk_routing._own_stream)
    monkeypatch.setattr(rtc.Room, "connect", sdk_routing._own_connect)
    own, foreign = await taken_by_two_streams(5)
    assert own >= foreign >= 4, "the SDK hands each to all by itself"
    assert sdk_routing.install()
    own, foreign = await taken_by_two_streams(5)
    assert own >= 5 and foreign == 0


async def told_of_rooms(access: Access, name: str, packets: int) -> tuple[set[int], int]:
    """Send packets in one of two rooms; return whose events the other one got, and its handle."""
    rooms = [rtc.Room() for _ in range(3)]
    got = asyncio.Semaphore(0)
    rooms[0].on("data_received", lambda _: got.release())
    for room, where, who in zip(rooms, ("a", "a", "b"), ("ann", "bob", "cid"), strict=True):
        await room.connect(access.url, access.token(who, f"{name}-{where}"))
    foreign, seen = rooms[2], set[int]()
    assert foreign._ffi_queue is not None and foreign._ffi_handle is not None
    put = foreign._ffi_queue.put_nowait

    def note(event: ffi.proto_ffi.FfiEvent) -> None:
        if event.WhichOneof("message") == "room_event":
            seen.add(event.room_event.room_handle)
        put(event)

    foreign._ffi_queue.put_nowait = note  # type: ignore[method-assign]
    try:
        async with asyncio.timeout(20):
            for _ in range(packets):
                await rooms[1].local_participant.publish_data("x")
                await got.acquire()
            await foreign.local_participant.set_name("dan")
            while foreign._ffi_handle.handle not in seen:
                await asyncio.sleep(0.02)
    finally:
        for room in rooms:
            await room.disconnect()
    return seen, foreign._ffi_handle.handle


@pytest.mark.livekit
async def test_what_happens_in_a_room_goes_to_that_room_only(
    livekit_server: Access, room_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in ((rtc.AudioSource, "capture_frame"), (ffi.FfiQueue, "put")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back afterwards
    monkeypatch.setattr(rtc.AudioStream, "_create_owned_stream", sdk_routing._own_stream)
    monkeypatch.setattr(rtc.Room, "connect", sdk_routing._own_connect)
    seen, own = await told_of_rooms(livekit_server, room_name, 3)
    assert own in seen and len(seen) > 1, "the SDK hands each to all by itself"
    assert sdk_routing.install()
    seen, own = await told_of_rooms(livekit_server, f"{room_name}-routed", 3)
    assert seen == {own}
