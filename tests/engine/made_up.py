"""A runner without a model: a script chooses each frame's first code and whether it is loud."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from playhead.engine.flight import Flight
from playhead.engine.runner import CodecResult, FrameResult
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES
from tests.engine.flying import ToneRunner

LOUD, HUM = 9_000, 150
"""A hum at -36 dB below speech is no digital silence."""


def never(serial: int, frame: int, may_end: bool) -> bool:
    """Let no segment end by itself."""
    return False


def drawn(serial: int, frame: int) -> int:
    """Give codes that no two streams and no two frames share but by chance."""
    return int(np.random.default_rng(1000 * serial + frame).integers(0, 2048))


@dataclass
class MadeUp(ToneRunner):
    """Codes [., 0] are the script's, [., 1] say whether the frame is loud."""

    code: Callable[[int, int], int] = drawn
    loud: Callable[[int], bool] = lambda frame: True

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        made = super().launch_frame(slots, text_ids, may_end).result()
        codes = np.zeros((len(slots), CODEBOOKS), np.int16)
        for i, slot in enumerate(slots):
            serial = self.serials[slot]
            frame = self.frames[serial] - 1
            codes[i, :2] = self.code(serial, frame), self.loud(frame)
        return Flight.landed(FrameResult(codes, made.ended))

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        sign = np.where(np.arange(FRAME_SAMPLES) % 2, -1, 1)
        peaks = np.where(codes[:, :, 1] > 0, LOUD, HUM)
        pcm = (peaks[:, :, None] * sign).reshape(len(slots), -1).astype(np.int16)
        return Flight.landed(CodecResult(pcm, np.zeros(len(slots), np.bool_)))
