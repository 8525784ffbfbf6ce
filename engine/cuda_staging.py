"""Page-locked memory that batches pass through, with every view of it cut once; engine thread only.

A launch from the host takes a few microseconds; cutting slices and arrays anew for each one cost
more than that. Buffers take turns: one is free again when no more than the others are in flight.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from playhead.engine.graphs import PinnedRing
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES


@dataclass(frozen=True, slots=True)
class FrameViews:
    """What one frame batch passes through."""

    staged: Tensor
    block: NDArray[np.int32]
    """[3, rows]: slot, text id, flags; the memory of `staged`."""
    inputs: Tensor
    """The same on the device."""
    record: Tensor
    """Codes and ends on the device, flat."""
    landing: Tensor
    made: NDArray[np.int32]
    """[rows, 17]; the memory of `landing`."""


@dataclass(frozen=True, slots=True)
class CodecViews:
    """What one codec replay passes through."""

    staged: Tensor
    slots: NDArray[np.int32]
    """[streams]; the front of `staged`."""
    codes: NDArray[np.int32]
    """[streams * frames * 16]; the rest of it."""
    inputs: Tensor
    record: Tensor
    landing: Tensor
    pcm: NDArray[np.int16]
    """[streams, frames * 1920]; the front of `landing`."""
    broken: NDArray[np.int16]
    """[streams]; the rest of it."""


class FrameStaging:
    """Views of frame batches by their number of rows."""

    def __init__(
        self, sizes: Iterable[int], inputs: Tensor, codes: Tensor, num_buffers: int, pin: bool
    ) -> None:
        """Take the device's inputs [3 * max rows] and codes [max rows, 17]."""
        self._turn, most = 0, codes.shape[0]
        ins = PinnedRing(num_buffers, 3 * most, inputs.dtype, pin)
        outs = PinnedRing(num_buffers, codes.numel(), codes.dtype, pin)
        pairs = [(ins.next(), outs.next()) for _ in range(num_buffers)]

        def views(rows: int, staged: Tensor, landing: Tensor) -> FrameViews:
            staged, landing = staged[: 3 * rows], landing[: rows * (CODEBOOKS + 1)]
            return FrameViews(
                staged, staged.numpy().reshape(3, rows), inputs[: 3 * rows],
                codes[:rows].view(-1), landing, landing.numpy().reshape(rows, CODEBOOKS + 1),
            )  # fmt: skip

        self._views = {rows: [views(rows, *pair) for pair in pairs] for rows in sizes}
        self._num_buffers = num_buffers

    def next(self, rows: int) -> FrameViews:
        """Return the views whose turn it is."""
        self._turn = (self._turn + 1) % self._num_buffers
        return self._views[rows][self._turn]


class CodecStaging:
    """Views of codec replays by (streams, frames)."""

    def __init__(
        self, records: dict[tuple[int, int], Tensor], inputs: Tensor, num_buffers: int, pin: bool
    ) -> None:
        """Take each graph's record and the device's inputs, which hold the largest."""
        self._turn, self._num_buffers = 0, num_buffers
        first = next(iter(records.values()))
        most = max(record.numel() for record in records.values())
        ins = PinnedRing(num_buffers, inputs.numel(), inputs.dtype, pin)
        outs = PinnedRing(num_buffers, most, first.dtype, pin)
        pairs = [(ins.next(), outs.next()) for _ in range(num_buffers)]

        def views(streams: int, frames: int, staged: Tensor, landing: Tensor) -> CodecViews:
            record = records[streams, frames]
            staged, landing = staged[: streams * (1 + frames * CODEBOOKS)], landing[: len(record)]
            told, landed = staged.numpy(), landing.numpy()
            num_samples = streams * frames * FRAME_SAMPLES
            return CodecViews(
                staged, told[:streams], told[streams:], inputs[: staged.numel()], record, landing,
                landed[:num_samples].reshape(streams, -1),
                landed[num_samples : num_samples + streams],
            )  # fmt: skip

        self._views = {size: [views(*size, *pair) for pair in pairs] for size in records}

    def next(self, streams: int, frames: int) -> CodecViews:
        """Return the views whose turn it is."""
        self._turn = (self._turn + 1) % self._num_buffers
        return self._views[streams, frames][self._turn]
