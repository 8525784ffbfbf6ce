"""Sinks that watch other sinks: what passes through them, and what became of it; one loop."""

import asyncio
import time

from livekit import rtc
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities
from livekit.plugins.playhead.playback import TICK_S, Segment
from livekit.plugins.playhead.pump_output import PumpOutput

from playhead.engine.receiver import ReceiverEstimate
from playhead.engine.units import s_to_samples


class HeardText(AudioOutput):
    """Passes everything on; a cut segment's transcript is what its last sink says was heard."""

    def __init__(self, output: PumpOutput, sink: AudioOutput) -> None:
        """Wrap a chain of sinks whose last is `output`."""
        super().__init__(
            label="playhead-heard",
            capabilities=AudioOutputCapabilities(pause=True),
            next_in_chain=sink,
            sample_rate=sink.sample_rate,
        )
        self._output = output

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Pass a frame on."""
        assert self.next_in_chain is not None
        await self.next_in_chain.capture_frame(frame)
        await super().capture_frame(frame)

    def flush(self) -> None:
        """Pass the end of a segment on."""
        super().flush()
        assert self.next_in_chain is not None
        self.next_in_chain.flush()

    def clear_buffer(self) -> None:
        """Pass a cut on."""
        assert self.next_in_chain is not None
        self.next_in_chain.clear_buffer()

    def on_playback_finished(
        self,
        *,
        playback_position: float,
        interrupted: bool,
        synchronized_transcript: str | None = None,
    ) -> None:
        """Tell of an end, with the words that were heard if it was cut."""
        heard = self._output.cut_text if interrupted else None
        super().on_playback_finished(
            playback_position=playback_position,
            interrupted=interrupted,
            synchronized_transcript=synchronized_transcript if heard is None else heard,
        )


class Tap(AudioOutput):
    """Watches a sink of somebody else's: an avatar, a console, the framework's own room output."""

    def __init__(self, sink: AudioOutput) -> None:
        """Wrap a sink that reports when its playback starts and ends."""
        super().__init__(
            label="playhead-tap",
            capabilities=AudioOutputCapabilities(pause=True),
            next_in_chain=sink,
            sample_rate=sink.sample_rate,
        )
        self._receiver = ReceiverEstimate()
        self._segment: Segment | None = None
        self._unplayed = 0
        """Samples captured before the sink began, or taken back by a pause."""
        self._paused = False
        self._ticking: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Count a frame and pass it on."""
        await super().capture_frame(frame)
        if self._segment is None:
            self._segment = Segment(frame, self._receiver, time.monotonic())
            self._tick()
        num_samples = s_to_samples(frame.duration)
        self._segment.num_samples += num_samples
        self._book(num_samples)
        assert self.next_in_chain is not None
        await self.next_in_chain.capture_frame(frame)

    def flush(self) -> None:
        """Pass the end of a segment on."""
        super().flush()
        assert self.next_in_chain is not None
        self.next_in_chain.flush()

    def clear_buffer(self) -> None:
        """Pass a cut on; the sink says how far it came."""
        assert self.next_in_chain is not None
        self.next_in_chain.clear_buffer()

    def pause(self) -> None:
        """Stop the clock and the sink."""
        super().pause()
        self._paused = True
        if self._segment is not None:
            self._unplayed += self._segment.clock.pause(time.monotonic())
            self._segment.report(time.monotonic())

    def resume(self) -> None:
        """Let both go on."""
        super().resume()
        self._paused = False
        if self._segment is not None:
            self._segment.clock.resume()
            self._book(0)

    def on_playback_started(self, *, created_at: float) -> None:
        """Start the clock."""
        if self._segment is not None:
            self._segment.clock.start()
            self._book(0)
        super().on_playback_started(created_at=created_at)

    def on_playback_finished(
        self,
        *,
        playback_position: float,
        interrupted: bool,
        synchronized_transcript: str | None = None,
    ) -> None:
        """Tell of an end, with the words that were heard if it was cut."""
        segment, self._segment, self._unplayed = self._segment, None, 0
        if segment is not None and interrupted:
            heard = segment.heard_text(time.monotonic())
            synchronized_transcript = synchronized_transcript if heard is None else heard
        super().on_playback_finished(
            playback_position=playback_position,
            interrupted=interrupted,
            synchronized_transcript=synchronized_transcript,
        )

    def close(self) -> None:
        """Stop reporting."""
        if self._ticking is not None:
            self._ticking.cancel()

    def _book(self, num_samples: int) -> None:
        """Book samples in the clock once they play."""
        segment, now_s = self._segment, time.monotonic()
        self._unplayed += num_samples
        if segment is None or segment.clock.state != "playing" or not self._unplayed:
            return
        segment.clock.push(self._unplayed, segment.clock.dry_at_s(now_s), now_s)
        self._unplayed = 0

    def _tick(self) -> None:
        if self._segment is not None:
            self._segment.report(time.monotonic())
            self._ticking = asyncio.get_running_loop().call_later(TICK_S, self._tick)
