"""Per-stream device state in slot arrays, sized once from the profile; engine thread only.

Slot 0 and page 0 are scratch for padding rows. A stream holds the pages of its prompt and of one
whole segment from its start to its end, so a step never runs out of them.
`memory_table` is the plan: what each part takes, known before anything is captured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from playhead.engine.cuda_weights import CodecWeights, FrameWeights
from playhead.engine.errors import Busy
from playhead.kernels.attention import PAGE
from playhead.kernels.codec_state import copy_blocks
from playhead.kernels.conv import ConvScratch
from playhead.kernels.sampler import REAL_COLUMNS, SAMPLED, WHOLE_COLUMNS

RETRY_S = 1.0
"""When to ask again for pages: streams end all the time."""
PREFIX_PAGES = 8
"""Pages of constant prompt rows one stored prefix may take: 128 positions."""


@dataclass(frozen=True, slots=True)
class StateSizes:
    """What the profile decides about device memory."""

    max_streams: int
    segment_frames: int
    prompt_positions: int
    """Most positions of a prompt."""
    usual_prompt_positions: int = 32
    """Positions the page pool counts on for the prompt of each stream."""
    prefix_entries: int = 64
    """Prompts of (voice, language, instruction) whose keys and values are kept."""

    @property
    def num_slots(self) -> int:
        """Slots, scratch included."""
        return self.max_streams + 1

    @property
    def max_positions(self) -> int:
        """Talker positions of one segment."""
        return self.prompt_positions + self.segment_frames

    @property
    def pages_per_slot(self) -> int:
        """Most pages of one stream."""
        return pages_of(self.max_positions)

    @property
    def pool_pages(self) -> int:
        """Pages of all streams together, when each has a usual prompt."""
        usual = min(self.usual_prompt_positions, self.prompt_positions)
        return self.max_streams * pages_of(usual + self.segment_frames)


def pages_of(num_positions: int) -> int:
    """Return the pages that hold `num_positions`."""
    return -(-num_positions // PAGE)


class PagePool:
    """Which pages belong to which slot; host side. Page 0 is scratch and belongs to nobody.

    Pages may be given on while a replay of their former slot is in flight: all that writes pages
    runs on one stream, in order.
    """

    def __init__(self, num_pages: int, num_slots: int, pages_per_slot: int) -> None:
        """Hold pages 1..num_pages."""
        self._free = list(range(num_pages, 0, -1))
        self._held: dict[int, list[int]] = {}
        self.table: NDArray[np.int32] = np.zeros((num_slots, pages_per_slot), np.int32)
        """[slots, pages]: what a joiner brings along; 0 where there is none."""

    @property
    def num_free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def reserve(self, slot: int, num_positions: int) -> None:
        """Make `slot` hold pages for exactly `num_positions`; raises Busy and changes nothing."""
        held, wanted = self._held.setdefault(slot, []), pages_of(num_positions)
        if wanted - len(held) > len(self._free):
            raise Busy(
                f"{wanted} pages of keys and values are needed, {len(self._free)} are free; "
                "try again when a stream has ended",
                RETRY_S,
            )
        while len(held) < wanted:
            held.append(self._free.pop())
        while len(held) > wanted:
            self._free.append(held.pop())
        self.table[slot] = 0
        self.table[slot, :wanted] = held

    def release(self, slot: int) -> None:
        """Take all pages of `slot` back."""
        self._free += reversed(self._held.pop(slot, []))
        self.table[slot] = 0


class TalkerState:
    """Everything the frame graph keeps from one replay to the next."""

    def __init__(self, weights: FrameWeights, sizes: StateSizes) -> None:
        """Allocate; all zeros, no slot with pages yet."""
        c, like = weights.talker.config, weights.code_rows
        device, slots = like.device, sizes.num_slots
        pages = sizes.pages_per_slot
        self.pool = PagePool(sizes.pool_pages, slots, pages)
        self.sizes = sizes
        self.carry = like.new_zeros(slots, c.hidden)
        self.wholes = torch.zeros(slots, WHOLE_COLUMNS, dtype=torch.int32, device=device)
        self.reals = torch.ones(slots, REAL_COLUMNS, device=device)
        self.reals[0, [SAMPLED, 4 + SAMPLED]] = 0.0  # padding rows are greedy: least work
        self.seen = torch.zeros(slots, weights.num_codes // 32, dtype=torch.int32, device=device)
        self.page_table = torch.zeros(slots, pages, dtype=torch.int32, device=device)
        shape = (2, c.num_kv_heads, PAGE, c.head_dim)
        self.cache = like.new_zeros(c.num_layers, sizes.pool_pages + 1, *shape)
        self.prefix_pages = min(PREFIX_PAGES, pages)
        self.prefixes = like.new_zeros(
            sizes.prefix_entries, c.num_layers, self.prefix_pages, *shape
        )

    @property
    def last_position(self) -> int:
        """The last position a slot's pages hold."""
        return self.sizes.pages_per_slot * PAGE - 1


@dataclass(frozen=True, slots=True)
class Past:
    """The carried rows of one convolution."""

    state_at: int
    """Where they stand in a slot's row of `CodecState.pasts`."""
    num_rows: int
    channels: int

    @property
    def num_values(self) -> int:
        """Values a stream carries for it."""
        return self.num_rows * self.channels


class CodecState:
    """Everything the codec graphs keep: convolution pasts, the KV ring, frame counts."""

    def __init__(self, weights: CodecWeights, num_slots: int) -> None:
        """Allocate; a slot whose frame count is 0 starts from nothing, whatever it holds."""
        c, like = weights.config, weights.tables
        self.pasts_of = _pasts(weights)
        values = sum(p.num_values for p in self.pasts_of)
        self.pasts = like.new_zeros(num_slots, values)
        stack = c.stack
        shape = (stack.num_layers, num_slots, 2, stack.num_heads, c.window_frames, stack.head_dim)
        self.ring = like.new_zeros(shape)
        self.frames = torch.zeros(num_slots, dtype=torch.int32, device=like.device)

    def read(self, slot: int) -> Tensor:
        """Copy a slot's past out, flat."""
        return torch.cat([self.pasts[slot], self.ring[:, slot].flatten()])

    def write(self, slot: int, past: Tensor, num_frames: int) -> None:
        """Put a past that `read` took behind `num_frames` frames into a slot."""
        row, ring = self.pasts[slot], self.ring[:, slot]
        row.copy_(past[: row.numel()])
        ring.copy_(past[row.numel() :].view(ring.shape))
        self.frames[slot] = num_frames


def _pasts(weights: CodecWeights) -> list[Past]:
    """List the convolutions with history in the order the graph runs them."""
    c = weights.config
    rows: list[tuple[int, int]] = [(weights.entry.past, c.codebook_width)]
    rows += [(up.depthwise.shape[0] - 1, c.latent) for up in weights.ups]
    rows.append((weights.first.past, c.latent))
    width = c.decoder_width
    for block in weights.blocks:
        rows.append((block.up.past, width))
        width //= 2
        rows += [(unit.first.past, width) for unit in block.units]
    rows.append((weights.last.shape[0] - 1, width))
    pasts, at = [], 0
    for num_rows, channels in rows:
        pasts.append(Past(at, num_rows, channels))
        at += num_rows * channels
    return pasts


class Arena:
    """One block of device memory that every codec graph cuts its buffers from."""

    def __init__(self, num_values: int, like: Tensor) -> None:
        """Reserve; graphs that share it must run one after another."""
        self.values = torch.zeros(num_values, dtype=like.dtype, device=like.device)
        self.scratch = ConvScratch(like)

    def cut(self, at: int, *shape: int) -> Tensor:
        """Return a view of `shape` starting at value `at`."""
        size = int(torch.Size(shape).numel())
        assert at + size <= self.values.numel(), "the arena is too small for this shape"
        return self.values[at : at + size].view(shape)


def past_blocks(places: list[tuple[Past, int, int]], device: torch.device) -> Tensor:
    """Return the block table of (past, arena offset, values from stream to stream)."""
    return copy_blocks(
        [(past.state_at, at, stride, past.num_values) for past, at, stride in places], device
    )


def memory_table(parts: Mapping[str, int]) -> str:
    """Lay out bytes by part as a table with a total."""
    rows = [*parts.items(), ("total", sum(parts.values()))]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {size / 2**20:>10.1f} MiB" for name, size in rows)
