"""QueuedPump over the SDK's own source (no room): ticks, routing of completions."""

import asyncio
import math
import threading

import numpy as np
import pytest
from livekit import rtc

from playhead.engine.clock import PlaybackClock
from playhead.engine.receiver import ReceiverEstimate
from playhead.worker import sdk_routing
from playhead.worker.pcm_queue import TICK_S
from playhead.worker.track import QueuedPump, find_tick_s, make_source, tick_of


@pytest.fixture(autouse=True)
def routed() -> None:
    sdk_routing.touch()
    assert sdk_routing.install(), "the pinned SDK version is known"


@pytest.mark.slow
async def test_ticks_keep_their_phase_when_probed_again() -> None:
    """Most of eight probes agree to a millisecond; on a busy machine not at every try."""
    source = make_source()
    agree = 0
    for _ in range(6):
        ticks_s = []
        for _ in range(8):
            ticks_s.append(await find_tick_s(source))
            await asyncio.sleep(0.0513)
        lags_s = [[abs(math.remainder(a - b, TICK_S)) for a in ticks_s] for b in ticks_s]
        agree = max(sum(lag_s < 0.001 for lag_s in lags) for lags in lags_s)
        if agree >= 6:
            break
    await source.aclose()
    assert agree >= 6


@pytest.mark.parametrize(
    "lateness_ms",
    [
        (0.1, 0.2, 0.1, 0.5),
        (0.1, 0.1, 6.0, 0.2),
        (4.9, 0.1, 9.0, 0.15, 0.1),
        (0.3,),
        (7, 0.2, 0.1, 3),
    ],
)
def test_tick_is_found_when_some_moments_come_late(lateness_ms: tuple[float, ...]) -> None:
    moments = [3.0071 + n * 0.01 + late / 1000 for n, late in enumerate(lateness_ms)]
    assert abs(math.remainder(tick_of(moments) - 3.0071, TICK_S)) < 0.0004


async def test_all_samples_leave_when_pushed_and_the_clock_knows_when() -> None:
    source = make_source()
    pump = QueuedPump(source)
    task = asyncio.create_task(pump.run())
    clock = PlaybackClock("r", ReceiverEstimate())
    clock.start()
    pump.resume()
    pcm = np.full(1920, 5000, "<i2").tobytes()
    for _ in range(8):
        pump.push(clock, pcm)
    pump.end(clock)
    loop = asyncio.get_running_loop()
    while clock.exited_samples(loop.time()) < 8 * 1920:
        assert clock.dry_at_s(loop.time()) - loop.time() < 0.3
        await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.wait([task])
    await source.aclose()
    assert clock.pushed_samples == 8 * 1920 and not clock.gaps


def test_every_capture_completes_when_many_loops_push_at_once() -> None:
    async def push() -> int:
        source = make_source()
        frame = rtc.AudioFrame(bytes(2 * 240), 24000, 1, 240)
        await asyncio.gather(*(source.capture_frame(frame) for _ in range(50)))
        await source.wait_for_playout()
        await source.aclose()
        return 50

    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(asyncio.run(push()))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert counts == [50] * 6
    assert not sdk_routing._waiting


async def test_capture_raises_when_the_frame_does_not_fit_the_source() -> None:
    source = make_source()
    with pytest.raises(RuntimeError):
        await source.capture_frame(rtc.AudioFrame(bytes(2 * 480), 48000, 1, 480))
    await source.aclose()
