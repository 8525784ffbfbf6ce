"""A Python loop like the engine's over many streams: what a step costs beside the graphs."""

import time

import numpy as np
import torch

from playhead.engine.cuda_runner import CudaRunner
from playhead.kernels.sampler import POSITION
from tests.bench.spike_checks import settle

CONTEXT = 63
IDLE_STEPS = 200


class Loop:
    """A Python loop like the engine's: the driest streams first, results one replay late."""

    def __init__(
        self, runner: CudaRunner, rows: int, codec: tuple[int, int] | None, streams: int
    ) -> None:
        self._runner, self._rows, self._codec = runner, rows, codec
        self._ahead_s = np.random.default_rng(0).random(streams)
        self._ids = np.random.default_rng(1).integers(0, 500, 4096)
        self.wait_s, self.launch_s, self.gap_ms = 0.0, 0.0, []

    def run(self, steps: int) -> float:
        """Run; return the wall time of one step in seconds."""
        runner, rows, (streams, frames) = self._runner, self._rows, self._codec or (1, 1)
        codes = np.ones((streams, frames, 16), np.int16)
        frame_flight, codec_flight = None, None
        last_end = None
        began_s = time.perf_counter()
        for step in range(steps):
            chosen = np.argpartition(self._ahead_s, rows)[:rows]
            slots = chosen + 1
            ids = self._ids[(step * 7 + chosen) % 4096]
            begin = self._event()
            launched_s = time.perf_counter()
            flight = runner.launch_frame(slots, ids, np.zeros(rows, bool))
            self.launch_s += time.perf_counter() - launched_s
            if begin is not None and last_end is not None and step % 4 == 0:
                self.gap_ms.append((last_end, begin))
            last_end = self._event()
            self._ahead_s[chosen] += 0.08
            if frame_flight is not None:
                waited_s = time.perf_counter()
                made = frame_flight.result()
                self.wait_s += time.perf_counter() - waited_s
                codes[:, step % frames] = made.codes[:streams]
            frame_flight = flight
            if self._codec and (codec_flight is None or codec_flight.ready()):
                if codec_flight is not None:
                    codec_flight.result()
                codec_flight = runner.launch_codec(slots[:streams], codes)
        assert frame_flight is not None
        frame_flight.result()
        return (time.perf_counter() - began_s) / steps

    def _event(self) -> "torch.cuda.Event | None":
        if self._runner.frame_stream is None:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._runner.frame_stream)
        return event

    def median_gap_ms(self) -> float:
        """Return the median time from the end of a replay to the next launch's first work."""
        return float(np.median([a.elapsed_time(b) for a, b in self.gap_ms]))


def run_loop(
    runner: CudaRunner, rows: int, codec: tuple[int, int], steps: int, streams: int,
    alone_ms: float | None,
) -> dict[str, float]:  # fmt: skip
    """Return the figures of the loop at one batch size; `alone_ms`: the frame graph by itself."""
    on_device = runner.frame_stream is not None
    figures = idle_share(runner, rows, streams, alone_ms) if on_device and alone_ms else {}
    rewind(runner, CONTEXT if on_device else 9)
    Loop(runner, rows, codec, streams).run(min(30, steps))
    loop = Loop(runner, rows, codec, streams)
    step_s = loop.run(steps)
    host_ms = (step_s - loop.wait_s / steps) * 1e3
    figures |= {f"loop_step_ms_b{rows}": round(step_s * 1e3, 3),
                f"host_ms_per_step_b{rows}": round(host_ms, 4),
                f"launch_frame_ms_b{rows}": round(loop.launch_s / steps * 1e3, 4)}  # fmt: skip
    if loop.gap_ms:
        figures[f"gpu_gap_ms_b{rows}"] = round(loop.median_gap_ms(), 4)
    if alone_ms:
        figures[f"overlap_cost_b{rows}"] = round(step_s * 1e3 / alone_ms, 3)
    return figures


def rewind(runner: CudaRunner, position: int) -> None:
    """Put every stream at `position`."""
    with torch.inference_mode():
        runner.talker_state.wholes[:, POSITION] = position
    settle()


def idle_share(runner: CudaRunner, rows: int, streams: int, alone_ms: float) -> dict[str, float]:
    """Return what of a step without codec is not the frame graph: copies, launch, gaps.

    A frame takes longer the longer its context is: streams start as much below `CONTEXT`, at which
    the graph alone was timed, as they end above it.
    """
    rewind(runner, CONTEXT - round(IDLE_STEPS * rows / streams / 2))
    step_ms = Loop(runner, rows, None, streams).run(IDLE_STEPS) * 1e3
    return {f"frames_only_step_ms_b{rows}": round(step_ms, 3),
            f"gpu_idle_share_b{rows}": round(1 - alone_ms / step_ms, 4)}  # fmt: skip
