"""Times of a runner's launches through its public surface alone: frames, codec batches, joins.

Batches follow one another and each result is collected one launch late, as the engine does it, so
the time from result to result is that of the slower of device and host. Medians are over launches.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch

from playhead.engine.flight import Flight
from playhead.engine.messages import Sampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Clone, Prompt, build_prompt
from playhead.engine.runner import FrameResult, Runner
from playhead.engine.units import CODEBOOKS
from playhead.worker.bench.floor import Ceilings

T = TypeVar("T")

TEXT_ID = 5
SETTLE = 4
"""First results of a series that are not counted: the pipeline fills."""
JOIN_ROWS = 64
"""Rows joined at a time."""
COPY_BYTES = {"cuda": 2 << 30, "cpu": 64 << 20}
PRODUCT_SIZE = {"cuda": 8192, "cpu": 1024}
TRIALS = 12


def measure_ceilings(device: str, dtype: torch.dtype) -> Ceilings:
    """Measure copy bandwidth and matrix rate on random numbers."""
    kind = torch.device(device).type
    source = torch.randn(COPY_BYTES[kind] // 4, device=device)
    target = torch.empty_like(source)
    copy_s = _median_s(kind, lambda: target.copy_(source))
    size = PRODUCT_SIZE[kind]
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(left)
    product_s = _median_s(kind, lambda: torch.mm(left, right, out=out))
    return Ceilings(2 * source.nbytes / copy_s, 2.0 * size**3 / product_s)


def _median_s(kind: str, run: Callable[[], object]) -> float:
    times_s = []
    for _ in range(TRIALS):
        began_s = time.perf_counter()
        run()
        if kind == "cuda":
            torch.cuda.synchronize()
        times_s.append(time.perf_counter() - began_s)
    return statistics.median(times_s[2:])


class RunnerTimes:
    """Times one runner; every figure is in milliseconds."""

    def __init__(
        self,
        runner: Runner,
        model: Model,
        clock: Callable[[], float] = time.perf_counter,
        clone: Clone | None = None,
    ) -> None:
        """Take a runner that has at least as many slots as the largest batch asked for.

        `clone` is the voice of a Base checkpoint, which has none of its own.
        """
        self._runner, self.model, self._clock = runner, model, clock
        self.prompt: Prompt = build_prompt(
            model, voice=None, language="auto", instruct=None, text_mode="streaming", clone=clone
        )
        self._sampling = model.resolve_sampling(Sampling())

    def join(self, slots: Sequence[int]) -> None:
        """Open slots and run or copy their prompts."""
        for slot in slots:
            self._runner.open(slot, self.prompt, self._sampling, slot)
        for at in range(0, len(slots), JOIN_ROWS):
            self._runner.prefill(slots[at : at + JOIN_ROWS])

    def leave(self, slots: Sequence[int]) -> None:
        """Give slots back."""
        for slot in slots:
            self._runner.close(slot)

    def frame_ms(self, rows: int, context: int, steps: int) -> float:
        """Time a frame of `rows` live rows; the mean position of the timed ones is `context`.

        Raises ValueError when the prompt is longer than the context leaves room for.
        """
        lead = context - self.prompt.num_rows - steps // 2
        if lead < 0:
            raise ValueError(
                f"context {context} with {steps} steps begins inside the prompt "
                f"({self.prompt.num_rows} rows)"
            )
        slots = list(range(1, rows + 1))
        self.join(slots)
        took_s = self._series(partial(self._launch_frame, slots), lead + steps)
        self.leave(slots)
        return statistics.median(took_s[max(lead, SETTLE) :]) * 1e3

    def codec_ms(self, rows: int, frames: int, steps: int) -> float:
        """Time a codec batch of `frames` frames of each of `rows` streams."""
        slots = list(range(1, rows + 1))
        self.join(slots)
        self._launch_frame(slots).result()
        draw = np.random.default_rng(0)
        shape = (rows, frames, CODEBOOKS)
        codes = draw.integers(0, self.model.config.num_codes, shape).astype(np.int16)
        took_s = self._series(partial(self._runner.launch_codec, slots, codes), steps + SETTLE)
        self.leave(slots)
        return statistics.median(took_s[SETTLE:]) * 1e3

    def _launch_frame(self, slots: Sequence[int]) -> Flight[FrameResult]:
        return self._runner.launch_frame(slots, [TEXT_ID] * len(slots), [False] * len(slots))

    def _series(self, launch: Callable[[], Flight[T]], count: int) -> list[float]:
        """Launch again and again, collecting one launch late; return `count` times between results.

        One launch more is made, so that each of the times holds one launch and one result.
        """
        marks_s = [self._clock()]
        flight = launch()
        for _ in range(count):
            following = launch()
            flight.result()
            marks_s.append(self._clock())
            flight = following
        flight.result()
        return [after - before for before, after in pairwise(marks_s)]

    def join_ms(self, rows: int, trials: int) -> float:
        """Time what joining adds to the frame that follows: the prefixes are stored, so copied."""
        slots = list(range(1, rows + 1))
        ids, may_end = [TEXT_ID] * rows, [False] * rows
        self.join(slots)  # stores the prefix
        added_s = []
        for _ in range(trials):
            for slot in slots:
                self._runner.open(slot, self.prompt, self._sampling, slot)
            began_s = self._clock()
            self._runner.prefill(slots)
            self._runner.launch_frame(slots, ids, may_end).result()
            middle_s = self._clock()
            self._runner.launch_frame(slots, ids, may_end).result()
            added_s.append((middle_s - began_s) - (self._clock() - middle_s))
        self.leave(slots)
        return statistics.median(added_s) * 1e3

    def odd_parameters(self, rows: int) -> None:
        """Run one frame with parameters of all kinds: none of them may need anything new."""
        slots = list(range(1, rows + 1))
        odd = (
            Sampling(temperature=0.0), Sampling(temperature=1.7, top_k=1, top_p=0.3),
            Sampling(top_k=2048, repetition_penalty=1.9, predictor_top_k=7),
            Sampling(top_p=0.01, predictor_temperature=0.0, predictor_top_p=0.5),
        )  # fmt: skip
        languages = ("auto", *self.model.config.languages)
        for slot in slots:
            prompt = build_prompt(
                self.model, voice=None, language=languages[slot % len(languages)],
                instruct=None, text_mode="streaming",
            )  # fmt: skip
            self._runner.open(
                slot, prompt, self.model.resolve_sampling(odd[slot % len(odd)]), slot * 2**33
            )
        self._runner.prefill(slots)
        made = self._runner.launch_frame(slots, [TEXT_ID] * rows, [True] * rows).result()
        codes = np.stack([made.codes] * 3, 1).astype(np.int16)
        self._runner.launch_codec(slots, np.maximum(codes, 0)).result()
        self.leave(slots)
