"""Offline speech recognition for tests: one recogniser for the whole run."""

from functools import cache

import numpy as np
import numpy.typing as npt

from playhead.worker.demo.asr import Transcriber, word_error_rate


@cache
def transcriber() -> Transcriber:
    """Return the recogniser of this run."""
    return Transcriber()


def wer(text: str, pcm: npt.NDArray[np.int16]) -> float:
    """Return the word error rate of 24 kHz mono speech against its text."""
    return word_error_rate(text, transcriber().transcribe(pcm))
