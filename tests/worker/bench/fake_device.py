"""A runner on a device of known speed, and the clock it moves: no time passes in reality."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
from playhead.engine.flight import Flight
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.prompt import Prompt
from playhead.engine.runner import CodecResult, FrameResult

T = TypeVar("T")


class KnownRunner:
    """Frames take 3 ms + 20 us a row + 1 us a position; codec batches 1.25 ms + 30 us a frame."""

    HOST_S, JOIN_S = 0.0001, 0.0004

    def __init__(self) -> None:
        self.now_s = 5.0
        self._free_s = 0.0
        self._position: dict[int, int] = {}
        self.opened: list[ResolvedSampling] = []
        self.positions: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        self._position[slot] = prompt.num_rows
        self.opened.append(sampling)
        return 0

    def restart(self, slot: int, prompt: Prompt) -> int:
        self._position[slot] = prompt.num_rows
        return 0

    def close(self, slot: int) -> None:
        del self._position[slot]

    def costs(self) -> StepCosts:
        return StepCosts()

    def prefill(self, slots: Sequence[int]) -> None:
        self.now_s += self.HOST_S
        self._free_s = max(self._free_s, self.now_s) + self.JOIN_S

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        num = len(slots)
        mean = float(np.mean([self._position[s] for s in slots]))
        self.positions.append(mean)
        for slot in slots:
            self._position[slot] += 1
        codes, ended = np.zeros((num, 16), np.int16), np.zeros(num, np.bool_)
        took_s = 0.003 + 20e-6 * num + 1e-6 * mean
        return self._fly(took_s, lambda: FrameResult(codes, ended))

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        num, frames, _ = codes.shape
        pcm = np.zeros((num, frames * 1920), np.int16)
        took_s = 0.00125 + 30e-6 * num * frames
        return self._fly(took_s, lambda: CodecResult(pcm, np.zeros(num, np.bool_)))

    def _fly(self, took_s: float, finish: Callable[[], T]) -> Flight[T]:
        self.now_s += self.HOST_S
        done_s = self._free_s = max(self._free_s, self.now_s) + took_s
        return Flight(finish, _Done(self, done_s))


class _Done:
    def __init__(self, runner: KnownRunner, done_s: float) -> None:
        self._runner, self._done_s = runner, done_s

    def query(self) -> bool:
        return self._runner.now_s >= self._done_s

    def synchronize(self) -> None:
        self._runner.now_s = max(self._runner.now_s, self._done_s)
