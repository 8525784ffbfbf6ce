"""ReplayRunner: a Runner that computes nothing; batches land when a device's step time is over.

Time is a pair of functions: `now` and `sleep_until`. On a clock that only the simulator moves a
run takes no real time; on the machine's own clock the engine above behaves as on the device whose
times are given. What is spoken comes from a script: how long each utterance is, or its samples.

Frame and codec batches run on two streams, each in order. While both work, each runs at the
`overlap_speed` of the frame batch's size. Torch-free.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
from playhead.engine.flight import Flight
from playhead.engine.profile import Profile
from playhead.engine.replay_times import StepTimes
from playhead.engine.runner import CodecResult, FrameResult, MakeRunner, Runner
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES

if TYPE_CHECKING:
    from playhead.engine.models.config import ResolvedSampling
    from playhead.engine.models.loader import Model
    from playhead.engine.models.prompt import Prompt

Pcm = NDArray[np.int16]
Now = Callable[[], float]
SleepUntil = Callable[[float], None]

TONE: Pcm = np.rint(8000 * np.sin(np.arange(FRAME_SAMPLES) * (2 * np.pi / 160))).astype(np.int16)
"""One frame of 150 Hz: loud in every window of the silence trim."""
_TONES = np.tile(TONE, 64)


@dataclass(frozen=True, slots=True)
class Speech:
    """What one utterance is made of."""

    num_frames: int | None = None
    """Its row ends here, as soon as it may; None: when its samples end, else when it may."""
    silent_frames: int = 0
    """Frames of silence before the tone."""
    samples: Pcm | None = None
    """[n] at 24 kHz: what is heard instead of a tone; silence follows."""
    frames_per_row: float = 0.0
    """A segment ends, once it may, after so many frames for each row of its text."""

    @property
    def length(self) -> int:
        """Frames after which the row ends once it may."""
        if self.num_frames is not None:
            return self.num_frames
        return 0 if self.samples is None else -(-len(self.samples) // FRAME_SAMPLES)

    def pcm(self, start_frame: int, num_frames: int) -> Pcm:
        """Return the samples of frames start.. [n * 1920]."""
        if self.samples is None:
            silent = min(max(self.silent_frames - start_frame, 0), num_frames)
            if not silent:
                return _TONES[: num_frames * FRAME_SAMPLES]
            quiet, loud = np.zeros(silent * FRAME_SAMPLES, np.int16), num_frames - silent
            return np.concatenate([quiet, _TONES[: loud * FRAME_SAMPLES]])
        start, end = start_frame * FRAME_SAMPLES, (start_frame + num_frames) * FRAME_SAMPLES
        found = self.samples[start:end]
        return np.pad(found, (0, end - start - len(found)))


Script = Callable[[int], Speech]
"""Seed of a request to its utterance: callers choose by seed what is said."""


def any_length(seed: int) -> Speech:
    """Speak until the text ends: right for front ends in step with the frames."""
    return Speech()


@dataclass(slots=True)
class _Slot:
    speech: Speech
    prompt_rows: int
    """To run before the first frame."""
    position: int
    """Of the talker: what its next frame looks back on."""
    frames: int = 0
    decoded: int = 0
    segment_frames: int = 0
    text_rows: int = 1
    """Rows of the segment's text: all but the last come before it may end."""
    ended: bool = False

    def next_frame(self, may_end: bool) -> bool:
        """Count a frame; return whether the row ends instead."""
        speech = self.speech
        segment = self.segment_frames >= round(self.text_rows * speech.frames_per_row)
        self.ended = self.ended or (may_end and segment and self.frames >= speech.length)
        if not self.ended:
            self.frames += 1
            self.position += 1
            self.segment_frames += 1
            self.text_rows += not may_end
        return self.ended


class _Work:
    """One batch on a stream; an Event of its flight."""

    def __init__(self, streams: "_Streams", left_s: float, speed: float) -> None:
        self.left_s = left_s
        """Device time it still needs, running alone."""
        self.speed = speed
        """Of both streams while this runs on the frame stream and the other works too."""
        self.done_s: float | None = None
        self._streams = streams

    def query(self) -> bool:
        self._streams.advance()
        return self.done_s is not None

    def synchronize(self) -> None:
        self._streams.wait_for(self)


class _Streams:
    """The frame stream and the codec stream of one device; work is done as time passes."""

    def __init__(self, now: Now, sleep_until: SleepUntil) -> None:
        self._now, self._sleep_until = now, sleep_until
        self._queues: tuple[deque[_Work], deque[_Work]] = (deque(), deque())
        self._at_s = 0.0
        """Up to when the work is accounted for."""
        self.busy_s = 0.0

    def launch(self, stream: int, took_s: float, speed: float = 1.0) -> _Work:
        self.advance()
        work = _Work(self, took_s, speed)
        self._queues[stream].append(work)
        return work

    def advance(self) -> None:
        """Do the work of the time that passed."""
        now_s = self._now()
        while self._at_s < now_s:
            next_s = min(self._next_s(), now_s)
            self._run_to(next_s)

    def wait_for(self, work: _Work) -> None:
        self.advance()
        while work.done_s is None:
            self._sleep_until(self._next_s())
            self.advance()

    def _rate(self) -> float:
        frames, codecs = self._queues
        return frames[0].speed if frames and codecs else 1.0

    def _next_s(self) -> float:
        """Return when the first batch at the head of a stream is done."""
        heads = [queue[0].left_s for queue in self._queues if queue]
        return self._at_s + max(min(heads) / self._rate(), 1e-9) if heads else float("inf")

    def _run_to(self, until_s: float) -> None:
        if self._queues[0] or self._queues[1]:
            self.busy_s += until_s - self._at_s
        did_s = (until_s - self._at_s) * self._rate()
        self._at_s = until_s
        for queue in self._queues:
            if queue:
                queue[0].left_s -= did_s
        for queue in self._queues:
            if queue and queue[0].left_s <= 1e-9:
                queue.popleft().done_s = until_s


class ReplayRunner:
    """Runs no model: rows end by a script, batches land by the times of a device."""

    def __init__(
        self, times: StepTimes, now: Now, sleep_until: SleepUntil, script: Script = any_length
    ) -> None:
        """Take the device's times, the two functions of time, and what is spoken."""
        self.times, self._now, self._script = times, now, script
        self._sleep_until = sleep_until
        self._streams = _Streams(now, sleep_until)
        self._slots: dict[int, _Slot] = {}
        self._stored: set[tuple[bytes, bytes, bytes]] = set()
        self.launches = 0
        self.frame_rows = 0
        """Rows of all frame batches so far."""
        self._codecs_out = 0
        self._sizes: dict[int, tuple[float, float, float]] = {}
        """Rows to the frame's time with no context, what a position adds, and the speed."""

    @property
    def busy_s(self) -> float:
        """Time in which some batch was running."""
        self._streams.advance()
        return self._streams.busy_s

    @property
    def codec_free(self) -> bool:
        """Return whether every codec batch was collected."""
        return self._codecs_out == 0

    # -- streams

    def open(self, slot: int, prompt: "Prompt", sampling: "ResolvedSampling", seed: int) -> int:
        """Start an utterance of the script; return the prompt rows to run."""
        rows = self._rows_to_run(prompt)
        self._slots[slot] = _Slot(self._script(seed), rows, prompt.num_rows)
        return rows

    def restart(self, slot: int, prompt: "Prompt") -> int:
        """Start its next segment."""
        held = self._slots[slot]
        held.prompt_rows, held.ended = self._rows_to_run(prompt), False
        held.segment_frames, held.text_rows, held.position = 0, 1, prompt.num_rows
        return held.prompt_rows

    def close(self, slot: int) -> None:
        """Forget the stream."""
        self._slots.pop(slot, None)

    def _rows_to_run(self, prompt: "Prompt") -> int:
        key = prompt.constant_key
        stored = key in self._stored
        self._stored.add(key)
        return prompt.num_rows - (prompt.num_constant_rows if stored else 0)

    # -- stages

    def costs(self) -> StepCosts:
        """Return the device's own times."""
        sizes = {size for size, _ in self.times.frame_ms}
        return StepCosts.measured(
            [(size, self.times.frame_s(size)) for size in (min(sizes), max(sizes))],
            [(size, self.times.codec_s(size)) for size in (1, 4 * max(sizes))],
        )

    def prefill(self, slots: Sequence[int]) -> None:
        """Occupy the frame stream for the prompts of slots."""
        num_rows = sum(self._slots[slot].prompt_rows for slot in slots)
        self._launch(0, self.times.prefill_s(len(slots), num_rows), self.times.speed(1))

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        """Start the next frame; codes are the frame's number, the same in all codebooks."""
        codes = np.zeros((len(slots), CODEBOOKS), np.int16)
        ended = np.zeros(len(slots), np.bool_)
        positions = 0
        for i, (slot, may) in enumerate(zip(slots, may_end, strict=True)):
            held = self._slots[slot]
            codes[i] = held.frames & 0x7FF
            positions += held.position
            ended[i] = held.next_frame(may)
        num_rows = len(slots)
        self.frame_rows += num_rows
        if num_rows not in self._sizes:
            none_s, one_s = (self.times.frame_s(num_rows, context) for context in (0, 1))
            self._sizes[num_rows] = none_s, one_s - none_s, self.times.speed(num_rows)
        none_s, position_s, speed = self._sizes[num_rows]
        work = self._launch(0, none_s + position_s * positions / num_rows, speed)
        return Flight(lambda: FrameResult(codes, ended), work)

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        """Start decoding: the samples that the script has next for each slot."""
        num_frames = codes.shape[1]
        pcm = np.empty((len(slots), num_frames * FRAME_SAMPLES), np.int16)
        for i, slot in enumerate(slots):
            held = self._slots[slot]
            pcm[i] = held.speech.pcm(held.decoded, num_frames)
            held.decoded += num_frames
        broken = np.zeros(len(slots), np.bool_)
        work = self._launch(1, self.times.codec_s(len(slots) * num_frames))
        self._codecs_out += 1

        def finish() -> CodecResult:
            self._codecs_out -= 1
            return CodecResult(pcm, broken)

        return Flight(finish, work)

    def _launch(self, stream: int, took_s: float, speed: float = 1.0) -> _Work:
        self.launches += 1
        work = self._streams.launch(stream, took_s, speed)
        if self.times.eager:
            work.synchronize()
        return work


def replaying(
    times: StepTimes, now: Now, sleep_until: SleepUntil, script: Script = any_length
) -> MakeRunner:
    """Return what Engine takes as `make_runner` to replay a device's times."""

    def make(model: "Model", profile: Profile) -> Runner:
        return ReplayRunner(times, now, sleep_until, script)

    return make
