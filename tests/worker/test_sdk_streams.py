"""Many listeners in one process: a frame wakes its own listener only."""

import asyncio

import numpy as np
import pytest
from livekit import rtc
from livekit.rtc import _ffi_client as ffi

from playhead.worker import sdk_routing

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
    own, foreign = await taken_by_two_streams(5)
    assert own >= foreign >= 4, "the SDK hands each to all by itself"
    assert sdk_routing.install()
    own, foreign = await taken_by_two_streams(5)
    assert own >= 5 and foreign == 0
