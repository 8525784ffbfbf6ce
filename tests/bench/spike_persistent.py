"""The persistent predictor on a device: the same codes as separate launches, and its times.

`timeout 150 python -m tests.bench.spike_persistent`: a barrier that never opens would hang, so it
runs in a process of its own with a limit. Prints a line of JSON for each plan.
"""

import json
from dataclasses import asdict
from itertools import product

import torch

from playhead.engine.cuda_frame import FrameBody, FrameBuffers, FramePlan
from playhead.engine.cuda_state import StateSizes, TalkerState
from playhead.engine.cuda_weights import FrameWeights
from playhead.engine.graphs import Recorder
from playhead.kernels.predictor import PredictorPlan
from playhead.kernels.sampler import POSITION
from tests.bench.true_shapes import true_config, true_weights

ROWS = (8, 32, 64)
REPEATS = 20


class Frames:
    """Frames of one number of rows over shared state, with any plan."""

    def __init__(self, weights: FrameWeights, state: TalkerState, rows: int) -> None:
        self._weights, self._state, self._rows = weights, state, rows
        self._buffers = FrameBuffers(weights, state, max(ROWS))
        self._recorder = Recorder(torch.device("cuda"))

    def run(self, plan: FramePlan) -> tuple[torch.Tensor, float]:
        """Return the codes of one frame from a fixed state, and the median ms of a replay."""
        state, buffers, rows = self._state, self._buffers, self._rows
        kept = [(t, t.clone()) for t in (state.carry, state.wholes, state.seen)]
        buffers.inputs[:rows] = torch.arange(1, rows + 1, dtype=torch.int32)
        buffers.inputs[rows : 2 * rows] = 5
        buffers.inputs[2 * rows : 3 * rows] = 0
        replay = self._recorder.capture(FrameBody(self._weights, state, buffers, rows, plan).run)
        for tensor, before in kept:
            tensor.copy_(before)
        torch.cuda.synchronize()
        with torch.cuda.stream(self._recorder.stream):
            replay()
            torch.cuda.synchronize()
            codes = buffers.codes[:rows].clone()
            times = []
            for _ in range(REPEATS):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                replay()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
        for tensor, before in kept:
            tensor.copy_(before)
        torch.cuda.synchronize()
        return codes, sorted(times)[REPEATS // 2]


def plans(programs: int) -> list[PredictorPlan]:
    """Return the ways of cutting that are worth a look."""
    found = [
        PredictorPlan(programs, num_warps=warps, num_stages=stages, prefetch=ahead)
        for warps, stages, ahead in product((4, 8), (3, 5), (False, True))
    ]
    found += [PredictorPlan(programs, depth=64, num_stages=6), PredictorPlan(programs, outputs=16)]
    return found


def main() -> None:
    """Compare and time every plan at every number of rows; 28 talker layers stay as they are."""
    device = torch.cuda.get_device_properties(0)
    sizes = StateSizes(max(ROWS), 128, 64)
    weights, _ = true_weights("cuda", torch.bfloat16, sizes.max_positions, true_config())
    state = TalkerState(weights, sizes)
    state.carry.normal_(std=0.05)
    state.reals[:, :3] = state.reals[:, 4:7] = torch.tensor([1 / 0.9, 1.0, 1.0], device="cuda")
    state.reals[:, 3] = 1.05
    state.wholes[:, :2] = 50
    state.wholes[:, 2] = torch.arange(len(state.wholes), device="cuda")
    state.wholes[:, POSITION] = 63
    for slot in range(1, max(ROWS) + 1):
        state.pool.reserve(slot, 96)
    state.page_table.copy_(torch.from_numpy(state.pool.table))
    for rows in ROWS:
        frames = Frames(weights, state, rows)
        wanted, base_ms = frames.run(FramePlan())
        print(json.dumps({"rows": rows, "plan": "launches", "frame_ms": round(base_ms, 3)}))
        for plan in plans(device.multi_processor_count):
            told: dict[str, object] = {"rows": rows} | asdict(plan)
            try:
                codes, frame_ms = frames.run(FramePlan(persistent=plan))
                same = (codes == wanted)[:, 1:16].float()
                told |= {"frame_ms": round(frame_ms, 3), "same_codes": round(float(same.mean()), 4)}
                told["same_first_code"] = round(float(same[:, 0].mean()), 4)
            except Exception as error:  # a plan that does not fit the device is a finding
                told["error"] = f"{type(error).__name__}: {error}"[:200]
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
