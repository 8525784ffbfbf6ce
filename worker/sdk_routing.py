"""Routing of audio inside the LiveKit SDK; the one user of its private parts.

The SDK hands every completed capture to every subscriber in the process, under the GIL: N rooms
cost N squared wake-ups, and 10 rooms in one process already miss deadlines. Here a completion
goes only to the capture that waits for it (measured: 40 rooms, no miss), a received frame only
to its own stream (ten streams: 8 instead of 40 % of a core), and what happens in a room, each
token of its texts and each report of its listeners, only to that room. Known SDK versions only;
`install` says whether it applied, and without it everything works, for fewer rooms.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from livekit import rtc
from livekit.rtc import _ffi_client as ffi
from livekit.rtc._proto import ffi_pb2

logger = logging.getLogger(__name__)

KNOWN_VERSIONS = frozenset({"1.1.21"})

_lock = threading.Lock()
_waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[str]]] = {}
_early: dict[int, str] = {}
"""Errors ("" is none) of captures that completed before their caller could wait."""
_fan_out = ffi.FfiQueue.put
_own_stream = rtc.AudioStream._create_owned_stream
_own_connect = rtc.Room.connect
_OF_ALL_ROOMS = frozenset({"rpc_method_invocation", "publish_track", "unpublish_track"})
"""Messages that name no room and are looked at by one; anything else has a queue of its own."""


def touch() -> None:
    """Create the SDK's process-wide client now: its lazy creation is no safe race for threads."""
    _ = ffi.FfiClient.instance


def install() -> bool:
    """Route audio if this SDK version is known; call in main, before any room exists."""
    if rtc.__version__ not in KNOWN_VERSIONS:
        logger.warning(
            "audio routing is off: SDK version %s is not among %s",
            rtc.__version__,
            ", ".join(sorted(KNOWN_VERSIONS)),
        )
        return False
    ffi.FfiQueue.put = _put  # type: ignore[method-assign,assignment]
    rtc.AudioSource.capture_frame = _capture_frame  # type: ignore[method-assign]
    rtc.AudioStream._create_owned_stream = _create_owned_stream  # type: ignore[method-assign]
    rtc.Room.connect = _connect  # type: ignore[method-assign]
    return True


def _put(self: "ffi.FfiQueue[ffi_pb2.FfiEvent]", event: ffi_pb2.FfiEvent) -> None:
    if event.WhichOneof("message") != "capture_audio_frame":
        _fan_out(self, event)
        return
    done = event.capture_audio_frame
    with _lock:
        waiter = _waiting.pop(done.async_id, None)
        if waiter is None:
            _early[done.async_id] = done.error
            return
    loop, future = waiter
    try:
        loop.call_soon_threadsafe(_resolve, future, done.error)
    except RuntimeError:
        return  # the room's loop is closed


def _resolve(future: "asyncio.Future[str]", error: str) -> None:
    if not future.done():
        future.set_result(error)


async def _capture_frame(self: rtc.AudioSource, frame: rtc.AudioFrame) -> None:
    """Stand in for AudioSource.capture_frame: same accounting, same errors."""
    if frame.samples_per_channel == 0 or self._ffi_handle.disposed:
        return
    _account(self, frame)
    request = ffi_pb2.FfiRequest()
    request.capture_audio_frame.source_handle = self._ffi_handle.handle
    request.capture_audio_frame.buffer.CopyFrom(frame._proto_info())
    async_id = ffi.FfiClient.instance.request(request).capture_audio_frame.async_id
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()
    with _lock:
        error = _early.pop(async_id, None)
        if error is None:
            _waiting[async_id] = (loop, future)
    if error is None:
        try:
            error = await future
        finally:
            with _lock:
                _waiting.pop(async_id, None)
    if error:
        raise RuntimeError(error)


def _account(source: rtc.AudioSource, frame: rtc.AudioFrame) -> None:
    """Keep the SDK's own estimate of queued audio, which wait_for_playout lives on."""
    now_s = source._loop.time()
    elapsed_s = 0.0 if source._last_capture == 0.0 else now_s - source._last_capture
    source._q_size += frame.samples_per_channel / source.sample_rate - elapsed_s
    source._last_capture = now_s
    if source._join_handle:
        source._join_handle.cancel()
    if source._join_fut is None:
        source._join_fut = source._loop.create_future()
    source._join_handle = source._loop.call_later(source._q_size, source._release_waiter)


def _create_owned_stream(self: rtc.AudioStream) -> Any:
    """Stand in for AudioStream._create_owned_stream: its queue gets its own frames."""
    owned = _own_stream(self)

    def is_own(event: ffi_pb2.FfiEvent) -> bool:
        found: bool = event.audio_stream_event.stream_handle == owned.handle.id
        return found

    _narrow(self._ffi_queue, is_own)
    return owned


async def _connect(self: rtc.Room, *args: Any, **given: Any) -> None:
    """Stand in for Room.connect: once it is connected, its queue gets what its room is told."""
    await _own_connect(self, *args, **given)
    assert self._ffi_handle is not None
    room = self._ffi_handle.handle

    def is_own(event: ffi_pb2.FfiEvent) -> bool:
        kind = event.WhichOneof("message")
        if kind == "room_event":
            found: bool = event.room_event.room_handle == room
            return found
        return kind in _OF_ALL_ROOMS

    _narrow(self._ffi_queue, is_own)


def _narrow(own: object, is_own: Callable[[ffi_pb2.FfiEvent], bool]) -> None:
    """Let a subscriber's queue get what is its own."""
    queue = ffi.FfiClient.instance.queue
    with queue._lock:
        queue._subscribers[:] = [
            (each, loop, is_own if each is own else wanted)
            for each, loop, wanted in queue._subscribers
        ]
