"""A person (or agent, or phone) in a real room: what it hears, is told and reads."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from livekit import api, rtc

from playhead.worker.demo.server import Access

LOUD = 300


class Person:
    """Joins a room; collects events, captions and the sound of the worker's track."""

    def __init__(self, access: Access, room_name: str, identity: str, kind: Any = "standard"):
        self.access, self.room_name, self.identity, self.kind = access, room_name, identity, kind
        self.room = rtc.Room()
        self.events: list[dict[str, Any]] = []
        self.captions: list[tuple[str, dict[str, str]]] = []
        self.sound: list[np.ndarray] = []
        self.worker: str | None = None
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.room.on("data_received", self._on_data)
        self.room.on("track_subscribed", self._on_track)
        self.room.register_text_stream_handler("lk.transcription", self._on_caption)

    async def __aenter__(self) -> "Person":
        token = self.access.token(self.identity, self.room_name, kind=self.kind)
        await self.room.connect(self.access.url, token)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.leave()

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(Exception):
            await self.room.disconnect()

    def _on_data(self, packet: rtc.DataPacket) -> None:
        if packet.topic == "playhead.events":
            self.events.append(json.loads(packet.data))
            self._changed.set()

    def _on_track(self, track: rtc.Track, _: object, participant: rtc.RemoteParticipant) -> None:
        self.worker = participant.identity
        self._changed.set()
        stream = rtc.AudioStream(track, sample_rate=24000, num_channels=1)

        async def listen() -> None:
            async for event in stream:
                self.sound.append(np.frombuffer(event.frame.data, np.int16).copy())

        self._spawn(listen())

    def _on_caption(self, reader: rtc.TextStreamReader, _: str) -> None:
        async def read() -> None:
            text = "".join([piece async for piece in reader])
            self.captions.append((text, dict(reader.info.attributes or {})))
            self._changed.set()

        self._spawn(read())

    def _spawn(self, work: Any) -> None:
        self._tasks.add(asyncio.create_task(work))

    async def until(self, condition: Callable[[], Any], limit_s: float = 20) -> None:
        deadline_s = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline_s, f"waited in vain; told so far: {self.events}"
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 0.2)

    def of(self, request_id: str, *kinds: str) -> list[dict[str, Any]]:
        mine = [event for event in self.events if event.get("request_id") == request_id]
        return [event for event in mine if not kinds or event["type"] in kinds]

    async def told(self, request_id: str, *kinds: str, limit_s: float = 20) -> dict[str, Any]:
        await self.until(lambda: self.of(request_id, *kinds), limit_s)
        return self.of(request_id, *kinds)[0]

    async def end_of(self, request_id: str, limit_s: float = 20) -> dict[str, Any]:
        return await self.told(request_id, "finished", "interrupted", "error", limit_s=limit_s)

    async def say(self, text: str, request_id: str, **attributes: str) -> None:
        attributes["request_id"] = request_id
        await self.room.local_participant.send_text(
            text, topic="playhead.text", attributes=attributes
        )

    async def open(self, request_id: str, **attributes: str) -> rtc.TextStreamWriter:
        attributes["request_id"] = request_id
        return await self.room.local_participant.stream_text(
            topic="playhead.text", attributes=attributes
        )

    async def interrupt(self, worker: str) -> dict[str, Any]:
        answer = await self.room.local_participant.perform_rpc(
            destination_identity=worker, method="playhead.interrupt", payload=""
        )
        body: dict[str, Any] = json.loads(answer)
        return body

    @property
    def loud_s(self) -> float:
        """Seconds of sound above the threshold, in steps of 10 ms."""
        return 0.01 * sum(int(np.abs(frame).max(initial=0)) > LOUD for frame in self.sound)


async def delete_room(access: Access, room_name: str) -> None:
    """Close a room on the server."""
    lk = api.LiveKitAPI(access.url.replace("ws", "http", 1), access.key, access.secret)
    try:
        await lk.room.delete_room(api.DeleteRoomRequest(room=room_name))
    finally:
        await lk.aclose()
