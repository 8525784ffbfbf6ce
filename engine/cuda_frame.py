"""The body of the frame graph and of the prompt graph: launches over fixed buffers, no decisions.

    x = carry[slot] + P[text] ─▶ talker ─▶ codebook 0 ─▶ 15 predictor passes ─▶ carry, codes

Runs eagerly as it stands (on a CPU through Triton's interpreter) and is captured by graphs.py.
All batch sizes share one set of buffers: frame replays run one after another.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from playhead.engine.cuda_state import TalkerState
from playhead.engine.cuda_weights import FrameWeights, LayerWeights, StackWeights
from playhead.engine.models.config import MIN_FRAMES
from playhead.engine.units import CODEBOOKS
from playhead.kernels import attention
from playhead.kernels.launches import TRITON, Launches

INPUT_ROWS = 3
"""Rows of the host's input block [3, rows] int32: slot, text id, flags (sampler.MAY_END)."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a frame shows and is told, where its numbers are measured; no served graph has one."""

    scores: Tensor
    """[16, rows, num_codes] fp32: takes the logits of every codebook."""
    told: Tensor
    """[rows, 16] int32: the codes the frame goes on with, whatever it draws."""


class _StackBuffers:
    """Buffers of one stack for up to `rows` rows."""

    def __init__(self, weights: StackWeights, rows: int, like: Tensor) -> None:
        c = weights.config
        self.x = like.new_empty(rows, c.hidden)
        self.qkv = like.new_empty(rows, (c.num_heads + 2 * c.num_kv_heads) * c.head_dim)
        self.mixed = like.new_empty(rows, c.num_heads * c.head_dim)
        self.gate_up = like.new_empty(rows, 2 * c.intermediate)
        self.gated = like.new_empty(rows, c.intermediate)


class FrameBuffers:
    """Every buffer of the frame and prompt graphs, for up to `max_rows` rows."""

    def __init__(
        self, weights: FrameWeights, state: TalkerState, max_rows: int, launches: Launches = TRITON
    ) -> None:
        """Allocate once; graphs of fewer rows use the front of each buffer."""
        self.launches = launches
        like, device = weights.code_rows, weights.code_rows.device
        own = weights.predictor.config
        self.max_rows = max_rows
        self.inputs = torch.zeros(INPUT_ROWS * max_rows, dtype=torch.int32, device=device)
        self.positions = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self.talker = _StackBuffers(weights.talker, max_rows, like)
        self.predictor = _StackBuffers(weights.predictor, 2 * max_rows, like)
        # Apart from predictor.x: the sampler reads one while it writes the other.
        self.pairs = like.new_empty(2 * max_rows, own.hidden)
        self.unit = like.new_empty(max_rows, weights.talker.config.hidden)
        self.logits = like.new_empty(max_rows, weights.head.shape[0])
        self.own_logits = like.new_empty(max_rows, weights.num_codes)
        self.codes = torch.zeros(max_rows, CODEBOOKS + 1, dtype=torch.int32, device=device)
        """The record of a frame: 16 codes and whether the row has ended."""
        shape = (own.num_layers, max_rows, 2, own.num_kv_heads, CODEBOOKS, own.head_dim)
        self.own_cache = like.new_zeros(shape)
        c = weights.talker.config
        splits = -(-(state.last_position + 1) // attention.SPLIT)
        self.scratch = attention.SplitScratch(
            max_rows, c.num_heads, c.num_kv_heads, c.head_dim, splits, like
        )

    @property
    def num_bytes(self) -> int:
        """Device memory of all buffers."""
        held = (self, self.talker, self.predictor, self.scratch)
        values = [value for holder in held for value in vars(holder).values()]
        return sum(value.nbytes for value in values if isinstance(value, Tensor))


class _TalkerBody:
    """The talker over `rows` rows of the shared buffers; x in, x out in place."""

    def __init__(
        self, weights: FrameWeights, state: TalkerState, buffers: FrameBuffers, rows: int
    ) -> None:
        self._weights, self._state, self._rows = weights, state, rows
        self._b, self._scratch, self._k = buffers.talker, buffers.scratch, buffers.launches
        self.slots = buffers.inputs[:rows]
        self.positions = buffers.positions[:rows]

    def run(self, append: bool) -> None:
        """Run every layer; `append`: one new row a slot, else rows of prompts."""
        c, b, n = self._weights.talker.config, self._b, self._rows
        for index, layer in enumerate(self._weights.talker.layers):
            self._k.project(b.x[:n], layer.qkv, b.qkv[:n])
            self._attend(index, layer, append)
            finish_layer(layer, b, b.x[:n], c.rms_eps, self._k)

    def _attend(self, index: int, layer: LayerWeights, append: bool) -> None:
        stack, b, n, state = self._weights.talker, self._b, self._rows, self._state
        c, cache = stack.config, state.cache[index]
        if not append:
            self._k.write_kv(
                b.qkv[:n], cache, state.page_table, self.slots, self.positions, layer.norms[1],
                stack.rope, c.num_heads, c.rms_eps, b.x[:n],
            )  # fmt: skip
        self._k.paged_attention(
            b.qkv[:n], cache, state.page_table, self.slots, self.positions, layer.norms,
            stack.rope, b.mixed[:n], self._scratch, c.rms_eps, b.x[:n], append,
        )  # fmt: skip


def finish_layer(layer: LayerWeights, b: _StackBuffers, x: Tensor, eps: float, k: Launches) -> None:
    """Run a layer from its mixed heads to its output: x [N, hidden] is read and replaced."""
    n = x.shape[0]
    # A sum into its own addend saves the library a copy of it.
    k.project(b.mixed[:n], layer.out, x, x)
    k.project(x, layer.gate_up, b.gate_up[:n])
    k.gate_rows(b.gate_up[:n], b.gated[:n], eps, x)
    k.project(b.gated[:n], layer.down, x, x)


class FrameBody:
    """One frame of `rows` rows."""

    def __init__(
        self,
        weights: FrameWeights,
        state: TalkerState,
        buffers: FrameBuffers,
        rows: int,
        probe: Probe | None = None,
    ) -> None:
        """Cut the views; nothing runs."""
        self._probe = probe
        self._weights, self._state, self._buffers, self._rows = weights, state, buffers, rows
        self._k = buffers.launches
        self._talker = _TalkerBody(weights, state, buffers, rows)
        self._slots, self._text_ids, self._flags = buffers.inputs[: 3 * rows].view(3, rows)

    def run(self) -> None:
        """Launch the whole frame."""
        w, s, b, n = self._weights, self._state, self._buffers, self._rows
        self._k.begin_frame(
            s.carry, w.text_rows, self._slots, self._text_ids, s.wholes, b.talker.x[:n],
            b.positions[:n],
        )  # fmt: skip
        self._talker.run(append=True)
        self._k.rms_norm_rows(b.talker.x[:n], b.unit[:n], w.talker.config.rms_eps)
        self._k.project(b.unit[:n], w.head, b.logits[:n])
        self._predict()
        self._k.end_frame(
            b.codes[:n], w.code_rows, self._slots, s.carry, s.wholes, w.num_codes, s.last_position
        )

    def _predict(self) -> None:
        """Choose all codes: two rows a stream at first, then one for each code."""
        w, b, n = self._weights, self._buffers, self._rows
        pairs = b.pairs[: 2 * n].view(n, 2, -1)
        self._k.project(b.unit[:n], w.project, pairs[:, 0], w.project_bias)
        self._choose(0, b.logits[:n], pairs[:, 1], None)
        self._pass(b.pairs[: 2 * n], position=0, new_rows=2)
        self._head(1, pairs[:, 1])
        for book in range(2, CODEBOOKS):
            self._pass(b.predictor.x[:n], position=book, new_rows=1)
            self._head(book, b.predictor.x[:n])

    def _pass(self, x: Tensor, position: int, new_rows: int) -> None:
        """Run the predictor over one position of every row, or over the first two."""
        stack, b, k = self._weights.predictor, self._buffers, self._k
        c, p, n = stack.config, self._buffers.predictor, x.shape[0]
        for index, layer in enumerate(stack.layers):
            k.project(x, layer.qkv, p.qkv[:n])
            k.predictor_attention(
                p.qkv[:n], b.own_cache[index, : self._rows], layer.norms, stack.rope, p.mixed[:n],
                position, new_rows, c.rms_eps, x,
            )  # fmt: skip
            finish_layer(layer, p, x, c.rms_eps, k)

    def _head(self, book: int, x: Tensor) -> None:
        """Score codebook `book` from rows x and choose it; its input row becomes the next x."""
        b, logits = self._buffers, self._buffers.own_logits[: self._rows]
        self._k.project(x, self._weights.heads[book - 1], logits)
        into = b.predictor.x[: self._rows] if book < CODEBOOKS - 1 else None
        self._choose(book, logits, into, x)

    def _choose(
        self, book: int, logits: Tensor, into: Tensor | None, source: Tensor | None
    ) -> None:
        w, s, b = self._weights, self._state, self._buffers
        if self._probe is not None:  # first: the row chosen next may replace `source`
            self._show(self._probe, book, logits, source)
        self._k.choose_codes(
            logits, self._slots, self._flags, s.reals, s.wholes, s.seen, b.codes[: self._rows],
            book, w.num_codes, MIN_FRAMES, w.inputs[book] if into is not None else None, into,
            source, w.predictor.config.rms_eps,
        )  # fmt: skip
        if self._probe is not None:
            told = self._probe.told[:, book]
            b.codes[: self._rows, book].copy_(told)
            if into is not None:
                into.copy_(w.inputs[book][told.long()])

    def _show(self, probe: Probe, book: int, logits: Tensor, source: Tensor | None) -> None:
        """Note the logits of one codebook, with the norm scale that the sampler applies."""
        wide = logits[:, : self._weights.num_codes].float()
        if source is not None:
            mean_square = source.float().square().mean(1, keepdim=True)
            wide = wide * torch.rsqrt(mean_square + self._weights.predictor.config.rms_eps)
        probe.scores[book].copy_(wide)


class PromptBody:
    """Prompt rows through the talker for their keys and values; several rows a slot.

    The caller fills `x`, `slots` and `positions`; padding rows are slot 0 at position 0.
    """

    def __init__(
        self, weights: FrameWeights, state: TalkerState, buffers: FrameBuffers, rows: int
    ) -> None:
        """Cut the views; nothing runs."""
        self._talker = _TalkerBody(weights, state, buffers, rows)
        self.x = buffers.talker.x[:rows]
        self.slots, self.positions = self._talker.slots, self._talker.positions

    def run(self) -> None:
        """Launch all layers."""
        self._talker.run(append=False)
