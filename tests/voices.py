"""Reference voices for tests: made of whole numbers alone, so equal on every machine."""

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 24_000
PEAK = 11_000
NOISE = 6
"""Largest value of the noise floor, about -75 dBFS."""
TRANSCRIPT = "hello world, this is a test of speech"


def reference_wave(voice: int, duration_s: float, rate_hz: int = RATE_HZ) -> NDArray[np.int16]:
    """Return syllables of a voice of its own pitch and timbre, with pauses, as mono samples."""
    draw = np.random.RandomState(voice)  # this old generator's stream never changes
    num_samples = round(duration_s * rate_hz)
    total = draw.randint(-NOISE, NOISE + 1, num_samples).astype(np.int64)
    pitch_hz = int(draw.randint(90, 260))
    timbre = draw.randint(10, 100, 12)
    at = rate_hz // 20
    while at < num_samples:
        length = int(draw.randint(rate_hz // 8, rate_hz // 4))
        period = max(rate_hz * 100 // (pitch_hz * int(draw.randint(85, 116))), 24)
        weights = timbre * draw.randint(1, 100, 12)
        length = min(length, num_samples - at)
        n = np.arange(length, dtype=np.int64)
        sound = np.zeros(length, np.int64)
        for harmonic, weight in enumerate(weights, start=1):
            phase = n * harmonic % period
            sound += int(weight) * (np.abs(4 * phase - 2 * period) - period) // harmonic
        rise = np.minimum(np.minimum(n, length - 1 - n), rate_hz // 50)
        largest = max(int(np.abs(sound).max()), 1)
        total[at : at + length] += sound * PEAK // largest * rise // (rate_hz // 50)
        pause = 3 if draw.randint(0, 6) == 0 else 18
        at += length + rate_hz // pause
    return total.astype(np.int16)


def as_float(wave: NDArray[np.int16]) -> NDArray[np.float32]:
    """Return 16-bit samples as values in -1..1."""
    return (wave / 32768.0).astype(np.float32)
