"""DirectPump over the SDK, in real time: what leaves, when it wakes, what follows a cut."""

import asyncio
import time

import numpy as np
from livekit import rtc

from playhead.worker import sdk_routing
from playhead.worker.direct_pump import DirectPump, make_direct_source
from playhead.worker.pcm_queue import FADE_SAMPLES, TICK_SAMPLES
from tests.worker.test_direct_pump import BRIDGE_S, FRAME, LOUD, clock_of, pcm


async def test_all_samples_leave_through_the_sdk_and_the_clock_knows_when() -> None:
    sdk_routing.touch()
    assert sdk_routing.install(), "the pinned SDK version is known"
    source = make_direct_source()
    pump = DirectPump(source, lambda _: BRIDGE_S)
    task = asyncio.create_task(pump.run())
    clock = clock_of()
    pump.resume()
    for _ in range(8):
        pump.push(clock, pcm(FRAME))
    pump.end(clock)
    async with asyncio.timeout(20):
        while clock.exited_samples(time.monotonic()) < 8 * FRAME:
            await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.wait([task])
    await source.aclose()
    assert clock.pushed_samples == 8 * FRAME


async def test_the_pump_wakes_for_a_late_chunk_and_settles_after_a_cut() -> None:
    class Frames:
        def __init__(self) -> None:
            self.sent: list[np.ndarray] = []

        async def capture_frame(self, frame: rtc.AudioFrame) -> None:
            self.sent.append(np.frombuffer(bytes(frame.data), "<i2"))
            await asyncio.sleep(0)

        def clear_queue(self) -> None: ...

    source = Frames()
    restarts: list[int] = []
    pump = DirectPump(source, lambda _: 30.0, lambda: restarts.append(len(source.sent)))
    task = asyncio.create_task(pump.run())
    clock = clock_of()
    pump.resume()
    pump.push(clock, pcm(FRAME))
    async with asyncio.timeout(20):
        while clock.pushed_samples < FRAME or not pump._line.withholding:
            await asyncio.sleep(0.005)
        held = len(source.sent)
        await asyncio.sleep(0.1)
        assert len(source.sent) == held, "nothing is sent while the chunk is late"
        pump.push(clock, pcm(FRAME))
        while clock.pushed_samples < FRAME + TICK_SAMPLES:
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.wait([task])
    pump.clear()
    before = len(source.sent)
    await pump.settle()
    assert len(source.sent) == before + 1 and source.sent[-1][0] == LOUD
    assert not source.sent[-1][FADE_SAMPLES:].any()
    assert len(restarts) == 2 and clock.gaps == []
