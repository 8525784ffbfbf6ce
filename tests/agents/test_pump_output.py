"""Our sink over a sender's queue in virtual time: pauses, cuts, and what it tells the session."""

import asyncio
import math
import random
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from livekit import rtc
from livekit.agents.utils.aio import cancel_and_wait
from livekit.agents.voice.io import PlaybackFinishedEvent, PlaybackProgressedEvent
from livekit.plugins.playhead.pump_output import PumpOutput

from playhead.engine.clock import total_s
from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.pcm_queue import FADE_SAMPLES, TICK_SAMPLES
from playhead.worker.track import QueuedPump
from tests.agents.virtual import NativeQueue, run_virtual

NUM_SAMPLES = 6 * SAMPLE_RATE_HZ
EVERY = 48_000
"""Samples tell where they are by their value, within so many of them."""


@dataclass
class Told:
    """What a sink told its session."""

    started_s: list[float] = field(default_factory=list)
    finished: list[PlaybackFinishedEvent] = field(default_factory=list)
    runs: list[PlaybackProgressedEvent] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def listen(self, output: PumpOutput) -> None:
        output.on("playback_started", lambda _: self.started_s.append(time.monotonic()))
        output.on("playback_finished", self.finished.append)
        output.on("playback_progressed", self.runs.append)
        for name in ("started", "progressed", "finished"):
            output.on(f"playback_{name}", lambda _, name=name: self.order.append(name))

    def check_runs(self, played_s: float) -> None:
        """Runs of one segment join to what left, in order, and stand between start and end."""
        assert [self.order[0], self.order[-1]] == ["started", "finished"]
        assert self.order[1:-1] == ["progressed"] * len(self.runs)
        for run, after in zip(self.runs, self.runs[1:], strict=False):
            assert run.offset + run.duration == pytest.approx(after.offset, abs=1e-6)
            assert run.started_at + run.duration < after.started_at + 0.001
        assert self.runs[0].offset == 0.0
        assert sum(run.duration for run in self.runs) == pytest.approx(played_s, abs=1e-6)


def numbered(num_samples: int) -> np.ndarray:
    return (np.arange(num_samples) % EVERY - EVERY // 2).astype("<i2")


def open_output(delay_s: float = 0.0005) -> tuple[PumpOutput, NativeQueue, Told]:
    queue, told = NativeQueue(delay_s), Told()
    output = PumpOutput(QueuedPump(queue))
    told.listen(output)
    return output, queue, told


async def push(output: PumpOutput, samples: np.ndarray) -> None:
    for piece in np.split(samples, range(1200, len(samples), 1200)):
        await output.capture_frame(rtc.AudioFrame(piece.tobytes(), SAMPLE_RATE_HZ, 1, len(piece)))


def runs_of(played: np.ndarray) -> list[tuple[int, int]]:
    """Return first and last position of each unbroken millisecond or more of numbered samples."""
    positions = (played.astype(int) + EVERY // 2) % EVERY
    steps = np.flatnonzero(np.diff(positions) % EVERY != 1) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(positions, steps) if len(run) > 24]


def test_a_segment_plays_whole_and_in_real_time() -> None:
    async def play() -> None:
        output, queue, told = open_output()
        output.listen()
        begun_s = time.monotonic()
        await push(output, numbered(NUM_SAMPLES))
        output.flush()
        ended = await output.wait_for_playout()
        assert time.monotonic() - begun_s == pytest.approx(6.0, abs=0.2)
        await asyncio.sleep(0.1)
        played = np.frombuffer(queue.samples(), "<i2")
        faded = NUM_SAMPLES - FADE_SAMPLES
        assert np.array_equal(played[:faded], numbered(NUM_SAMPLES)[:faded])
        assert len(played) == NUM_SAMPLES
        assert (ended.playback_position, ended.interrupted) == (6.0, False)
        assert len(told.started_s) == len(told.finished) == len(told.runs) == 1
        told.check_runs(played_s=6.0)
        assert told.runs[0].started_at - (time.time() - time.monotonic()) - begun_s < 0.2
        await output.aclose()

    run_virtual(play())


@pytest.mark.parametrize("delay_s", [0.00005, 0.0005, 0.00095])
@pytest.mark.parametrize("seed", [0, 1, 2, 13])
def test_fifty_pauses_lose_and_double_no_sample_and_stop_the_clock(
    seed: int, delay_s: float
) -> None:
    chance = random.Random(seed)

    async def play() -> None:
        output, queue, told = open_output(delay_s)
        output.listen()
        await push(output, numbered(NUM_SAMPLES))
        output.flush()
        paused_s = 0.0
        begun_s = time.monotonic()
        resumed_s, stopped_s = [begun_s], []
        clock = output._segments[0].clock
        for _ in range(50):
            await asyncio.sleep(chance.uniform(0.0, 0.1))
            output.pause()
            stopped_s.append(time.monotonic())
            at = clock.exited_samples(time.monotonic() + 0.02)
            long_s = chance.choice([0.0, chance.uniform(0.0, 0.02), chance.uniform(0.02, 3.0)])
            await asyncio.sleep(long_s)
            paused_s += long_s
            assert clock.exited_samples(time.monotonic()) <= at
            output.resume()
            resumed_s.append(time.monotonic())
        ended = await output.wait_for_playout()
        took_s = time.monotonic() - begun_s
        assert took_s == pytest.approx(6.0 + paused_s, abs=0.2 + 50 * 0.02)
        assert (ended.playback_position, ended.interrupted) == (6.0, False)
        assert len(told.started_s) == len(told.finished) == 1
        told.check_runs(played_s=6.0)
        assert len(told.runs) > 10
        for number, run in enumerate(told.runs):
            from_s = run.started_at - (time.time() - time.monotonic())
            resumed = max(at for at in resumed_s if at < from_s + 0.001)
            assert from_s - resumed < (0.025 if number else 0.2)
            stopped = min((at for at in stopped_s if at > resumed), default=math.inf)
            assert from_s + run.duration < stopped + 0.015
        await asyncio.sleep(0.1)
        check_every_sample_once(np.frombuffer(queue.samples(), "<i2"), queue.num_tails)
        await output.aclose()

    run_virtual(play())


def test_pauses_that_follow_at_once_lose_nothing() -> None:
    async def play() -> None:
        output, queue, _ = open_output()
        output.listen()
        await push(output, numbered(NUM_SAMPLES))
        output.flush()
        for wait_s in np.arange(20) / 1000:  # the sender falls silent up to 12 ms after a pause
            await asyncio.sleep(0.1)
            output.pause()
            output.resume()
            await asyncio.sleep(wait_s)
            output.pause()
            output.resume()
        ended = await asyncio.wait_for(output.wait_for_playout(), 10.0)
        assert (ended.playback_position, ended.interrupted) == (6.0, False)
        await asyncio.sleep(0.1)
        check_every_sample_once(np.frombuffer(queue.samples(), "<i2"), queue.num_tails)
        await output.aclose()

    run_virtual(play())


@pytest.mark.parametrize("delay_s", [0.00005, 0.0005, 0.00095])
def test_the_clock_is_right_however_near_to_a_tick_speech_comes(delay_s: float) -> None:
    async def play(early_s: float) -> None:
        output, queue, _ = open_output(delay_s)
        output.listen()
        await push(output, numbered(4800))
        output.flush()
        first = output._segments[0].clock
        await asyncio.sleep(0.1)
        await asyncio.sleep(first.dry_at_s(time.monotonic()) - early_s - time.monotonic())
        await push(output, numbered(4800))
        clock = output._segments[-1].clock
        for _ in range(50):
            await asyncio.sleep(0.0013)
            left = max(len(queue.samples()) // 2 - 4800, 0)
            exited = clock.exited_samples(time.monotonic())
            assert left - TICK_SAMPLES <= exited <= left, early_s
        await output.aclose()

    for tenth_ms in range(-5, 25):
        run_virtual(play(tenth_ms / 10_000))


def check_every_sample_once(played: np.ndarray, num_tails: int) -> None:
    """All samples and the tails of cuts left, in order; only fades stand between the runs."""
    assert len(played) == NUM_SAMPLES + num_tails * TICK_SAMPLES and num_tails > 10
    expected = 0
    for first, last in runs_of(played):
        between = (first - expected) % EVERY
        assert between <= 4 * FADE_SAMPLES, f"{between} samples between runs at {expected}"
        expected = last + 1


def test_a_cut_says_how_much_was_heard_and_drops_what_comes_late() -> None:
    async def play() -> None:
        output, queue, told = open_output()
        output.listen()
        await push(output, numbered(NUM_SAMPLES))
        await asyncio.sleep(2.0)
        output.clear_buffer()
        output.clear_buffer()
        await push(output, numbered(2400))  # the framework had it in its hands
        output.flush()
        assert [event.interrupted for event in told.finished] == [True]
        left_s = told.runs[0].duration
        told.check_runs(left_s)
        assert told.finished[0].playback_position == pytest.approx(2.0 - 0.12 - 0.09, abs=0.03)
        await asyncio.sleep(0.5)
        left = len(queue.samples())
        assert left / 2 / SAMPLE_RATE_HZ == pytest.approx(2.0 - 0.08, abs=0.03)
        assert left / 2 / SAMPLE_RATE_HZ - left_s < 0.0101  # and a frame that fades out
        await push(output, numbered(4800))
        output.flush()
        await output.wait_for_playout()
        await asyncio.sleep(0.1)
        assert len(queue.samples()) - left == 2 * 4800
        assert len(told.started_s) == 2
        await output.aclose()

    run_virtual(play())


def test_a_cut_before_any_sound_says_that_nothing_was_heard() -> None:
    async def play() -> None:
        output, _, told = open_output()
        output.pause()
        output.listen()
        await push(output, numbered(4800))
        await asyncio.sleep(1.0)
        output.clear_buffer()
        output.flush()
        assert [e.playback_position for e in told.finished] == [0.0] and not told.started_s
        output.clear_buffer()
        assert len(told.finished) == 1
        await output.aclose()

    run_virtual(play())


def test_nothing_is_lost_before_somebody_listens() -> None:
    async def play() -> None:
        output, queue, told = open_output()
        pushing = asyncio.create_task(push(output, numbered(4800)))
        await asyncio.sleep(2.0)
        assert not pushing.done() and output.captured_playout_segments == 0
        output.listen()
        await pushing
        output.flush()
        await output.wait_for_playout()
        await asyncio.sleep(0.1)
        assert len(queue.samples()) == 2 * 4800
        assert len(told.started_s) == 1
        await output.aclose()

    run_virtual(play())


def test_a_caller_who_gives_up_waiting_leaves_no_segment() -> None:
    async def play() -> None:
        output, _, told = open_output()
        pushing = asyncio.create_task(push(output, numbered(4800)))
        await asyncio.sleep(1.0)
        await cancel_and_wait(pushing)
        output.flush()
        output.clear_buffer()
        await asyncio.wait_for(output.wait_for_playout(), 1.0)
        assert told.finished == []
        await output.aclose()

    run_virtual(play())


def test_a_pause_while_the_engine_is_late_stands_still_too() -> None:
    async def play() -> None:
        output, _, _ = open_output()
        output.listen()
        await push(output, numbered(12_000))
        await asyncio.sleep(2.0)
        clock = output._segments[0].clock
        output.pause()
        assert clock.state == "paused"
        await push(output, numbered(2400))
        await asyncio.sleep(1.0)
        assert clock.exited_samples(time.monotonic()) <= 12_000
        output.resume()
        assert clock.state == "playing"
        output.flush()
        await output.wait_for_playout()
        assert clock.exited_samples(time.monotonic()) == 14_400
        await output.aclose()

    run_virtual(play())


@pytest.mark.parametrize(
    ("speed", "stall_s", "num_gaps"), [(1 / 0.95, 0.0, 0), (3.0, 0.4, 0), (1.0, 0.4, 1)]
)
def test_gaps_are_those_of_an_engine_that_was_late(
    speed: float, stall_s: float, num_gaps: int
) -> None:
    async def play() -> None:
        output, _, told = open_output()
        output.listen()
        await asyncio.sleep(0.2)
        pieces = np.split(numbered(4 * SAMPLE_RATE_HZ), 50)
        for number, piece in enumerate(pieces):
            await push(output, piece)
            clock = output._segments[0].clock
            await asyncio.sleep(0.08 / speed + (stall_s if number == 25 else 0.0))
        output.flush()
        await output.wait_for_playout()
        assert len(clock.gaps) == num_gaps
        assert all(0.2 < gap.duration_s < 0.5 for gap in clock.gaps)
        assert len(told.started_s) == len(told.finished) == 1
        assert len(told.runs) == num_gaps + 1
        told.check_runs(played_s=4.0)
        await output.aclose()

    run_virtual(play())


def test_an_engine_slower_than_speech_is_seen_as_gaps_of_what_it_lacks() -> None:
    async def play() -> None:
        output, _, told = open_output()
        output.listen()
        await asyncio.sleep(0.2)
        for piece in np.split(numbered(4 * SAMPLE_RATE_HZ), 50):
            await push(output, piece)
            clock = output._segments[0].clock
            await asyncio.sleep(0.08 * 1.05)
        output.flush()
        await output.wait_for_playout()
        lacking_s = 49 * 0.08 * 0.05
        assert clock.gaps and total_s(clock.gaps) == pytest.approx(lacking_s, abs=0.02)
        assert len(told.started_s) == len(told.finished) == 1
        assert len(told.runs) == len(clock.gaps) + 1
        told.check_runs(played_s=4.0)
        await output.aclose()

    run_virtual(play())
