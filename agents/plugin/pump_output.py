"""PumpOutput: a session's last sink, over a pump of ours, so that its clock is exact.

    AgentSession ─▶ … ─▶ PumpOutput ─▶ Pump ─▶ track          playback events ─▶ AgentSession
                              ▲          └─▶ PlaybackClock ─▶ snapshots to the engine

What a pause takes back from the sender is sent when it goes on. Lives on the session's loop.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

from livekit import rtc
from livekit.agents.utils.aio import cancel_and_wait
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities
from livekit.plugins.playhead.playback import TICK_S, Segment

from playhead.engine.units import SAMPLE_RATE_HZ, samples_to_s
from playhead.worker.receivers import Receivers
from playhead.worker.track import Pump

SOON_S = 0.01
"""How often a segment is looked at that is about to begin or to end."""


class PumpOutput(AudioOutput):
    """Plays segments one after another and tells the session what became of each."""

    def __init__(self, pump: Pump) -> None:
        """Take a pump that does not run yet; nothing plays before `listen`."""
        super().__init__(
            label="playhead",
            capabilities=AudioOutputCapabilities(pause=True),
            sample_rate=SAMPLE_RATE_HZ,
        )
        self.receivers = Receivers()
        self.cut_text: str | None = None
        """What was heard of the segment that ended last, if it was cut and its words are known."""
        self.when_attached: Callable[[], object] = lambda: None
        """Called when a session takes this sink, or a stack of sinks above it."""
        self._pump = pump
        self._audience = asyncio.Event()
        self._segments: deque[Segment] = deque()
        self._open: Segment | None = None
        """The segment that frames go to; stays after a cut, so that late frames are dropped."""
        self._paused = False
        self._changed = asyncio.Event()
        self._tasks = [asyncio.create_task(work) for work in (pump.run(), self._watch())]

    def listen(self) -> None:
        """Somebody hears the track: play."""
        self._audience.set()
        if not self._paused:
            self._pump.resume()

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Queue a frame; before anybody listens it waits, so that nothing is lost."""
        await self._audience.wait()
        await super().capture_frame(frame)
        if self._open is None:
            self._open = self._begin(frame)
        if self._open not in self._segments:
            return  # it was cut
        self._open.num_samples += frame.samples_per_channel
        self._pump.push(self._open.clock, bytes(frame.data))

    def flush(self) -> None:
        """End the segment: it plays to its last sample."""
        super().flush()
        if self._open is not None and self._open in self._segments:
            self._open.flushed = True
            self._pump.end(self._open.clock)
            self._changed.set()
        self._open = None

    def clear_buffer(self) -> None:
        """Fall silent now and say what was heard."""
        if not self._segments:
            return
        self._pump.clear()
        now_s = time.monotonic()
        segments, self._segments = self._segments, deque()
        for segment in segments:
            self._tell_runs(segment, now_s, over=True)
            self.cut_text = segment.heard_text(now_s)
            self.on_playback_finished(
                playback_position=segment.heard_s(now_s),
                interrupted=True,
                synchronized_transcript=self.cut_text,
            )

    def pause(self) -> None:
        """Fall silent now and keep what has not left; the clocks stand."""
        super().pause()
        if self._paused:
            return
        self._paused = True
        self._pump.pause()
        now_s = time.monotonic()
        for segment in self._segments:
            segment.clock.pause(now_s)
            self._tell_start(segment, segment.clock.pushed_samples)
            self._tell_runs(segment, now_s, over=True)
            segment.report(now_s, self._pump.bridge_s(now_s))

    def resume(self) -> None:
        """Go on with the sample after the last one that left."""
        super().resume()
        if not self._paused:
            return
        self._paused = False
        for segment in self._segments:
            segment.clock.resume()
        if self._audience.is_set():
            self._pump.resume()
        self._changed.set()

    def on_attached(self) -> None:
        """Say so."""
        super().on_attached()
        self.when_attached()

    async def aclose(self) -> None:
        """Fall silent and stop the pump."""
        self.clear_buffer()
        await self._pump.settle()
        await cancel_and_wait(*self._tasks)

    def _begin(self, frame: rtc.AudioFrame) -> Segment:
        now_s = time.monotonic()
        segment = Segment(frame, self.receivers.estimate(now_s), now_s)
        segment.clock.start()
        if self._paused:
            segment.clock.pause(now_s)
        self._segments.append(segment)
        self._changed.set()
        return segment

    async def _watch(self) -> None:
        """Report at every tick; say what began and what ended."""
        while True:
            self._changed.clear()
            now_s = time.monotonic()
            estimate, bridge_s = self.receivers.estimate(now_s), self._pump.bridge_s(now_s)
            wait_s = TICK_S
            for segment in list(self._segments):
                segment.clock.receiver = estimate
                segment.report(now_s, bridge_s)
                wait_s = min(wait_s, self._look_at(segment, now_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s if self._segments else None):
                    await self._changed.wait()

    def _look_at(self, segment: Segment, now_s: float) -> float:
        """Tell of a segment's start and end; return when to look again, in seconds."""
        exited = segment.clock.exited_samples(now_s)
        self._tell_start(segment, exited)
        ended = segment.flushed and exited >= segment.num_samples
        self._tell_runs(segment, now_s, over=ended)
        if ended:
            self._segments.remove(segment)
            self.cut_text = None
            position_s = samples_to_s(segment.num_samples)
            self.on_playback_finished(playback_position=position_s, interrupted=False)
        left_s = segment.clock.dry_at_s(now_s) - now_s
        return max(left_s, SOON_S) if segment.started else SOON_S

    def _tell_start(self, segment: Segment, num_exited: int) -> None:
        """Tell that a segment sounds, once."""
        if not segment.started and num_exited:
            segment.started = True
            self.on_playback_started(created_at=time.time())

    def _tell_runs(self, segment: Segment, now_s: float, *, over: bool) -> None:
        """Tell what of a segment played without a break: recordings are put together from it."""
        if not segment.started:
            return
        for run in segment.take_runs(now_s, over=over):
            self.on_playback_progressed(
                started_at=time.time() - now_s + run.started_s,
                offset=run.offset_s,
                duration=run.duration_s,
            )
