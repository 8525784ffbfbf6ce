"""LeadingSilenceTrim: drops what precedes the first speech of a stream; pure numpy, engine thread.

Speech models begin with silence or codec noise. The onset is found in the signal itself: windows
of 5 ms whose level rises out of the noise before them. Quiet beginnings (/h/, /f/, a soft vowel)
rise a few decibels only, so the threshold follows the noise floor, and 15 ms before the first
such window are kept. A plosive is one short burst, so one loud window is enough. Speech that has
begun waits until there is as much of it as asked for.
"""

import numpy as np
from numpy.typing import NDArray

from playhead.engine.units import SAMPLE_RATE_HZ

WINDOW_SAMPLES = SAMPLE_RATE_HZ * 5 // 1000
KEEP_WINDOWS = 3
"""Windows kept before the onset window: 15 ms, within the 20 ms that may stay."""
FADE_SAMPLES = SAMPLE_RATE_HZ * 2 // 1000
MAX_SILENCE_S = 1.5
"""A stream that stays silent is passed on from here: trimming is bounded."""
FLOOR_DBFS = -52.0
"""Codec noise lies at or below -55 dBFS; 5 ms windows of it vary by 0.6 dB."""
LOUD_DBFS = -42.0
RISE_DB = 6.0


class LeadingSilenceTrim:
    """Finds the onset in a stream of PCM and drops the silence before it."""

    def __init__(self) -> None:
        """Start before the first sample."""
        self.open = False
        """True once speech was handed out or the bound was reached: everything passes."""
        self.dropped_samples = 0
        self._pending = np.zeros(0, np.float32)
        self._floor_db = 0.0
        self._scanned = 0
        self._risen = False
        self._onset: int | None = None
        """The window where speech begins, once it is known."""

    def push(
        self, pcm: NDArray[np.float32], last: bool = False, least_samples: int = 0
    ) -> NDArray[np.float32]:
        """Take the next samples [n] float32 in -1..1; return those to publish, maybe none.

        Fewer than `least_samples` wait for what follows. With `last` the stream ends here and
        nothing stays behind: all-silent audio comes out no longer than the windows kept before an
        onset.
        """
        if self.open:
            return pcm
        self._pending = np.concatenate([self._pending, pcm])
        if self._onset is None:
            self._onset = self._find_onset()
        bound = MAX_SILENCE_S * SAMPLE_RATE_HZ
        if self._onset is None and (last or self._scanned * WINDOW_SAMPLES >= bound):
            self._onset = self._scanned
        if self._onset is None:
            self._forget()
            return np.zeros(0, np.float32)
        start = max(self._onset - KEEP_WINDOWS, 0) * WINDOW_SAMPLES - self.dropped_samples
        if not last and len(self._pending) - max(start, 0) < least_samples:
            return np.zeros(0, np.float32)
        return self._release(max(start, 0))

    @property
    def holds(self) -> bool:
        """Speech has begun and waits until there is enough of it."""
        return self._onset is not None and not self.open

    def _find_onset(self) -> int | None:
        """Scan whole new windows; return the index of the first window of speech."""
        base = self.dropped_samples // WINDOW_SAMPLES
        whole = len(self._pending) // WINDOW_SAMPLES
        windows = self._pending[: whole * WINDOW_SAMPLES].reshape(whole, WINDOW_SAMPLES)
        centred = windows - windows.mean(1, keepdims=True)
        levels = 10.0 * np.log10(np.square(centred).mean(1) + 1e-12)
        for index in range(self._scanned - base, whole):
            self._scanned += 1
            if self._scanned == 1:
                continue  # a codec's first samples click: its past is empty
            level = float(levels[index])
            threshold = min(max(self._floor_db + RISE_DB, FLOOR_DBFS), LOUD_DBFS)
            if self._scanned == 2:
                threshold = FLOOR_DBFS  # nothing is known of the noise yet
            if level > LOUD_DBFS or (level > threshold and self._risen):
                return base + index - int(self._risen)
            self._risen = level > threshold
            if not self._risen:
                self._floor_db = min(self._floor_db, level)
        return None

    def _release(self, start: int) -> NDArray[np.float32]:
        kept = self._pending[start:].copy()
        self.dropped_samples += start
        self.open = True
        self._pending = np.zeros(0, np.float32)
        if self.dropped_samples and len(kept) >= FADE_SAMPLES:
            kept[:FADE_SAMPLES] *= np.linspace(0.0, 1.0, FADE_SAMPLES, dtype=np.float32)
        return kept

    def _forget(self) -> None:
        """Drop windows that can no longer be kept: one risen window and those before it stay."""
        keep_from = max(self._scanned - KEEP_WINDOWS - 1, 0) * WINDOW_SAMPLES
        drop = keep_from - self.dropped_samples
        if drop > 0:
            self._pending = self._pending[drop:]
            self.dropped_samples = keep_from
