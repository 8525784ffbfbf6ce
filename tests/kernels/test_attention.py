"""Attention kernels against their twins: head norm, rotary, paged writes, splits, folded norms."""

import pytest
import torch
from torch import Tensor

from playhead.kernels import attention, twins_frame
from tests.kernels.interpreter import DEVICE

HEADS, KV_HEADS, DIM, WIDTH, EPS = 4, 2, 32, 48, 1e-6


def _rope(positions: int) -> Tensor:
    angle = torch.arange(positions)[:, None] / 100 ** (torch.arange(DIM // 2) / (DIM // 2))
    return torch.cat([angle.cos(), angle.sin()], 1).to(DEVICE)


def _case(positions: list[int], seed: int = 0) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng).to(DEVICE)

    rows, pages = len(positions), 40
    table = torch.zeros(3, 8, dtype=torch.int64)  # slot 0 is scratch, 1 and 2 own their pages
    table[1], table[2] = torch.randperm(19, generator=rng)[:8] + 1, torch.arange(20, 28)
    return {
        "qkv": draw(rows, (HEADS + 2 * KV_HEADS) * DIM),
        "source": draw(rows, WIDTH) * 3,
        "cache": draw(pages, 2, KV_HEADS, attention.PAGE, DIM),
        "table": table.to(torch.int32).to(DEVICE),
        "slots": torch.arange(2, 2 - rows, -1, dtype=torch.int32).to(DEVICE),
        "positions": torch.tensor(positions, dtype=torch.int32).to(DEVICE),
        "q_norm": draw(DIM),
        "k_norm": draw(DIM),
    }


@pytest.mark.parametrize(
    ("positions", "folded", "split"),
    [([0, 37], False, 256), ([99, 15], True, 32), ([16, 100], False, 32), ([31, 64], True, 256)],
)
def test_paged_attention_matches_twin(
    positions: list[int], folded: bool, split: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "SPLIT", split)
    case, rope = _case(positions), _rope(128)
    source = case["source"] if folded else None
    norms = (case["q_norm"], case["k_norm"])
    mine, theirs = case["cache"].clone(), case["cache"].clone()
    out = torch.full((2, HEADS * DIM), float("nan"), device=DEVICE)
    scratch = attention.SplitScratch(2, HEADS, KV_HEADS, DIM, 128 // split or 1, out)
    attention.paged_attention(
        case["qkv"], mine, case["table"], case["slots"], case["positions"], norms, rope, out,
        scratch, EPS, source, block=16,
    )  # fmt: skip
    q, k, v = twins_frame.rotated_heads(
        case["qkv"], case["positions"], norms, rope, HEADS, EPS, source
    )
    twins_frame.write_kv(k, v, theirs, case["table"], case["slots"], case["positions"])
    wanted = twins_frame.paged_attention(q, theirs, case["table"], case["slots"], case["positions"])
    # fp32 throughout: sums in another order.
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    assert not scratch.arrived.any()


def test_prompt_rows_of_one_slot_see_each_other() -> None:
    case, rope, length = _case([0, 0]), _rope(128), 20
    rng = torch.Generator().manual_seed(3)
    qkv = torch.randn(length, (HEADS + 2 * KV_HEADS) * DIM, generator=rng).to(DEVICE)
    slots = torch.ones(length, dtype=torch.int32, device=DEVICE)
    positions = torch.arange(length, dtype=torch.int32, device=DEVICE)
    norms = (case["q_norm"], case["k_norm"])
    out = torch.full((length, HEADS * DIM), float("nan"), device=DEVICE)
    scratch = attention.SplitScratch(length, HEADS, KV_HEADS, DIM, 1, out)
    mine, theirs = case["cache"].clone(), case["cache"].clone()
    attention.write_kv(qkv, mine, case["table"], slots, positions, norms[1], rope, HEADS, EPS)
    attention.paged_attention(
        qkv, mine, case["table"], slots, positions, norms, rope, out, scratch, EPS, append=False,
        block=16,
    )  # fmt: skip
    q, k, v = twins_frame.rotated_heads(qkv, positions, norms, rope, HEADS, EPS)
    twins_frame.write_kv(k, v, theirs, case["table"], slots, positions)
    wanted = twins_frame.paged_attention(q, theirs, case["table"], slots, positions)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("folded", [False, True])
def test_predictor_attention_matches_twin_over_a_whole_frame(folded: bool) -> None:
    batch, rope = 3, _rope(16)
    rng = torch.Generator().manual_seed(1)
    norms = (torch.randn(DIM, generator=rng).to(DEVICE), torch.randn(DIM, generator=rng).to(DEVICE))
    cache = torch.full((batch, 2, KV_HEADS, 16, DIM), float("nan"), device=DEVICE)
    pages = torch.zeros(batch + 1, 2, KV_HEADS, 16, DIM, device=DEVICE)
    table = torch.arange(batch + 1, dtype=torch.int32, device=DEVICE)[:, None]
    for position, new in [(0, 2), (2, 1), (3, 1), (15, 1)]:
        if position == 15:
            cache[:, :, :, 4:15] = pages[1:, :, :, 4:15]
        qkv = torch.randn(batch * new, (HEADS + 2 * KV_HEADS) * DIM, generator=rng).to(DEVICE)
        source = torch.randn(batch * new, WIDTH, generator=rng).to(DEVICE) if folded else None
        out = torch.full((batch * new, HEADS * DIM), float("nan"), device=DEVICE)
        attention.predictor_attention(qkv, cache, norms, rope, out, position, new, EPS, source)
        at = torch.arange(position, position + new, device=DEVICE).repeat(batch)
        slots = torch.arange(1, batch + 1, device=DEVICE).repeat_interleave(new)
        q, k, v = twins_frame.rotated_heads(qkv, at, norms, rope, HEADS, EPS, source)
        twins_frame.write_kv(k, v, pages, table, slots, at)
        wanted = twins_frame.paged_attention(q, pages, table, slots, at)
        torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-5)
