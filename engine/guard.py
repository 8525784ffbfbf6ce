"""RunawayGuard: hears that speech goes on behind its text, by repeated codes or by silence; pure.

A talker that misses its own end repeats a few codes for ever, or hums. Both are looked for in
whole batches at once; what was found counts only in the tail of a segment (`TextFeed.in_tail`),
and ends that segment with its next frame. Engine thread only, torch-free.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from playhead.engine.messages import Guard
from playhead.engine.request import Request
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

    def saw_codes(
        self, requests: Sequence[Request], slots: Slots, codes: NDArray[np.int16]
    ) -> None:
        """Take the next frame of each slot, codes [B, 16]; stop segments that repeat themselves."""
        count = self._num_codes[slots]
        self._codes[slots, count % HISTORY] = codes[:, 0]
        self._num_codes[slots] = count + 1
        tail = [i for i, request in enumerate(requests) if _in_tail(request)]
        if tail:
            found = np.zeros(len(slots), np.bool_)
            found[tail] = self._repeats(slots[tail])
            self._stop(requests, slots, found, "repetition")

    def _repeats(self, slots: Slots) -> Bools:
        """Return whose newest codes all equal those of one period before."""
        newest = (self._num_codes[slots, None] - 1 - np.arange(HISTORY)) % HISTORY
        codes = self._codes[slots[:, None], newest]
        before = np.lib.stride_tricks.sliding_window_view(codes, REPEATED_FRAMES, axis=1)
        recent = before[:, :1]
        equal = ((before[:, 1:] == recent) & (recent != _NO_CODE)).all(2)
        found: Bools = equal.any(1)
        return found

    def saw_samples(
        self, requests: Sequence[Request], slots: Slots, pcm: NDArray[np.int16]
    ) -> None:
        """Take the next samples of each slot, [B, n * 1920]; stop segments that fell silent."""
        few = pcm.reshape(len(slots), -1, FRAME_SAMPLES)[:, :, ::_STRIDE]
        peaks = np.maximum(few.max(2), -few.min(2).astype(np.int64))
        loudest, num_quiet = self._loudest[slots], self._num_quiet[slots]
        for peak in peaks.T:
            loudest = np.maximum(loudest, peak)
            quiet = peak < np.maximum(loudest * QUIET_SHARE, QUIET_PEAK)
            num_quiet = (num_quiet + 1) * (quiet & (loudest > QUIET_PEAK))
        self._loudest[slots], self._num_quiet[slots] = loudest, num_quiet
        self._stop(requests, slots, num_quiet >= SILENT_FRAMES, "silence")

    def _stop(self, requests: Sequence[Request], slots: Slots, found: Bools, guard: Guard) -> None:
        for i in found.nonzero()[0].tolist():
            feed = requests[i].feed
            if feed is not None and _in_tail(requests[i]):
                feed.stop(guard)
                self.forget(int(slots[i]))


def _in_tail(request: Request) -> bool:
    feed = request.feed
    return feed is not None and feed.in_tail(request.segment_frames)
