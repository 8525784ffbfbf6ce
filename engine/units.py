"""Units of the media path and the conversions between them; pure, any thread."""

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 24_000
FRAME_SAMPLES = 1_920
"""Samples of one codec frame: 80 ms at 24 kHz (spec: decode_upsample_rate)."""
FRAME_S = FRAME_SAMPLES / SAMPLE_RATE_HZ
CODEBOOKS = 16
"""Codes of one frame: one from the talker, fifteen from the code predictor."""
SAMPLE_BYTES = 2
"""Bytes of one published sample: signed 16-bit little-endian mono."""


def samples_to_s(num_samples: int) -> float:
    """Return the duration in seconds of a number of samples."""
    return num_samples / SAMPLE_RATE_HZ


def s_to_samples(duration_s: float) -> int:
    """Return the number of whole samples nearest to a duration in seconds."""
    return round(duration_s * SAMPLE_RATE_HZ)


def frames_to_s(num_frames: float) -> float:
    """Return the duration in seconds of a number of codec frames."""
    return num_frames * FRAME_S


def to_pcm(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Return samples in -1..1 as signed 16-bit, rounded to the nearest and clipped."""
    pcm: NDArray[np.int16] = np.clip(np.rint(samples * 32767.0), -32768, 32767).astype("<i2")
    return pcm
