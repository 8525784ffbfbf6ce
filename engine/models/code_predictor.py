"""The code predictor: from the talker's state and codebook 0 to codebooks 1..15 of a frame.

Fifteen passes of a small stack over at most 16 positions. All rows of a batch are at the same
position, so keys and values live in one scratch block that every frame overwrites.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.engine.models.config import ModelConfig
from playhead.engine.models.layers import Attend, Stack, stack_shapes
from playhead.engine.units import CODEBOOKS

_PREFIX = "talker.code_predictor.model"
_HEAD = "talker.code_predictor.lm_head"
_PROJECTION = "talker.code_predictor.small_to_mtp_projection"

Choose = Callable[[Tensor, int], Tensor]
"""(logits [B, num_codes], codebook) -> codes [B] int64."""


def code_predictor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every code-predictor tensor of a checkpoint."""
    own, wide = config.predictor.hidden, config.talker.hidden
    shapes = stack_shapes(_PREFIX, config.predictor, head_norm=True, layer_scale=False)
    for g in range(CODEBOOKS - 1):
        shapes[f"{_PREFIX}.codec_embedding.{g}.weight"] = (config.num_codes, wide)
        shapes[f"{_HEAD}.{g}.weight"] = (config.num_codes, own)
    if own != wide:
        shapes[f"{_PROJECTION}.weight"] = (own, wide)
        shapes[f"{_PROJECTION}.bias"] = (own,)
    return shapes


class _Scratch:
    """Keys and values of one frame in the making, with the views each pass needs."""

    def __init__(self, predictor: "CodePredictor", batch: int) -> None:
        c = predictor.stack.config
        like = predictor.stack.norm
        shape = (c.num_layers, batch, 2 * c.num_kv_heads, CODEBOOKS, c.head_dim)
        store = torch.zeros(shape, dtype=like.dtype, device=like.device)
        kv, self._num_heads = c.num_kv_heads, c.num_heads
        self._cells = [store[:, :, :, p].unbind(0) for p in range(CODEBOOKS)]
        self._keys = [store[:, :, :kv, : p + 1].unbind(0) for p in range(CODEBOOKS)]
        self._values = [store[:, :, kv:, : p + 1].unbind(0) for p in range(CODEBOOKS)]
        self._batch = batch

    def attend_first(self, layer: int, heads: Tensor) -> Tensor:
        """Attend from positions 0 and 1; heads [2 * B, ...], rows of one sequence together."""
        num_heads, batch = self._num_heads, self._batch
        pairs = heads.view(batch, 2, heads.shape[1], heads.shape[2])
        for position in (0, 1):
            self._cells[position][layer].copy_(pairs[:, position, num_heads:])
        mixed = F.scaled_dot_product_attention(
            pairs[:, :, :num_heads].transpose(1, 2),
            self._keys[1][layer],
            self._values[1][layer],
            is_causal=True,
            enable_gqa=True,
        )
        return mixed.transpose(1, 2).reshape(2 * batch, -1)

    def attend_at(self, position: int) -> Attend:
        """Return the attention of one new row a sequence at `position`."""
        keys, values = self._keys[position], self._values[position]
        cells, num_heads, batch = self._cells[position], self._num_heads, self._batch

        def attend(layer: int, heads: Tensor) -> Tensor:
            cells[layer].copy_(heads[:, num_heads:])
            query = heads[:, :num_heads].unsqueeze(2)
            mixed = F.scaled_dot_product_attention(
                query, keys[layer], values[layer], enable_gqa=True
            )
            return mixed.view(batch, -1)

        return attend


class CodePredictor:
    """Code predictor weights; input tables are projected to its own width at load."""

    def __init__(self, config: ModelConfig, weights: dict[str, Tensor]) -> None:
        """Take the weights out of `weights`, which also holds the talker's codec table."""
        self.config = config
        self.stack = Stack(config.predictor, weights, _PREFIX)
        self._weight = weights.get(f"{_PROJECTION}.weight")
        self._bias = weights.get(f"{_PROJECTION}.bias")
        first = weights["talker.model.codec_embedding.weight"][: config.num_codes]
        rest = (weights[f"{_PREFIX}.codec_embedding.{g}.weight"] for g in range(CODEBOOKS - 2))
        # The last table is read by the talker only (spec section 5).
        self.inputs = [self._project(table) for table in (first, *rest)]
        """Input rows [num_codes, width] of codebooks 0..14."""
        self.heads = [
            weights.pop(f"{_HEAD}.{g}.weight").T.contiguous() for g in range(CODEBOOKS - 1)
        ]
        positions = torch.arange(CODEBOOKS, device=self.stack.norm.device)
        self._cos, self._sin = self.stack.rope_tables(positions)
        self._scratch: dict[int, _Scratch] = {}

    def _project(self, rows: Tensor) -> Tensor:
        return rows if self._weight is None else F.linear(rows, self._weight, self._bias)

    def run(self, hidden: Tensor, first_codes: Tensor, choose: Choose) -> Tensor:
        """Return codes [B, 16] int64 from the talker's final-normed states [B, hidden].

        `first_codes` [B] int64 is codebook 0; `choose` picks each further codebook.
        """
        batch = hidden.shape[0]
        scratch = self._scratch.get(batch)
        if scratch is None:
            scratch = self._scratch[batch] = _Scratch(self, batch)
        stack = self.stack
        start = torch.stack([self._project(hidden), self.inputs[0].index_select(0, first_codes)], 1)
        cos, sin = (table[:2].repeat(batch, 1, 1) for table in (self._cos, self._sin))
        x = stack.run(start.view(2 * batch, -1), cos, sin, scratch.attend_first)
        x = x.view(batch, 2, -1)[:, 1]
        codes = [first_codes]
        for book in range(1, CODEBOOKS):
            codes.append(choose(torch.mm(stack.final(x), self.heads[book - 1]), book))
            if book == CODEBOOKS - 1:
                break
            x = self.inputs[book].index_select(0, codes[book])
            at = book + 1
            x = stack.run(x, self._cos[at : at + 1], self._sin[at : at + 1], scratch.attend_at(at))
        return torch.stack(codes, 1)
