"""Logits of the captured frame against the eager fp32 model, and draws alone and among others.

    python -m tests.bench.numerics --out DIR    # a CUDA device, true 1.7B shapes, under 4 minutes
    python -m tests.bench.numerics --dry        # CPU, toy shapes, Triton's interpreter

The fp32 model draws every code; an eager model in the engine's dtype and the captured frame are
told its codes and run beside it.

Bound: a logit is w . h, w a head's row and h the final state, so rounding errors of h, spread over
its width, move it by some number times |w|. The bound of a logit of codebook b is beta[b] |w|, and
beta[b] is 1.5 times the largest |error| / |w| of that eager model: what the dtype costs anyone.
A position is covered where the best fp32 logit less its bound exceeds every other plus its bound
(rows of one norm: where the gap is wider than twice the bound); there the captured frame must
choose the same. A maximum does not see a small error everywhere: the root mean square has a limit
of its own, MOST_RMS times the eager model's.

Weights: bf16 moves a state of 28 random layers by 1.4 % (1.4 to 1.8 % in the predictor), while the
best two of 2,048 rows of one norm lie 0.27 |w| apart in the mean: 38 % would be covered. Hence
rows of other norms (HEAD_SPREAD), and residual branches no wider than trained models start with
(branches of gain 0.5 move a state by 1.7 to 2.2 %). Draws are compared before the heads are scaled,
where they differ most.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.kernels.interpreter import ON_DEVICE, use_interpreter

use_interpreter()

from playhead.engine.cuda_frame import FrameBody, FrameBuffers, Probe  # noqa: E402
from playhead.engine.cuda_runner import CudaRunner  # noqa: E402
from playhead.engine.cuda_state import StateSizes  # noqa: E402
from playhead.engine.cuda_weights import fold_codec, fold_frame  # noqa: E402
from playhead.engine.eager_runner import EagerRunner  # noqa: E402
from playhead.engine.graphs import Body, GraphSizes, Recorder  # noqa: E402
from playhead.engine.models.config import ModelConfig  # noqa: E402
from playhead.engine.units import CODEBOOKS  # noqa: E402
from playhead.worker.bench.result import device_label, write_result  # noqa: E402
from tests.bench import spike_compile  # noqa: E402
from tests.bench.logit_errors import Errors  # noqa: E402
from tests.bench.spike_checks import BareModel, plain_prompt, settle  # noqa: E402
from tests.bench.true_shapes import SAMPLING, codec_tensors, main_tensors, true_config  # noqa: E402

ROWS, FRAMES, ALONE_FRAMES = 32, 64, 32
MOST_RMS = 1.15
"""The torch twins in bf16 on a CPU, true widths and two talker layers: 0.91 to 0.95 by codebook."""
DRY_SLACK = 2.0
"""The largest of a few hundred errors varies by more than that of millions."""
LEAST_COVERED = 0.5
MOST_COST = 1.03
LEAST_DIFFERENT = 0.5
"""Share of a stream's codes that must differ, or the same codes would prove little."""
HEAD_SPREAD = 1.5
"""Standard deviation of the logarithm of the norms of a head's rows."""
LEAST_SCALE = 1 / 16
"""Quieter rows are never chosen; fp16 could not hold them."""
USUAL_ROWS = 256
"""Rows that an ordinary runner's buffers have room for."""
WARM, TIMED = 5, 60


class Told(EagerRunner):
    """An eager runner that shows its logits and goes on from codes it is told, if there are any."""

    told: Tensor | None = None
    """[rows, 16] int64"""
    scores: Tensor
    """[16, rows, num_codes] fp32"""

    def _choose(self, hidden: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        codes = self.told
        if codes is None:
            codes, _ = super()._choose(hidden, *rest)
        seen = [self.model.talker.scores(hidden)[:, : self.model.config.num_codes]]

        def follow(logits: Tensor, book: int) -> Tensor:
            seen.append(logits)
            return codes[:, book]

        self.model.code_predictor.run(hidden, codes[:, 0], follow)
        self.scores = torch.stack([logits.float() for logits in seen])
        return codes, torch.zeros(len(codes), dtype=torch.bool, device=codes.device)


def narrow_branches(config: ModelConfig, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Scale every residual branch in place to 1 / sqrt(2 layers), as GPT-2's weights start.

    (Radford et al. 2019, section 2.3; synthetic.py draws the last matrix of a branch at 0.5.)
    """
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            stack = config.predictor if "code_predictor" in name else config.talker
            tensor.mul_(2.0 / math.sqrt(2 * stack.num_layers))
    return tensors


def head_scales(num_codes: int, codebook: int, device: torch.device) -> Tensor:
    """Return factors [num_codes] of a head's rows: powers of two, so that every model is exact."""
    rng = torch.Generator().manual_seed(codebook)
    drawn = torch.randn(num_codes, generator=rng) * HEAD_SPREAD - HEAD_SPREAD**2
    return (drawn / math.log(2)).round().exp2().clamp(min=LEAST_SCALE).to(device)


class Bench:
    """The three models of one set of weights."""

    def __init__(
        self, config: ModelConfig, device: str, dtype: torch.dtype, rows: int, sizes: StateSizes
    ) -> None:
        """Build all of them; `dtype` is the engine's."""
        self.rows, self.num_codes = rows, config.num_codes
        main = narrow_branches(config, main_tensors(config, device, dtype))
        codec = codec_tensors(config, device)
        weights = fold_frame(config, main, sizes.max_positions, dtype)
        self.mine = CudaRunner(
            weights, fold_codec(config.codec, codec, dtype), sizes,
            GraphSizes((rows,), (1,), (16,), 1),
        )  # fmt: skip
        wide = {name: tensor.float() for name, tensor in main.items()}
        self.model = BareModel(config, wide, dict(codec))
        self.exact = Told(self.model, rows, sizes.segment_frames)
        self.half = Told(BareModel(config, main, dict(codec)), rows, sizes.segment_frames)

    @torch.inference_mode()
    def scale_heads(self) -> None:
        """Scale the rows of all heads of all three models in place; once."""
        weights = self.mine.weights
        for book, matrix in enumerate((weights.head, *weights.heads)):
            assert isinstance(matrix, Tensor)
            scales = head_scales(self.num_codes, book, matrix.device)
            matrix[: self.num_codes] *= scales[:, None]
            for eager in (self.exact, self.half):
                _eager_heads(eager)[book][:, : self.num_codes] *= scales

    def errors(self, num_frames: int) -> Errors:
        """Run `num_frames` frames of every row on all three."""
        slots = list(range(1, self.rows + 1))
        for runner in (self.exact, self.half, self.mine):
            # Other seeds than the model that draws: a code that was told shows.
            apart = 0 if runner is self.exact else 1_000
            for slot in slots:
                runner.open(slot, plain_prompt(self.model), SAMPLING, seed=slot + apart)
            runner.prefill(slots)
        settle()
        device = self.mine.weights.code_rows.device
        with torch.inference_mode():
            told = torch.zeros(self.rows, CODEBOOKS, dtype=torch.int32, device=device)
            scores = torch.zeros(CODEBOOKS, self.rows, self.num_codes, device=device)
            replay = self._probed(Probe(scores, told))
            heads = [h[:, : self.num_codes].norm(dim=0) for h in _eager_heads(self.exact)]
            found = Errors(torch.stack(heads))
            ids = np.random.default_rng(1).integers(0, 200, (num_frames, self.rows))
            for row in ids:
                masked = [False] * self.rows
                codes = self.exact.frame(slots, row.tolist(), masked).codes.astype(np.int64)
                self.half.told = torch.from_numpy(codes).to(device)
                self.half.frame(slots, row.tolist(), masked)
                told.copy_(self.half.told)
                scores.fill_(float("nan"))
                self._inputs(slots, row)
                settle()
                replay()
                settle()
                found.add(self.exact.scores, self.half.scores, scores)
        return found

    def _inputs(self, slots: Sequence[int], ids: Any) -> None:
        block = np.zeros((3, self.rows), np.int32)
        block[0], block[1] = slots, ids
        flat = torch.from_numpy(block.reshape(-1))
        self.mine.buffers.inputs[: block.size] = flat.to(self.mine.buffers.inputs.device)

    def _probed(self, probe: Probe) -> Body:
        """Capture the frame once more, with a probe, over the runner's own state."""
        mine = self.mine
        mine.buffers.inputs.zero_()  # capturing runs it over scratch slot 0
        body = FrameBody(mine.weights, mine.talker_state, mine.buffers, self.rows, probe=probe)
        return Recorder(mine.weights.code_rows.device).capture(body.run)

    def drawn(self, slots: Sequence[int], at: int, num_frames: int) -> np.ndarray:
        """Return the codes [frames, rows, 16] of a batch of slots whose row `at` is one stream.

        The stream has the same seed and text in every batch; its neighbours have others.
        """
        self._open(slots, at)
        made = []
        for step in range(num_frames):
            ids = _text_ids(slots, at, step)
            made.append(self.mine.frame(slots, ids, [False] * len(slots)).codes)
        for slot in slots:
            self.mine.close(slot)
        return np.stack(made)

    def _open(self, slots: Sequence[int], at: int) -> None:
        for row, slot in enumerate(slots):
            seed = 7 if row == at else 1_000 + slot
            self.mine.open(slot, plain_prompt(self.model), SAMPLING, seed)
        self.mine.prefill(slots)

    def same_draws(self, num_frames: int) -> dict[str, float]:
        """Return how many codes are the same alone and in the first and last row of a batch."""
        alone = self.drawn([1], 0, num_frames)[:, 0]
        others = list(range(1, self.rows + 1))
        first, last = (self.drawn(others, at, num_frames) for at in (0, self.rows - 1))
        kinds = sum(len(np.unique(codes)) for codes in alone.T)
        streams = len(np.unique(first.transpose(1, 0, 2).reshape(self.rows, -1), axis=0))
        return {
            "deterministic_codes": float(alone.size),
            "deterministic_same_first_row": float((first[:, 0] == alone).sum()),
            "deterministic_same_last_row": float((last[:, -1] == alone).sum()),
            "deterministic_different_codes": float(kinds),
            "deterministic_different_streams": streams / self.rows,
        }

    def cost(self) -> dict[str, float]:
        """Return what a frame of full rows takes where one size is captured and where many are.

        Both replay the same frame of the same live streams again and again, in turns.
        """
        mine, slots = self.mine, list(range(1, self.rows + 1))
        usual = FrameBuffers(
            mine.weights, mine.talker_state, USUAL_ROWS, launches=mine.buffers.launches
        )
        with torch.inference_mode():
            body = FrameBody(mine.weights, mine.talker_state, usual, self.rows)
            replays = {
                "one_size": mine.frame_replays[self.rows],
                "usual": Recorder(mine.weights.code_rows.device).capture(body.run),
            }
            self._open(slots, 0)
            ids = np.array(_text_ids(slots, 0, 0))
            self._inputs(slots, ids)
            usual.inputs.zero_()
            usual.inputs[: 3 * self.rows] = mine.buffers.inputs[: 3 * self.rows]
            settle()
            state = mine.talker_state
            moving = [
                (tensor, tensor.clone()) for tensor in (state.carry, state.wholes, state.seen)
            ]
            times: dict[str, list[float]] = {name: [] for name in replays}
            for turn in range(WARM + TIMED):
                for name in sorted(replays, reverse=bool(turn % 2)):
                    for tensor, before in moving:
                        tensor.copy_(before)
                    took_ms = _replay_ms(replays[name])
                    if turn >= WARM:
                        times[name].append(took_ms)
            same = (usual.codes[: self.rows] == mine.buffers.codes[: self.rows])[:, :CODEBOOKS]
        for slot in slots:
            mine.close(slot)
        medians = {name: float(np.median(values)) for name, values in times.items()}
        return {
            f"deterministic_frame_ms_b{self.rows}": medians["one_size"],
            f"deterministic_usual_frame_ms_b{self.rows}": medians["usual"],
            f"deterministic_cost_b{self.rows}": medians["one_size"] / medians["usual"],
            "deterministic_usual_same_share": float(same.float().mean()),
        }


def _text_ids(slots: Sequence[int], at: int, step: int) -> list[int]:
    """Return the text of a step: row `at` says the same in every batch."""
    return [5 + step if row == at else (31 * s + step) % 200 for row, s in enumerate(slots)]


def _eager_heads(runner: EagerRunner) -> list[Tensor]:
    """Return the 16 heads [hidden, num_codes or more] of an eager model."""
    return [runner.model.talker.head, *runner.model.code_predictor.heads]


def _replay_ms(replay: Body) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def wrong(figures: dict[str, float], slack: float = 1.0) -> list[str]:
    """Return what does not hold, in words; `slack` widens both limits of errors."""
    out = []
    if not figures["bound_used"] <= slack:
        out.append(f"a logit is off by {figures['bound_used']:.2f} of its bound")
    if not figures["rms_ratio"] <= slack * MOST_RMS:
        out.append(f"errors are {figures['rms_ratio']:.2f} times the eager model's")
    if figures["exceptions"]:
        out.append(f"{figures['exceptions']:.0f} covered positions choose another code")
    if figures["covered_share"] < LEAST_COVERED:
        out.append(f"only {figures['covered_share']:.0%} of the positions are covered")
    codes = figures["deterministic_codes"]
    for row in ("first", "last"):
        same = figures[f"deterministic_same_{row}_row"]
        if same != codes:
            out.append(f"in a batch's {row} row only {same:.0f} of {codes:.0f} codes are the same")
    if figures["deterministic_different_codes"] < LEAST_DIFFERENT * codes:
        out.append(f"only {figures['deterministic_different_codes']:.0f} of its codes differ")
    if figures["deterministic_different_streams"] < 1:
        out.append("two streams of a batch say the same")
    cost = figures.get(f"deterministic_cost_b{ROWS}", 1.0)
    if cost > MOST_COST:
        out.append(f"one captured size costs {cost:.3f}")
    return out


def run(bench: Bench, num_frames: int, alone_frames: int) -> dict[str, float]:
    """Return all figures of a bench."""
    figures = bench.same_draws(alone_frames) | (bench.cost() if ON_DEVICE else {})
    bench.scale_heads()
    return figures | bench.errors(num_frames).figures()


def main() -> None:
    """Parse the command line; exit 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="toy shapes on the CPU")
    parser.add_argument("--out", type=Path, help="folder of the result file")
    asked = parser.parse_args()
    began_s = time.monotonic()
    if asked.dry:
        sizes = StateSizes(2, 64, 64, prefix_entries=2)
        # The interpreter has no bf16 products; fp16 stands for them.
        bench = Bench(true_config("tiny"), "cpu", torch.float16, 2, sizes)
        figures = run(bench, 2, 1)
    elif ON_DEVICE:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        compilers = spike_compile.start("numerics", 12)
        print(json.dumps({"compiling": spike_compile.finish(compilers, 120.0)}), flush=True)
        sizes = StateSizes(ROWS, 512, 64, prefix_entries=2)
        bench = Bench(true_config(), "cuda", torch.bfloat16, ROWS, sizes)
        figures = run(bench, FRAMES, ALONE_FRAMES)
    else:
        print("no CUDA device here; --dry checks what a CPU can")
        return
    print(json.dumps({name: float(f"{value:.5g}") for name, value in figures.items()}, indent=1))
    failed = wrong(figures, DRY_SLACK if asked.dry else 1.0)
    print("\n".join(failed) or "all holds", f"({time.monotonic() - began_s:.0f} s)")
    if asked.out and all(map(math.isfinite, figures.values())):
        device = device_label(torch.cuda.get_device_name()) if ON_DEVICE else "cpu"
        command = "python -m tests.bench.numerics --out DIR"
        print(write_result("numerics", device, figures, command, asked.out))
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
