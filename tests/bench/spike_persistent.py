"""The persistent predictor on a device: the same codes as separate launches, and its times.

    timeout -k 10 300 python -m tests.bench.spike_persistent --out DIR
    python -m tests.bench.spike_persistent --dry    # CPU, toy shapes, Triton's interpreter

A barrier that never opens ends by itself after seconds (predictor.PATIENCE) and is told as
`gave_up`; the limit of the command is for what nobody thought of. A line of JSON for each plan.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from pathlib import Path

import torch

if __name__ == "__main__":  # others import this to compile for a device that they do not see
    from tests.kernels.interpreter import use_interpreter

    use_interpreter()

from playhead.engine.cuda_frame import FrameBody, FrameBuffers, FramePlan
from playhead.engine.cuda_state import StateSizes, TalkerState
from playhead.engine.cuda_weights import FrameWeights
from playhead.engine.graphs import Recorder
from playhead.kernels.predictor import PredictorPlan
from playhead.kernels.sampler import POSITION
from tests.bench.true_shapes import true_config, true_weights

ROWS = (8, 32, 64)
SIZES = StateSizes(max(ROWS), 512, 64)
REPEATS = 20
COMPILE_LIMIT_S = 120.0
COMPILE_PROCESSES = 14

Tell = Callable[[dict[str, object]], None]


class Frames:
    """Frames of one number of rows over shared state, with any plan."""

    def __init__(self, weights: FrameWeights, state: TalkerState, rows: int) -> None:
        self._weights, self._state, self._rows = weights, state, rows
        self._buffers = FrameBuffers(weights, state, rows)
        self._recorder = Recorder(weights.code_rows.device)
        self._kept = [(t, t.clone()) for t in (state.carry, state.wholes, state.seen)]

    def run(self, plan: FramePlan) -> tuple[torch.Tensor, float]:
        """Return the codes of one frame from a fixed state, and the median ms of a replay."""
        buffers, rows = self._buffers, self._rows
        buffers.inputs[:rows] = torch.arange(1, rows + 1, dtype=torch.int32)
        buffers.inputs[rows : 2 * rows] = 5
        buffers.inputs[2 * rows : 3 * rows] = 0
        body = FrameBody(self._weights, self._state, buffers, rows, plan)
        replay = self._recorder.capture(body.run)
        self._restore()
        buffers.codes.fill_(-1)
        settle()
        replay()
        settle()
        codes = buffers.codes[:rows].clone()
        frame_ms = self._median_ms(replay)
        self._restore()
        return codes, frame_ms

    def gave_up(self) -> bool:
        """Return whether a program of the last launch stopped waiting for the others."""
        scratch = self._buffers.persistent
        assert scratch is not None
        return bool(scratch.counter[1])

    def _restore(self) -> None:
        settle()
        for tensor, before in self._kept:
            tensor.copy_(before)
        settle()

    def _median_ms(self, replay: Callable[[], None]) -> float:
        if self._recorder.stream is None:
            return 0.0
        times = []
        with torch.cuda.stream(self._recorder.stream):
            for _ in range(REPEATS):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
                begin.record()
                replay()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
        return sorted(times)[REPEATS // 2]


def settle() -> None:
    """Wait for every stream of the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def plans(programs: int) -> list[PredictorPlan]:
    """Return the ways of cutting that are worth a look, the likeliest first."""
    found = [
        PredictorPlan(programs, num_warps=warps, num_stages=stages, prefetch=ahead)
        for (warps, stages), ahead in product(((8, 3), (4, 4)), (True, False))
    ]
    together = PredictorPlan(programs, num_warps=8, num_stages=3, cooperative=True)
    return [*found, together, PredictorPlan(programs, depth=64, num_stages=6)]


def state_of(weights: FrameWeights, sizes: StateSizes) -> TalkerState:
    """Return a state in which every slot is in the middle of a speech of its own."""
    state = TalkerState(weights, sizes)
    state.carry.normal_(std=0.05)
    settings = torch.tensor([1 / 0.9, 1.0, 1.0], device=state.reals.device)
    state.reals[:, :3] = state.reals[:, 4:7] = settings
    state.reals[:, 3] = 1.05
    state.wholes[:, :2] = 50
    state.wholes[:, 2] = torch.arange(len(state.wholes), device=state.reals.device)
    state.wholes[:, POSITION] = min(63, sizes.max_positions - 1)
    for slot in range(1, sizes.max_streams + 1):
        state.pool.reserve(slot, min(96, sizes.max_positions))
    state.page_table.copy_(torch.from_numpy(state.pool.table))
    return state


def compare(
    weights: FrameWeights, state: TalkerState, rows: int, ways: list[PredictorPlan], tell: Tell
) -> None:
    """Tell of every plan how many codes are those of separate launches, and its time."""
    frames = Frames(weights, state, rows)
    wanted, base_ms = frames.run(FramePlan())
    assert (wanted >= 0).all(), "a code of the separate launches was never written"
    tell({"rows": rows, "plan": "launches", "frame_ms": round(base_ms, 3)})
    for plan in ways:
        told: dict[str, object] = {"rows": rows} | asdict(plan)
        try:
            codes, frame_ms = frames.run(FramePlan(persistent=plan))
            same = (codes == wanted)[:, 1:16].float()
            told |= {"frame_ms": round(frame_ms, 3), "same_codes": round(float(same.mean()), 4)}
            told["same_first_code"] = round(float(same[:, 0].mean()), 4)
            told["gave_up"] = frames.gave_up()
        except Exception as error:  # a plan that does not fit the device is a finding
            told["error"] = f"{type(error).__name__}: {error}"[:200]
        tell(told)


def dry(tell: Tell) -> None:
    """Compare one program with separate launches at toy shapes: there the codes are the same."""
    sizes = StateSizes(2, 16, 16)
    weights, _ = true_weights("cpu", torch.float32, sizes.max_positions, true_config("tiny"))
    found: list[dict[str, object]] = []

    def keep(told: dict[str, object]) -> None:
        found.append(told)
        tell(told)

    plan = PredictorPlan(1, 16, 16, 16, 2, 2, prefetch=False)
    compare(weights, state_of(weights, sizes), 2, [plan], keep)
    assert found[1].get("same_codes") == 1.0 and not found[1]["gave_up"], found[1]


def measure(tell: Tell) -> None:
    """Compare and time every plan at every number of rows; the talker stays as it is."""
    from tests.bench import spike_compile

    device = torch.cuda.get_device_properties(0)
    capability = device.major * 10 + device.minor
    compilers = spike_compile.start("persistent", COMPILE_PROCESSES, capability)
    weights, _ = true_weights("cuda", torch.bfloat16, SIZES.max_positions, true_config())
    state = state_of(weights, SIZES)
    tell({"compiled": spike_compile.finish(compilers, COMPILE_LIMIT_S)})
    for rows in ROWS:
        with torch.inference_mode():
            compare(weights, state, rows, plans(device.multi_processor_count), tell)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="toy shapes on the CPU")
    parser.add_argument("--out", type=Path, help="folder of persistent.json")
    asked = parser.parse_args()
    told: list[dict[str, object]] = []

    def tell(figures: dict[str, object]) -> None:
        told.append(figures)
        print(json.dumps(figures), flush=True)
        if asked.out:
            text = json.dumps(told, indent=1) + "\n"
            (asked.out / "persistent.json").write_text(text, encoding="utf-8")

    if asked.dry:
        dry(tell)
    elif torch.cuda.is_available():
        measure(tell)
    else:
        print("no CUDA device here; --dry checks what a CPU can")


if __name__ == "__main__":
    main()
