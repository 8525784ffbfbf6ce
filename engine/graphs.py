"""CUDA graphs: capture bodies of launches once, replay them; on a CPU they run eagerly.

Engine thread only.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from playhead.engine.errors import DeviceFault

log = logging.getLogger(__name__)

FRAME_BATCHES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Rows of the frame graphs; below 8 the library's products are slower, not faster (measured)."""
CODEC_FRAMES = (1, 2, 4, 8)
CODEC_STREAMS = (1, 4, 8, 16, 32, 64, 128, 256)
CODEC_ROW_FRAMES = 512
"""Most streams times frames of one codec graph."""
PROMPT_ROWS = (16, 64, 256)
"""Rows of the captured prompt graphs; longer prompts run in pieces."""
_WARM_RUNS = 2

Body = Callable[[], None]


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """Which shapes are captured."""

    frame_batches: tuple[int, ...] = FRAME_BATCHES
    codec_frames: tuple[int, ...] = CODEC_FRAMES
    prompt_rows: tuple[int, ...] = PROMPT_ROWS
    max_codec_streams: int = 256


@contextlib.contextmanager
def device_faults() -> Iterator[None]:
    """Raise DeviceFault for what leaves the device unusable."""
    try:
        yield
    except torch.AcceleratorError as error:
        raise DeviceFault(f"the device broke: {error}") from error


class DeviceEvent(torch.cuda.Event):
    """An event of a stream; what asks it raises DeviceFault for what broke before it."""

    def query(self) -> bool:
        """Return whether all work before the event is done."""
        with device_faults():
            return bool(super().query())  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        """Wait until it is."""
        with device_faults():
            super().synchronize()

    def elapsed_time(self, end_event: Any) -> float:
        """Return the milliseconds from this event to another, both done."""
        with device_faults():
            return float(super().elapsed_time(end_event))


class Recorder:
    """Captures graphs on one stream into one memory pool and counts them."""

    def __init__(
        self, device: torch.device, *, high_priority: bool = False, graphs: bool = True
    ) -> None:
        """Make the stream that the graphs are captured in and replayed on.

        Without `graphs` bodies run there launch by launch.
        """
        self.captures = 0
        self._graphs = graphs
        self.stream: torch.cuda.Stream | None = None
        self._pool: Any = None
        if device.type == "cuda":
            # Kernels of a graph keep the priority of the stream they were captured in.
            priority = -1 if high_priority else 0
            self.stream = torch.cuda.Stream(device, priority)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()
        # Made once, entered again and again, never inside itself: making one asks which devices
        # there are, a third of the host's time of a launch.
        self.context = torch.cuda.stream(self.stream)

    def capture(self, body: Body) -> Body:
        """Return a function that replays `body` on the current stream.

        The body runs a few times first (compilation, library handles), so it must leave no
        trace but in scratch rows.
        """
        self.captures += 1
        if self.stream is None:
            return body
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            for _ in range(_WARM_RUNS):
                body()
        self.stream.synchronize()
        if not self._graphs:
            return body
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile: their calls are no part of the graph.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self.stream, capture_error_mode="thread_local"
        ):
            body()
        current.wait_stream(self.stream)
        return graph.replay


class PinnedRing:
    """Host buffers that take turns, so one launch never overwrites what another still reads."""

    def __init__(self, num_buffers: int, num_values: int, dtype: torch.dtype, pin: bool) -> None:
        """Allocate page-locked memory where `pin` is set."""
        self._buffers = [
            torch.zeros(num_values, dtype=dtype, pin_memory=pin) for _ in range(num_buffers)
        ]
        self._turn = 0

    def next(self) -> Tensor:
        """Return the buffer whose turn it is: free if no more than the others are in flight."""
        self._turn = (self._turn + 1) % len(self._buffers)
        return self._buffers[self._turn]


def sent(values: NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to the device in the order of its work, without waiting for that work."""
    host = torch.from_numpy(values)
    if device.type == "cpu":
        return host
    # From pageable memory the copy would wait for every frame launched before it. The pinned
    # block is kept by the allocator until the copy is over.
    return host.pin_memory().to(device, non_blocking=True)


def pick_size(sizes: tuple[int, ...], wanted: int) -> int:
    """Return the smallest captured size that holds `wanted`."""
    return next(size for size in sizes if size >= wanted)


def codec_sizes(
    max_streams: int,
    frames: tuple[int, ...] = CODEC_FRAMES,
    limit: int = CODEC_ROW_FRAMES,
    streams: tuple[int, ...] = CODEC_STREAMS,
) -> list[tuple[int, int]]:
    """Return (streams, frames) of every codec graph, largest first."""
    top = pick_size(streams, min(max_streams, streams[-1]))
    pairs = [(s, f) for f in frames for s in streams if s <= top and s * f <= limit]
    return sorted(pairs, key=lambda pair: -pair[0] * pair[1])
