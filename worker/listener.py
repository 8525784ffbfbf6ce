"""A listener in a room: records what it hears, and tells the speaker how its receiver is doing.

ReceiverReporter is for any Python participant: four times a second it sends what the playback
clock needs (jitter buffer, round trip, concealment) as a lossy packet on `playhead.receiver`.
Listener joins a room with it, keeps the audio as heard with times, and collects events.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from livekit import rtc
from livekit.rtc.participant import PublishDataError

from playhead.engine.units import SAMPLE_RATE_HZ

RECEIVER_TOPIC = "playhead.receiver"
TEXT_TOPIC = "playhead.text"
EVENTS_TOPIC = "playhead.events"
CAPTIONS_TOPIC = "lk.transcription"
REPORT_PERIOD_S = 0.25
FRAME_MS = 10
"""What comes out of the jitter buffer at a time."""
AGENT_KIND = rtc.ParticipantKind.PARTICIPANT_KIND_AGENT


@dataclass(frozen=True, slots=True)
class _Totals:
    """Sums since the track began, as libwebrtc keeps them."""

    delay_s: float
    target_s: float
    emitted: int
    concealed: int
    rate_hz: float = 48_000.0


class ReceiverReporter:
    """Sends one receiver report every 250 ms for one subscribed audio track."""

    def __init__(self, room: rtc.Room, track: rtc.RemoteAudioTrack) -> None:
        """Report about `track` to everybody in `room`; nothing is sent until `run`."""
        self._room = room
        self._track = track
        self._last: _Totals | None = None
        self.last_report: dict[str, float] = {}

    async def run(self) -> None:
        """Send reports until cancelled or disconnected."""
        while True:
            await asyncio.sleep(REPORT_PERIOD_S)
            report = await self.measure()
            if report is None or not self._room.isconnected():
                continue
            with contextlib.suppress(PublishDataError):
                await self._room.local_participant.publish_data(
                    json.dumps(report), reliable=False, topic=RECEIVER_TOPIC
                )

    async def measure(self) -> dict[str, float] | None:
        """Return the report of the window since the last call; None before there is one."""
        totals, rtt_s = await self._read()
        last, self._last = self._last, totals
        if totals is None or last is None or totals.emitted <= last.emitted:
            return None
        emitted = totals.emitted - last.emitted
        self.last_report = {
            "jitter_buffer_s": round((totals.delay_s - last.delay_s) / emitted, 4),
            "target_s": round((totals.target_s - last.target_s) / emitted, 4),
            "rtt_s": round(rtt_s, 4),
            "playout_s": 0.0,
            "concealed_s": round((totals.concealed - last.concealed) / totals.rate_hz, 4),
            "audio_s": round(emitted / totals.rate_hz, 4),
        }
        return self.last_report

    async def _read(self) -> tuple[_Totals | None, float]:
        totals: _Totals | None = None
        rtt_s = 0.0
        for entry in await self._track.get_stats():
            kind = entry.WhichOneof("stats")
            if kind == "inbound_rtp":
                inbound = entry.inbound_rtp.inbound
                totals = _Totals(
                    inbound.jitter_buffer_delay,
                    inbound.jitter_buffer_target_delay,
                    inbound.jitter_buffer_emitted_count,
                    inbound.concealed_samples,
                )
            elif kind == "candidate_pair" and entry.candidate_pair.candidate_pair.nominated:
                rtt_s = entry.candidate_pair.candidate_pair.current_round_trip_time
        return totals, rtt_s


async def tell_listening(room: rtc.Room, listening: bool) -> None:
    """Tell the speaker whether its track is heard here: it makes nothing that nobody hears."""
    with contextlib.suppress(PublishDataError):
        await room.local_participant.publish_data(
            json.dumps({"listening": listening}), reliable=True, topic=RECEIVER_TOPIC
        )


@dataclass(slots=True)
class Recording:
    """What came out of the jitter buffer, with the moment each frame did."""

    _frames: list[npt.NDArray[np.int16]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _times_s: list[float] = field(default_factory=list)
    num_samples: int = 0

    def append(self, samples: npt.NDArray[np.int16], now_s: float) -> None:
        """Add a frame whose first sample is heard at `now_s`."""
        self._frames.append(samples)
        self._starts.append(self.num_samples)
        self._times_s.append(now_s)
        self.num_samples += len(samples)

    def pcm(self, first_s: float = 0.0) -> npt.NDArray[np.int16]:
        """Return the samples from a place in seconds on."""
        if not self._frames:
            return np.zeros(0, np.int16)
        return np.concatenate(self._frames)[round(first_s * SAMPLE_RATE_HZ) :]

    def arrivals(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the first sample of every frame and the time it was heard."""
        return np.asarray(self._starts, np.int64), np.asarray(self._times_s, np.float64)

    def time_at_s(self, place_s: float) -> float:
        """Return the monotonic time at which a place of the recording was heard.

        The receiver makes a frame every 10 ms, but a busy process takes some of them late, so the
        time comes from the prompter ones of the second around the place.
        """
        places = np.asarray(self._starts, np.float64) / SAMPLE_RATE_HZ
        times = np.asarray(self._times_s)
        near = np.abs(places - place_s) <= 0.5
        if not near.any():
            near = np.abs(places - place_s) <= np.abs(places - place_s).min() + 0.5
        return place_s + float(np.quantile(times[near] - places[near], 0.2))


class Listener:
    """One participant that hears the speaker of a room and may send it text."""

    def __init__(self, frame_ms: int = FRAME_MS) -> None:
        """Make it; `join` connects. Longer frames wake a process of many listeners less often."""
        self._frame_ms = frame_ms
        self.room = rtc.Room()
        self.recording = Recording()
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.captions: list[str] = []
        self.reporter: ReceiverReporter | None = None
        self._subscribed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._speaker = ""

    async def join(self, url: str, token: str, *, speaker_limit_s: float = 30.0) -> None:
        """Connect, and wait until the speaker's track is heard."""
        self.room.on("track_subscribed", self._on_track)
        self.room.on("track_unsubscribed", self._on_track_gone)
        self.room.on("data_received", self._on_data)
        self.room.register_text_stream_handler(CAPTIONS_TOPIC, self._on_caption)
        await self.room.connect(url, token)
        if speaker_limit_s > 0:
            await asyncio.wait_for(self._subscribed.wait(), speaker_limit_s)

    async def leave(self) -> None:
        """Disconnect and end every task."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.room.disconnect()

    @property
    def speaker(self) -> str:
        """Return the identity of the participant whose track is heard."""
        return self._speaker

    async def speak(self, tokens: AsyncIterator[str], **attributes: str) -> None:
        """Send text to the speaker as it is written, one text stream for the utterance."""
        writer = await self.room.local_participant.stream_text(
            topic=TEXT_TOPIC, attributes=attributes, destination_identities=[self._speaker]
        )
        try:
            async for token in tokens:
                await writer.write(token)
        finally:
            await writer.aclose()

    async def interrupt(self) -> dict[str, Any]:
        """Stop the speaker; return what it says was heard."""
        answer = await self.room.local_participant.perform_rpc(
            destination_identity=self._speaker, method="playhead.interrupt", payload="{}"
        )
        result: dict[str, Any] = json.loads(answer)
        return result

    async def wait_for(self, kind: str, request_id: str, *, limit_s: float) -> dict[str, Any]:
        """Return the next event of a kind for a request, dropping others on the way."""
        async with asyncio.timeout(limit_s):
            while True:
                event = await self.events.get()
                if event.get("type") == kind and event.get("request_id") == request_id:
                    return event

    def _on_track(
        self,
        track: rtc.Track,
        publication: rtc.RemoteTrackPublication,
        participant: rtc.RemoteParticipant,
    ) -> None:
        if not isinstance(track, rtc.RemoteAudioTrack) or participant.kind != AGENT_KIND:
            return
        self._speaker = participant.identity
        self.reporter = ReceiverReporter(self.room, track)
        self._spawn(self._record(track))
        self._spawn(self.reporter.run())
        self._spawn(tell_listening(self.room, True))
        self._subscribed.set()

    def _on_track_gone(
        self, _: rtc.Track, __: rtc.RemoteTrackPublication, participant: rtc.RemoteParticipant
    ) -> None:
        if participant.identity == self._speaker:
            self._spawn(tell_listening(self.room, False))

    def _on_data(self, packet: rtc.DataPacket) -> None:
        if packet.topic == EVENTS_TOPIC:
            self.events.put_nowait({**json.loads(packet.data), "at_s": time.monotonic()})

    def _on_caption(self, reader: rtc.TextStreamReader, participant_identity: str) -> None:
        self._spawn(self._read_caption(reader))

    async def _read_caption(self, reader: rtc.TextStreamReader) -> None:
        async for piece in reader:
            self.captions.append(piece)

    async def _record(self, track: rtc.RemoteAudioTrack) -> None:
        stream = rtc.AudioStream(
            track, sample_rate=SAMPLE_RATE_HZ, num_channels=1, frame_size_ms=self._frame_ms
        )
        held_s = (self._frame_ms - FRAME_MS) / 1e3
        try:
            async for event in stream:
                samples = np.frombuffer(event.frame.data, dtype=np.int16).copy()
                self.recording.append(samples, time.monotonic() - held_s)
        finally:
            await stream.aclose()

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
