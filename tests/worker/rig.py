"""A room without a network: a source that records what it is given, and a speaker over it."""

import asyncio
import time
from typing import Any

import numpy as np
from livekit import rtc

from playhead.engine.messages import Submit
from playhead.worker.client import EngineClient
from playhead.worker.events import Caption, SpeakerEvent
from playhead.worker.receivers import Receivers
from playhead.worker.speaker import Speaker
from playhead.worker.speech import Speech
from playhead.worker.thread_carrier import ThreadCarrier
from playhead.worker.track import QUEUE_MS, QueuedPump
from tests.fakes import ScriptedEngine


class RecordingSource:
    """Takes frames like an AudioSource whose queue never fills."""

    def __init__(self) -> None:
        self.frames: list[tuple[float, bytes]] = []
        self.cleared_at_s: list[float] = []
        self._probed = False

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        self._probed = frame.samples_per_channel > 24 * QUEUE_MS
        if self._probed:  # the pump looks for the queue's ticks
            return
        self.frames.append((time.monotonic(), bytes(frame.data)))
        await asyncio.sleep(0)

    def clear_queue(self) -> None:
        if not self._probed:
            self.cleared_at_s.append(time.monotonic())

    @property
    def samples(self) -> np.ndarray:
        return np.frombuffer(b"".join(data for _, data in self.frames), "<i2")


class Rig:
    """A speaker with its engine, pump and everything it said."""

    def __init__(self) -> None:
        self.engines: list[ScriptedEngine] = []
        self.client = EngineClient(ThreadCarrier(self._make))
        self.source = RecordingSource()
        self.receivers = Receivers()
        self.events: list[SpeakerEvent] = []
        self._changed = asyncio.Event()
        self.pump = QueuedPump(self.source, lambda: self.speaker.restarted())
        self.speaker = Speaker(self.client, self.pump, self.receivers, self._take)
        self.task: asyncio.Task[None] | None = None

    def _make(self, on_results: Any) -> Any:
        self.engines.append(ScriptedEngine(on_results))
        return self.engines[-1]

    def _take(self, event: SpeakerEvent) -> None:
        self.events.append(event)
        self._changed.set()

    async def __aenter__(self) -> "Rig":
        self.client.start()
        self.task = asyncio.create_task(self.speaker.run())
        await asyncio.sleep(0)  # let it begin
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])
        self.client.close()

    def say(self, text: str, name: str = "r", cut: bool = False, close: bool = True) -> Speech:
        speech = self.speaker.speak(Submit(name), name, cut=cut)
        speech.append(text)
        if close:
            speech.close()
        return speech

    def of(self, kind: type[Any], name: str = "r") -> list[Any]:
        return [e for e in self.events if isinstance(e, kind) and e.request_id == name]

    async def until(self, kind: type[Any], name: str = "r", limit_s: float = 10.0) -> Any:
        async with asyncio.timeout(limit_s):
            while not self.of(kind, name):
                self._changed.clear()
                await self._changed.wait()
        return self.of(kind, name)[0]

    def captions(self, name: str = "r") -> str:
        return "".join(event.text for event in self.of(Caption, name))
