"""RunawayGuard: hears that speech goes on behind its text, by repeated codes or by silence; pure.

A talker that misses its own end repeats a few codes for ever, or hums. Both are looked for in
whole batches at once; what was found counts only in the tail of a segment (`Run.tail`) and ends
that segment with its next frame. Engine thread only, torch-free.
"""

import numpy as np
from numpy.typing import NDArray

from playhead.engine.units import FRAME_SAMPLES

MAX_PERIOD = 12
"""Longest cycle looked for, in frames: about a second."""
REPEATED_FRAMES = 24
"""Frames whose first code is that of a period before: two seconds no speaker repeats exactly."""
HISTORY = REPEATED_FRAMES + MAX_PERIOD
SILENT_FRAMES = 25
"""Two seconds without a sound: longer than any pause inside a sentence."""
QUIET_SHARE = 0.03
"""A frame is silent when its peak is 30 dB below the loudest frame of the request."""
QUIET_PEAK = 80
"""Or below -52 dBFS, the level of a codec's own noise (engine/trim.py)."""
_STRIDE = 8
"""Every eighth sample tells the peak of 80 ms well enough, at an eighth of the reads."""
_NO_CODE = -1

Slots = NDArray[np.intp]
Bools = NDArray[np.bool_]


class RunawayGuard:
    """What the last frames of every slot were like."""

    def __init__(self, max_streams: int) -> None:
        """Reserve a row for each slot 1..max_streams."""
        n = max_streams + 1
        self._codes = np.full((n, HISTORY), _NO_CODE, np.int16)
        """The newest first codes of a slot, a ring."""
        self._num_codes, self._loudest, self._num_quiet = np.zeros((3, n), np.int64)

    def open(self, slot: int) -> None:
        """Forget the slot's former stream."""
        self._num_codes[slot] = self._loudest[slot] = 0
        self.forget(slot)

    def forget(self, slot: int) -> None:
        """Begin counting anew: a segment ended."""
        self._codes[slot] = _NO_CODE
        self._num_quiet[slot] = 0

    def saw_codes(self, slots: Slots, codes: NDArray[np.int16], in_tail: Bools) -> list[int]:
        """Take the next frame of each slot, codes [B, 16]; return which rows repeat themselves."""
        count = self._num_codes[slots]
        self._codes[slots, count % HISTORY] = codes[:, 0]
        self._num_codes[slots] = count + 1
        if not np.count_nonzero(in_tail):
            return []
        tail = in_tail.nonzero()[0]
        return self._found(slots, tail[self._repeats(slots[tail])])

    def _repeats(self, slots: Slots) -> Bools:
        """Return whose newest codes all equal those of one period before."""
        newest = (self._num_codes[slots, None] - 1 - np.arange(HISTORY)) % HISTORY
        codes = self._codes[slots[:, None], newest]
        before = np.lib.stride_tricks.sliding_window_view(codes, REPEATED_FRAMES, axis=1)
        recent = before[:, :1]
        equal = ((before[:, 1:] == recent) & (recent != _NO_CODE)).all(2)
        found: Bools = equal.any(1)
        return found

    def saw_samples(self, slots: Slots, pcm: NDArray[np.int16], in_tail: Bools) -> list[int]:
        """Take the next samples of each slot, [B, n * 1920]; return which rows fell silent."""
        few = pcm.reshape(len(slots), -1, FRAME_SAMPLES)[:, :, ::_STRIDE].copy()
        peaks = np.abs(few).view(np.uint16).max(2)  # of -32768, abs and view make 32768
        loudest = np.maximum(self._loudest[slots, None], peaks)
        if peaks.shape[1] > 1:
            loudest = np.maximum.accumulate(loudest, 1)
        self._loudest[slots] = loudest[:, -1]
        quiet = peaks < np.maximum(loudest * QUIET_SHARE, QUIET_PEAK)
        if not np.count_nonzero(quiet):
            self._num_quiet[slots] = 0
            return []
        quiet &= loudest > QUIET_PEAK
        # As many as stand at the end; where all are quiet, those before count too.
        num_quiet = quiet[:, ::-1].argmin(1)
        whole = quiet.all(1)
        num_quiet[whole] = self._num_quiet[slots[whole]] + quiet.shape[1]
        self._num_quiet[slots] = num_quiet
        silent = (num_quiet >= SILENT_FRAMES) & in_tail
        return self._found(slots, silent.nonzero()[0]) if silent.any() else []

    def _found(self, slots: Slots, rows: NDArray[np.intp]) -> list[int]:
        for slot in slots[rows].tolist():
            self.forget(slot)
        found: list[int] = rows.tolist()
        return found
