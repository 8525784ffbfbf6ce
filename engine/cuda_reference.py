"""References: the codec brought where the recording of an in-context clone ends; device side.

The captured codec graphs decode the reference on the codec's stream, one stream wide, and its
samples go nowhere. The past behind it is kept, so a voice that spoke before costs one copy.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from playhead.engine.cuda_state import CodecState
from playhead.engine.graphs import Body, sent
from playhead.engine.tensor_cache import TensorCache
from playhead.engine.units import CODEBOOKS

CACHE_BYTES = 64 << 20
"""A past takes 2.5 MB at the published sizes in 16 bits."""


class References:
    """Starts codec slots behind references; every method runs on the codec's stream."""

    def __init__(
        self, state: CodecState, replays: Mapping[tuple[int, int], Body], codec_input: Tensor
    ) -> None:
        """`replays` are the graphs by (streams, frames); `codec_input` is what they read."""
        self._state, self._replays, self._input = state, replays, codec_input
        self._pasts = TensorCache(CACHE_BYTES)

    def start(self, slot: int, reference: NDArray[np.int16]) -> None:
        """Bring a slot whose frame count is 0 behind a reference [R, 16]."""
        key = reference.tobytes()
        past = self._pasts.get(key)
        if past is not None:
            self._state.write(slot, past, len(reference))
            return
        at = 0
        while at < len(reference):
            streams, frames = self._size(len(reference) - at)
            block = np.zeros(streams * (1 + frames * CODEBOOKS), np.int32)
            block[0] = slot
            codes = reference[at : at + frames].reshape(-1)
            block[streams : streams + len(codes)] = codes
            self._input[: len(block)].copy_(sent(block, self._input.device), non_blocking=True)
            self._replays[streams, frames]()
            at += frames
        self._pasts.put(key, self._state.read(slot))

    def _size(self, num_frames: int) -> tuple[int, int]:
        """Return the narrowest graph of the longest stretch not above `num_frames`."""
        longest = max(f for _, f in self._replays if f <= num_frames)
        return min(s for s, f in self._replays if f == longest), longest
