"""The talker: text and codes in, one hidden state and codebook-0 scores a frame out.

Holds the tables both models share (text rows, codec rows, the predictor's code rows) and the
slot-major key/value store of its own stack. Plain torch, any device, no knowledge of requests.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.engine.models.config import ModelConfig
from playhead.engine.models.layers import Attend, Stack, stack_shapes
from playhead.engine.units import CODEBOOKS

if TYPE_CHECKING:
    from playhead.engine.models.prompt import Prompt

_PREFIX = "talker.model"
_PREDICTOR_TABLE = "talker.code_predictor.model.codec_embedding"
TEXT_TABLE_BYTES = 64 << 20
"""Project the whole text vocabulary at load when the result is no larger than this."""


def talker_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every talker tensor of a checkpoint."""
    hidden, text = config.talker.hidden, config.text_hidden
    shapes: dict[str, tuple[int, ...]] = {
        f"{_PREFIX}.text_embedding.weight": (config.text_vocab, text),
        f"{_PREFIX}.codec_embedding.weight": (config.codec_vocab, hidden),
        "talker.text_projection.linear_fc1.weight": (text, text),
        "talker.text_projection.linear_fc1.bias": (text,),
        "talker.text_projection.linear_fc2.weight": (hidden, text),
        "talker.text_projection.linear_fc2.bias": (hidden,),
        "talker.codec_head.weight": (config.codec_vocab, hidden),
    }
    return shapes | stack_shapes(_PREFIX, config.talker, head_norm=True, layer_scale=False)


class TalkerCache:
    """Keys and values of every slot: [layers, slots, k heads + v heads, positions, D]."""

    def __init__(self, config: ModelConfig, num_slots: int, max_positions: int, like: Tensor):
        """Reserve room for `num_slots` sequences; memory is touched only as rows are written."""
        c = config.talker
        self._num_heads, self._num_kv = c.num_heads, c.num_kv_heads
        shape = (c.num_layers, num_slots, 2 * c.num_kv_heads, max_positions, c.head_dim)
        self.store = torch.empty(shape, dtype=like.dtype, device=like.device)

    def _views(self, slot: int, length: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return each layer's keys and values [1, kv heads, length, D] of one slot."""
        held = self.store[:, slot, :, :length].unsqueeze(1)
        keys, values = held[:, :, : self._num_kv], held[:, :, self._num_kv :]
        return keys.unbind(0), values.unbind(0)

    def attend_steps(self, slots: Sequence[int], positions: Sequence[int]) -> Attend:
        """Return the attention of one new row in each of the given slots.

        Rows attend one by one: on CPU that beats gathering keys of unequal length into a mask.
        """
        num_heads = self._num_heads
        views = [self._views(s, p + 1) for s, p in zip(slots, positions, strict=True)]
        cells = [self.store[:, s, :, p].unbind(0) for s, p in zip(slots, positions, strict=True)]

        def attend(layer: int, heads: Tensor) -> Tensor:
            mixed: list[Tensor] = []
            for row, (keys, values) in enumerate(views):
                cells[row][layer].copy_(heads[row, num_heads:])
                query = heads[row : row + 1, :num_heads].unsqueeze(2)
                mixed.append(
                    F.scaled_dot_product_attention(
                        query, keys[layer], values[layer], enable_gqa=True
                    )
                )
            joined = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
            return joined.view(len(views), -1)

        return attend

    def attend_rows(self, slot: int, start: int, num_rows: int) -> Attend:
        """Return the causal attention of `num_rows` new rows of one slot at `start` and after."""
        end = start + num_rows
        keys, values = self._views(slot, end)
        mask = None
        if start:
            mask = torch.ones(num_rows, end, dtype=torch.bool, device=self.store.device)
            mask = mask.tril(start)

        def attend(layer: int, heads: Tensor) -> Tensor:
            held = self.store[layer, slot, :, start:end]
            held.copy_(heads[:, self._num_heads :].transpose(0, 1))
            query = heads[:, : self._num_heads].transpose(0, 1).unsqueeze(0)
            mixed = F.scaled_dot_product_attention(
                query,
                keys[layer],
                values[layer],
                attn_mask=mask,
                is_causal=mask is None,
                enable_gqa=True,
            )
            return mixed[0].transpose(0, 1).reshape(num_rows, -1)

        return attend

    def read(self, slot: int, length: int) -> Tensor:
        """Copy a slot's first rows out: [layers, k + v heads, length, D]."""
        return self.store[:, slot, :, :length].clone()

    def write(self, slot: int, rows: Tensor) -> None:
        """Put rows taken by `read` at the start of a slot."""
        self.store[:, slot, :, : rows.shape[2]] = rows


class Talker:
    """Talker weights with the tables that turn ids into rows of width `hidden`."""

    def __init__(self, config: ModelConfig, weights: dict[str, Tensor]) -> None:
        """Take the weights out of `weights`, which also holds the code predictor's tables."""
        self.config = config
        self.stack = Stack(config.talker, weights, _PREFIX)
        num_codes, eos = config.num_codes, config.codec_ids.eos
        head = weights["talker.codec_head.weight"]
        # Suppressed ids are never scored: codes 0..num_codes - 1, then end of speech.
        self.head = torch.cat([head[:num_codes], head[eos : eos + 1]]).T.contiguous()
        self.codec_rows = weights[f"{_PREFIX}.codec_embedding.weight"]
        tables = [self.codec_rows[:num_codes]]
        tables += [weights[f"{_PREDICTOR_TABLE}.{g}.weight"] for g in range(CODEBOOKS - 1)]
        self.code_rows = torch.cat(tables)
        """[16 * num_codes, hidden]: the rows a frame's codes add up from."""
        device = self.code_rows.device
        self._code_offset = torch.arange(CODEBOOKS, device=device) * num_codes
        self._embedding = weights[f"{_PREFIX}.text_embedding.weight"]
        self._fc1 = weights["talker.text_projection.linear_fc1.weight"]
        self._fc1_bias = weights["talker.text_projection.linear_fc1.bias"]
        self._fc2 = weights["talker.text_projection.linear_fc2.weight"]
        self._fc2_bias = weights["talker.text_projection.linear_fc2.bias"]
        self._text_rows: Tensor | None = None
        table_bytes = config.text_vocab * config.talker.hidden * head.element_size()
        if table_bytes <= TEXT_TABLE_BYTES:
            self._text_rows = self._project(self._embedding)

    def _project(self, embedded: Tensor) -> Tensor:
        hidden = F.silu(F.linear(embedded, self._fc1, self._fc1_bias))
        return F.linear(hidden, self._fc2, self._fc2_bias)

    def text_rows(self, ids: Tensor) -> Tensor:
        """Return the projected rows [N, hidden] of text ids [N]."""
        if self._text_rows is not None:
            return self._text_rows.index_select(0, ids)
        return self._project(self._embedding.index_select(0, ids))

    def frame_rows(self, codes: Tensor) -> Tensor:
        """Return the sum of the 16 code rows [B, hidden] of frames [B, 16]."""
        flat = (codes + self._code_offset).view(-1)
        return self.code_rows.index_select(0, flat).view(*codes.shape, -1).sum(1)

    def prompt_rows(self, prompt: "Prompt", start: int, end: int) -> Tensor:
        """Return the input rows [end - start, hidden] of a prompt's rows start..end - 1."""
        device = self.code_rows.device
        text = torch.from_numpy(prompt.text_ids[start:end]).to(device)
        codec = torch.from_numpy(prompt.codec_ids[start:end]).to(device)
        x = self.text_rows(text.clamp(min=0)).masked_fill((text < 0)[:, None], 0.0)
        x = x + self.codec_rows[codec.clamp(min=0)].masked_fill((codec < 0)[:, None], 0.0)
        if prompt.speaker is not None and start <= prompt.speaker_row < end:
            x[prompt.speaker_row - start] += torch.from_numpy(prompt.speaker).to(x)
        if prompt.reference is not None and end > prompt.reference_row:
            first = max(start, prompt.reference_row)
            frames = prompt.reference[first - prompt.reference_row : end - prompt.reference_row]
            x[first - start :] += self.frame_rows(
                torch.from_numpy(frames.astype(np.int64)).to(device)
            )
        return x

    def start_row(self, prompt: "Prompt") -> Tensor:
        """Return the row [hidden] that the first frame's text row is added to."""
        if prompt.reference is None:
            return self.codec_rows[self.config.codec_ids.bos]
        last = torch.from_numpy(prompt.reference[-1:].astype(np.int64))
        return self.frame_rows(last.to(self.code_rows.device))[0]

    def run(self, x: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Run rows [N, hidden] at positions [N]; return hidden states [N, hidden], un-normed."""
        cos, sin = self.stack.rope_tables(positions)
        return self.stack.run(x, cos, sin, attend)

    def scores(self, hidden: Tensor) -> Tensor:
        """Return codebook-0 logits [B, num_codes + 1] of final-normed states; last is the end."""
        return torch.mm(hidden, self.head)
