"""Offline speech recognition for tests: one recogniser for the whole run."""

from functools import cache

import numpy as np
import numpy.typing as npt

from playhead.worker.demo.asr import Transcriber, word_error_rate


class Remembering(Transcriber):
    """Hears each recording once: many tests compare with the same one."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: dict[bytes, str] = {}

    def transcribe(self, pcm: npt.NDArray[np.int16]) -> str:
        key = pcm.tobytes()
        if key not in self._heard:
            self._heard[key] = super().transcribe(pcm)
        return self._heard[key]


@cache
def transcriber() -> Transcriber:
    """Return the recogniser of this run."""
    return Remembering()


def wer(text: str, pcm: npt.NDArray[np.int16]) -> float:
    """Return the word error rate of 24 kHz mono speech against its text."""
    return word_error_rate(text, transcriber().transcribe(pcm))
