"""New streams on the device: settings, pages and constant prompt keys of many slots at once.

A prompt whose constant rows were seen before is copied from the prefix store and needs no model
run. The store is bounded by entries, and by bytes for those longer than an entry (the description
of a voice); the least recently used one gives way. Engine thread only.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from playhead.engine.cuda_state import CodecState, TalkerState
from playhead.engine.cuda_weights import FrameWeights
from playhead.engine.graphs import Body, PinnedRing, Recorder, pick_size, sent
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.prompt import Prompt
from playhead.engine.tensor_cache import TensorCache
from playhead.kernels import frame
from playhead.kernels.attention import PAGE
from playhead.kernels.launches import TRITON, Launches
from playhead.kernels.sampler import (
    POSITION,
    REAL_COLUMNS,
    SEED_HIGH,
    SEED_LOW,
    TOP_K,
    WHOLE_COLUMNS,
)

PrefixKey = tuple[bytes, bytes, bytes]
JOIN_SIZES = (1, 2, 4, 8, 16, 32)
"""Joiners of the captured graphs; more join in pieces, fewer with the first of them repeated."""
LONG_BYTES = 256 << 20
"""Of prefixes longer than an entry: at 1.7B 200 rows take 23 MB."""
WHOLES, REALS = 4, 12
"""Columns of a joiner where its slot's settings begin (frame.JOIN_HEAD)."""
_WORD = 1 << 32


@dataclass(slots=True)
class SlotStart:
    """What a slot starts its next segment with."""

    prompt: Prompt
    sampling: ResolvedSampling
    seed: int
    new_stream: bool
    """False: a new segment of a stream that goes on."""
    joined: bool = False


@dataclass(slots=True)
class _Entry:
    index: int
    num_positions: int


class Joins:
    """Turns opened slots into device state."""

    def __init__(
        self, weights: FrameWeights, talker: TalkerState, codec: CodecState, recorder: Recorder,
        launches: Launches = TRITON,
    ) -> None:  # fmt: skip
        """Reserve the joiner block and capture the graphs, over scratch slot 0."""
        self._k = launches
        self._weights, self._talker, self._codec = weights, talker, codec
        self._columns = frame.JOIN_HEAD + talker.page_table.shape[1]
        most = talker.sizes.num_slots + JOIN_SIZES[-1]
        device = weights.code_rows.device
        pin = device.type == "cuda"
        self._staged = PinnedRing(4, most * self._columns, torch.int32, pin)
        self._joiners = torch.zeros(
            (JOIN_SIZES[-1], self._columns), dtype=torch.int32, device=device
        )
        reals = talker.reals[0].view(torch.int32)  # the scratch slot keeps its settings
        self._joiners[:, REALS : REALS + REAL_COLUMNS] = reals
        self._entries: OrderedDict[PrefixKey, _Entry] = OrderedDict()
        self._free = list(range(talker.sizes.prefix_entries - 1, -1, -1))
        self._long = TensorCache(LONG_BYTES)
        self.starts: dict[int, SlotStart] = {}
        with torch.inference_mode():
            self._replays = {
                size: recorder.capture(self._body(self._joiners[:size]))
                for size in reversed(JOIN_SIZES)
            }

    def _body(self, joiners: Tensor) -> Body:
        """Return what sets up as many slots as `joiners` has rows."""
        k, t = self._k, self._talker

        def run() -> None:
            k.join_streams(
                joiners, self._weights.start_row, t.carry, t.wholes, t.reals, t.seen,
                t.page_table, self._codec.frames,
            )  # fmt: skip
            k.copy_prefixes(joiners, t.prefixes, t.cache, t.prefix_pages)

        return run

    def join(self, slots: Sequence[int]) -> list[tuple[int, int, int]]:
        """Set up slots; return (slot, first row, end row) of prompt rows still to be run.

        A prompt whose prefix is not stored is listed with all of its rows.
        """
        staged = self._staged.next()
        told, at = staged.numpy(), 0
        to_run: list[tuple[int, int, int]] = []
        for first in range(0, len(slots), JOIN_SIZES[-1]):
            piece = slots[first : first + JOIN_SIZES[-1]]
            size = pick_size(JOIN_SIZES, len(piece))
            end = at + size * self._columns
            block = told[at:end].reshape(size, self._columns)
            block[:] = 0
            for row, slot in zip(block, piece, strict=False):
                start = self.starts[slot]
                done = self._write(row, slot, start)
                if done < start.prompt.num_rows:
                    to_run.append((slot, done, start.prompt.num_rows))
                start.joined = True
            block[len(piece) :] = block[0]
            rows = staged[at:end].view(size, self._columns)
            self._joiners[:size].copy_(rows, non_blocking=True)
            self._replays[size]()
            at = end
        for slot in slots:
            self._copy_long(slot)
            reference = self.starts[slot].prompt.reference
            if reference is not None:  # speech goes on from its last frame
                self._talker.carry[slot] = self._frame_rows(reference[-1:])[0]
        return to_run

    def references(self, slots: Sequence[int]) -> dict[int, NDArray[np.int16]]:
        """Return the reference codes of slots that begin a stream, where their voice has one."""
        starts = {slot: self.starts[slot] for slot in slots}
        return {
            slot: start.prompt.reference
            for slot, start in starts.items()
            if start.new_stream and not start.joined and start.prompt.reference is not None
        }

    def stored_rows(self, prompt: Prompt) -> int:
        """Return how many rows of a prompt are in the store."""
        entry = self._entries.get(prompt.constant_key)
        if entry is not None:
            return entry.num_positions
        return 0 if self._held_long(prompt) is None else prompt.num_constant_rows

    def _held_long(self, prompt: Prompt) -> Tensor | None:
        """Return the stored pages [layers, pages, ...] of a prefix longer than an entry."""
        if prompt.num_constant_rows <= self._talker.prefix_pages * PAGE:
            return None
        return self._long.get(prompt.constant_key)

    def _copy_long(self, slot: int) -> None:
        """Copy a prefix longer than an entry into the slot's pages, where it is stored."""
        held, t = self._held_long(self.starts[slot].prompt), self._talker
        if held is not None:
            cells = sent(t.pool.table[slot, : held.shape[1]].astype(np.int64), t.cache.device)
            t.cache.index_copy_(1, cells, held)

    def _write(self, row: NDArray[np.int32], slot: int, start: SlotStart) -> int:
        """Fill one joiner; return how many prompt positions come from the store."""
        prompt, s = start.prompt, start.sampling
        entry = self._entries.get(prompt.constant_key)
        if entry is not None:
            self._entries.move_to_end(prompt.constant_key)
            row[1], row[2] = entry.index, entry.num_positions
        row[0] = slot
        row[3] = 0 if start.new_stream and not start.joined else frame.KEEP_HISTORY
        wholes = row[WHOLES : WHOLES + WHOLE_COLUMNS]
        wholes[TOP_K], wholes[TOP_K + 1] = s.top_k, s.predictor_top_k
        wholes[SEED_LOW], wholes[SEED_HIGH] = _halves(start.seed)
        wholes[POSITION] = prompt.num_rows
        reals = row[REALS : REALS + REAL_COLUMNS].view(np.float32)
        reals[:4] = *_stage(s.temperature, s.top_p), s.repetition_penalty
        reals[4:7] = _stage(s.predictor_temperature, s.predictor_top_p)
        row[frame.JOIN_HEAD :] = self._talker.pool.table[slot]
        return self.stored_rows(prompt) if entry is None else entry.num_positions

    def keep_prefix(self, slot: int, num_run: int) -> None:
        """Store the constant rows of a prompt that was just run, if they were not stored."""
        prompt, t = self.starts[slot].prompt, self._talker
        pages = -(-prompt.num_constant_rows // PAGE)
        if not pages or self.stored_rows(prompt):
            return
        assert num_run >= prompt.num_constant_rows
        if pages > t.prefix_pages:
            cells = sent(t.pool.table[slot, :pages].astype(np.int64), t.cache.device)
            self._long.put(prompt.constant_key, t.cache[:, cells])
            return
        if not self._free:
            self._free.append(self._entries.popitem(last=False)[1].index)
        index = self._free.pop()
        self._entries[prompt.constant_key] = _Entry(index, prompt.num_constant_rows)
        # Rows after the constant ones may share the last page; positions hide them.
        for page, cell in enumerate(t.pool.table[slot, :pages].tolist()):
            t.prefixes[index, :, page].copy_(t.cache[:, cell])

    def prompt_rows(self, slot: int, first: int, last: int) -> Tensor:
        """Return the talker's input rows [last - first, H] of a slot's prompt."""
        prompt, w = self.starts[slot].prompt, self._weights
        device = w.code_rows.device
        text, codec = (sent(i[first:last], device) for i in (prompt.text_ids, prompt.codec_ids))
        x = w.text_rows[text.clamp(min=0)].masked_fill((text < 0)[:, None], 0.0)
        x = x + w.codec_rows[codec.clamp(min=0)].masked_fill((codec < 0)[:, None], 0.0)
        if prompt.speaker is not None and first <= prompt.speaker_row < last:
            x[prompt.speaker_row - first] += sent(prompt.speaker, device).to(x.dtype)
        if prompt.reference is not None and last > prompt.reference_row:
            begin = max(first, prompt.reference_row)
            frames = prompt.reference[begin - prompt.reference_row : last - prompt.reference_row]
            x[begin - first :] += self._frame_rows(frames)
        return x

    def _frame_rows(self, frames: NDArray[np.int16]) -> Tensor:
        """Return the sum of the 16 code rows [R, H] of frames [R, 16]."""
        w = self._weights
        offsets = np.arange(frames.shape[1]) * w.num_codes
        at = sent(frames.astype(np.int64) + offsets, w.code_rows.device)
        return w.code_rows[at].sum(1)


def _halves(seed: int) -> tuple[int, int]:
    """Return the low and high word of a 64-bit key as int32 values."""
    low, high = seed % _WORD, (seed >> 32) % _WORD
    return low - _WORD * (low >> 31), high - _WORD * (high >> 31)


def _stage(temperature: float, top_p: float) -> tuple[float, float, float]:
    """Return inverse temperature, top_p and the noise factor of one model; 0 is greedy."""
    if temperature == 0:
        return 1.0, 1.0, 0.0
    return 1.0 / temperature, top_p, 1.0
