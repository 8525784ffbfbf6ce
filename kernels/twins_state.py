"""Torch twins of the slot gathers and scatters of frame.py; oracles of their tests."""

import torch
from torch import Tensor


def begin_frame(carry: Tensor, text_rows: Tensor, slots: Tensor, text_ids: Tensor) -> Tensor:
    """Return x [B, H]."""
    return (carry[slots.long()].float() + text_rows[text_ids.long()].float()).to(carry.dtype)


def code_sum(codes: Tensor, code_rows: Tensor, num_codes: int) -> Tensor:
    """Return the sum of the 16 code rows [B, H] of codes [B, 16], added in fp32."""
    offset = torch.arange(codes.shape[1], device=codes.device) * num_codes
    return code_rows[codes.long() + offset].float().sum(1).to(code_rows.dtype)


def copy_prefix(prefix: Tensor, cache: Tensor, page_table_row: Tensor, num_positions: int) -> None:
    """Copy a prefix [layers, pages, 2, kv heads, 16, D] into the pages of one slot."""
    for page in range((num_positions + cache.shape[4] - 1) // cache.shape[4]):
        cache[:, int(page_table_row[page])] = prefix[:, page]
