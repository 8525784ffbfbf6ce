"""Norms, gate, the ends of a frame, joins and prefix copies against their twins."""

import pytest
import torch

from playhead.kernels import frame, norm, reference, twins_frame, twins_state
from playhead.kernels.sampler import FRAME, POSITION, SEGMENT_FRAME
from tests.kernels.interpreter import DEVICE


def test_rms_norm_with_residual_matches_twin() -> None:
    x, residual = torch.randn(2, 3, 48).to(DEVICE)
    weight = torch.randn(48).to(DEVICE)
    out, total = torch.full((2, 3, 48), float("nan"), device=DEVICE)
    norm.rms_norm_rows(x, out, 1e-6, weight, residual, total)
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(out, reference.rms_norm(x + residual, weight, 1e-6))
    norm.rms_norm_rows(x, out, 1e-6)
    torch.testing.assert_close(out, twins_frame.unit_rms(x, 1e-6))


@pytest.mark.parametrize("folded", [False, True])
def test_gate_matches_twin(folded: bool) -> None:
    gate_up = torch.randn(3, 200).to(DEVICE)
    source = (torch.randn(3, 48) * 5).to(DEVICE) if folded else None
    out = torch.full((3, 100), float("nan"), device=DEVICE)
    norm.gate_rows(gate_up, out, 1e-6, source)
    torch.testing.assert_close(
        out, twins_frame.gate_rows(gate_up, 1e-6, source), rtol=1e-5, atol=1e-6
    )


def test_both_ends_of_a_frame_match_twins() -> None:
    slots = torch.tensor([4, 2, 0, 0], dtype=torch.int32, device=DEVICE)
    carry, text_rows = torch.randn(6, 48).to(DEVICE), torch.randn(9, 48).to(DEVICE)
    wholes = torch.randint(0, 99, (6, 8), dtype=torch.int32).to(DEVICE)
    ids = torch.tensor([8, 0, 3, 3], dtype=torch.int32, device=DEVICE)
    x = torch.full((4, 48), float("nan"), device=DEVICE)
    positions = torch.full((4,), -1, dtype=torch.int32, device=DEVICE)
    frame.begin_frame(carry, text_rows, slots, ids, wholes, x, positions)
    assert torch.equal(x, twins_state.begin_frame(carry, text_rows, slots, ids))
    assert torch.equal(positions, wholes[slots.long(), POSITION])
    code_rows = torch.randn(16 * 32, 48).to(DEVICE)
    codes = torch.randint(0, 32, (4, 17), dtype=torch.int32).to(DEVICE)
    codes[3] = codes[2]  # padding rows share scratch slot 0
    before, kept = wholes.clone(), carry.clone()
    frame.end_frame(codes, code_rows, slots, carry, wholes, 32, 60)
    wanted = twins_state.code_sum(codes[:, :16], code_rows, 32)
    torch.testing.assert_close(carry[[4, 2, 0]], wanted[:3], rtol=1e-5, atol=1e-5)
    assert torch.equal(carry[[1, 3, 5]], kept[[1, 3, 5]])
    for slot in (4, 2):
        assert wholes[slot, FRAME] == before[slot, FRAME] + 1
        assert wholes[slot, SEGMENT_FRAME] == before[slot, SEGMENT_FRAME] + 1
        assert wholes[slot, POSITION] == min(before[slot, POSITION] + 1, 60)
    assert torch.equal(wholes[0, [FRAME, SEGMENT_FRAME]], before[0, [FRAME, SEGMENT_FRAME]])
    assert wholes[0, POSITION] == min(before[0, POSITION], 60)


def test_join_sets_up_slots_and_copies_prefixes() -> None:
    carry, seen = torch.randn(5, 48).to(DEVICE), torch.full((5, 4), -1, dtype=torch.int32)
    seen = seen.to(DEVICE)
    wholes = torch.full((5, 8), 7, dtype=torch.int32, device=DEVICE)
    reals = torch.zeros(5, 8, device=DEVICE)
    table = torch.zeros(5, 3, dtype=torch.int32, device=DEVICE)
    codec_frames = torch.full((5,), 9, dtype=torch.int32, device=DEVICE)
    settings = torch.rand(2, 8)
    joiners = torch.zeros(2, frame.JOIN_HEAD + 3, dtype=torch.int32)
    joiners[0, :4] = torch.tensor([3, 1, 20, 0])
    joiners[1, :4] = torch.tensor([2, 0, 9, frame.KEEP_HISTORY])
    joiners[:, 4:12] = torch.arange(16).view(2, 8)
    joiners[:, 12:20] = settings.view(torch.int32)
    joiners[:, 20:] = torch.tensor([[5, 6, 7], [1, 2, 3]])
    joiners, start = joiners.to(DEVICE), torch.randn(48).to(DEVICE)
    frame.join_streams(joiners, start, carry, wholes, reals, seen, table, codec_frames)
    assert torch.equal(carry[[2, 3]], start.expand(2, 48))
    assert wholes[3].tolist() == list(range(8))
    assert wholes[2].tolist() == [8, 9, 10, 11, 7, 13, 14, 15]  # the frame counter goes on
    assert torch.equal(reals[[3, 2]].cpu(), settings)
    assert table[[3, 2]].tolist() == [[5, 6, 7], [1, 2, 3]]
    assert seen[3].tolist() == [0] * 4 and seen[2].tolist() == [-1] * 4
    assert codec_frames.tolist() == [9, 9, 9, 0, 9]
    prefixes = torch.randn(2, 2, 2, 2, 2, 16, 8).to(DEVICE)
    mine = torch.randn(2, 9, 2, 2, 16, 8).to(DEVICE)
    theirs = mine.clone()
    frame.copy_prefixes(joiners, prefixes, mine, 2)
    twins_state.copy_prefix(prefixes[1], theirs, table[3], 20)
    twins_state.copy_prefix(prefixes[0], theirs, table[2], 9)
    assert torch.equal(mine, theirs)
