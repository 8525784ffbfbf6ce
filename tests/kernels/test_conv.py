"""Codec kernels against their twins: convolutions, snake, depthwise mix, pasts, look-up, ring."""

from dataclasses import replace

import pytest
import torch

from playhead.kernels import codec_state, conv, twins_codec
from playhead.kernels.conv import ConvScratch, ConvWeight, Rows, Snake, Tile
from tests.kernels.interpreter import DEVICE

SMALL = Tile(16, 16, 16, 4, 2)


def test_sine_squared_holds_its_error_over_a_wide_range() -> None:
    """Through the epilogue of a 1x1 convolution with the identity: |error| < 2e-6."""
    x = torch.cat([torch.linspace(-4, 4, 256), torch.linspace(-300, 300, 256)]).view(1, 32, 16)
    x = x.to(DEVICE)
    eye, zero, one = torch.eye(16), torch.zeros(16), torch.ones(16)
    out = torch.full_like(x, float("nan"))
    conv.causal_conv(
        Rows(x, 0), ConvWeight(eye.to(DEVICE), zero.to(DEVICE), 1, 1), curved=Rows(out, 0),
        snake=Snake(one.to(DEVICE), one.to(DEVICE)), tile=SMALL,
    )  # fmt: skip
    wanted = x.double() + x.double().sin().square()
    assert (out - wanted).abs().max() < 3e-5  # half an ulp of the sum at 300 is 1.5e-5
    assert (out - wanted)[:, :16].abs().max() < 2e-6


@pytest.mark.parametrize(
    ("taps", "dilation", "channels", "outputs", "act", "splits"),
    [
        (7, 3, 24, 40, 0, 1),
        (2, 1, 32, 24, 0, 2),
        (1, 1, 16, 48, conv.GELU, 1),
        (7, 1, 16, 24, 0, 7),
    ],
)
def test_causal_conv_matches_twin(
    taps: int, dilation: int, channels: int, outputs: int, act: int, splits: int
) -> None:
    streams, num, past = 2, 9, (taps - 1) * dilation
    held = Rows(torch.randn(streams, past + num, channels).to(DEVICE), past)
    matrix = (torch.randn(taps * channels, outputs) / channels**0.5).to(DEVICE)
    weight = ConvWeight(matrix, torch.randn(outputs).to(DEVICE), taps, dilation)
    snake = Snake(torch.rand(outputs).to(DEVICE), torch.rand(outputs).to(DEVICE))
    residual = Rows(torch.randn(streams, num, outputs).to(DEVICE), 0)
    plain = Rows(torch.full((streams, num, outputs), float("nan"), device=DEVICE), 0)
    curved = Rows(torch.full((streams, 5 + num, outputs), float("nan"), device=DEVICE), 5)
    tile, scratch = replace(SMALL, splits=splits), ConvScratch(matrix)
    scratch.partial.fill_(float("nan"))
    conv.causal_conv(held, weight, plain, curved, snake, residual, act, tile, scratch)
    assert not scratch.arrived.any()
    wanted = twins_codec.causal_conv(held.buffer, matrix, weight.bias, taps, dilation)
    if act == conv.GELU:
        wanted = torch.nn.functional.gelu(wanted)
    wanted = wanted + residual.buffer
    torch.testing.assert_close(plain.buffer, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        curved.new, twins_codec.snake(wanted, snake.alpha, snake.inverse_beta), rtol=1e-4, atol=1e-5
    )
    assert curved.buffer[:, :5].isnan().all()


def test_depthwise_mix_and_last_conv_match_twins() -> None:
    held = Rows(torch.randn(2, 6 + 5, 24).to(DEVICE), 6)
    weight, bias, extra = torch.randn(7, 24), torch.randn(24), torch.randn(24)
    weight, bias, extra = weight.to(DEVICE), bias.to(DEVICE), extra.to(DEVICE)
    out, carried = torch.full((2, 2, 5, 24), float("nan"), device=DEVICE)
    conv.mix_depthwise(held, weight, bias, extra, Rows(carried, 0), Rows(out, 0), 1e-6)
    wanted = twins_codec.mix_depthwise(held.buffer, weight, bias, 1e-6)
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(carried, held.new + extra)
    samples = torch.full((2, 5), float("nan"), device=DEVICE)
    weight = weight / 16
    conv.last_conv(held, weight, bias[:1], samples)
    wanted = twins_codec.causal_conv(held.buffer, weight.view(-1, 1), bias[:1], 7, 1)[..., 0]
    torch.testing.assert_close(samples, wanted.clamp(-1, 1), rtol=1e-4, atol=1e-5)
    assert (samples.abs() == 1).any() and (samples.abs() < 1).any()


@pytest.mark.parametrize("num_new", [2, 9])
def test_pasts_travel_to_the_arena_and_back(num_new: int) -> None:
    shapes, slots = [(6, 8), (3, 500)], torch.tensor([2, 1], dtype=torch.int32, device=DEVICE)
    state = torch.randn(4, sum(p * c for p, c in shapes)).to(DEVICE)
    fresh = state.clone()
    arena = torch.full((2 * sum((p + num_new) * c for p, c in shapes),), float("nan"))
    arena = arena.to(DEVICE)
    table, views, state_at, arena_at = [], [], 0, 0
    for past, channels in shapes:
        stride, size = (past + num_new) * channels, past * channels
        table.append((state_at, arena_at, stride, size))
        views.append(arena[arena_at : arena_at + 2 * stride].view(2, past + num_new, channels))
        state_at, arena_at = state_at + size, arena_at + 2 * stride
    blocks = codec_state.copy_blocks(table, torch.device(DEVICE))
    frames = torch.tensor([0, 0, 5, 0], dtype=torch.int32, device=DEVICE)
    codec_state.move_pasts(state, arena, blocks, slots, frames, store=False)
    at = 0
    for (past, channels), view in zip(shapes, views, strict=True):
        assert torch.equal(view[0, :past].reshape(-1), state[2, at : at + past * channels])
        assert not view[1, :past].any()  # slot 1 has not begun: zeros, whatever it held
        view[:, past:] = torch.randn_like(view[:, past:])
        at += past * channels
    codec_state.move_pasts(state, arena, blocks, slots, frames, store=True)
    for row, slot in enumerate((2, 1)):
        wanted = [v[row, -p:].reshape(-1) for (p, _), v in zip(shapes, views, strict=True)]
        assert torch.equal(state[slot], torch.cat(wanted))
    assert torch.equal(state[[0, 3]], fresh[[0, 3]])


def test_look_up_and_count() -> None:
    tables = torch.randn(16 * 32, 24).to(DEVICE)
    codes = torch.randint(0, 32, (2, 3, 16), dtype=torch.int32).to(DEVICE)
    out = Rows(torch.full((2, 2 + 3, 24), float("nan"), device=DEVICE), 2)
    codec_state.look_up(codes, tables, out.start, out.stride, 32)
    wanted = twins_codec.look_up(codes.cpu(), tables.cpu(), 32)
    torch.testing.assert_close(out.new.cpu(), wanted, rtol=1e-5, atol=1e-5)
    frames = torch.tensor([0, 4, 5], dtype=torch.int32, device=DEVICE)
    codec_state.count_frames(torch.tensor([2, 1], dtype=torch.int32, device=DEVICE), frames, 3)
    assert frames.tolist() == [0, 7, 8]


def test_ring_attention_matches_twin_past_the_window() -> None:
    heads, dim, window, width = 2, 32, 12, 24
    rng = torch.Generator().manual_seed(5)
    ring = torch.full((2, 4, 2, heads, window, dim), float("nan"), device=DEVICE)
    angle = torch.arange(32)[:, None] / 100 ** (torch.arange(dim // 2) / (dim // 2))
    rope = torch.cat([angle.cos(), angle.sin()], 1).to(DEVICE)
    slots = torch.tensor([3, 1], dtype=torch.int32, device=DEVICE)
    frames = torch.zeros(4, dtype=torch.int32, device=DEVICE)
    pasts = [[torch.zeros(0, heads, dim, device=DEVICE)] * 2 for _ in range(2)]
    for num in (1, 4, 8, 3, 1):
        x = torch.randn(2 * num, width, generator=rng).to(DEVICE) * 3
        qkv = torch.randn(2 * num, 3 * heads * dim, generator=rng).to(DEVICE)
        out = torch.full((2 * num, heads * dim), float("nan"), device=DEVICE)
        codec_state.ring_attention(qkv, x, ring, 1, slots, frames, rope, out, num, 1e-5)
        codec_state.count_frames(slots, frames, num)
        scaled = qkv * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
        for row in range(2):
            q, k, v = scaled.view(2, num, 3, heads, dim)[row].unbind(1)
            wanted = twins_codec.ring_attention(
                q.cpu(), k.cpu(), v.cpu(), *(p.cpu() for p in pasts[row]), rope.cpu(), window
            )
            torch.testing.assert_close(
                out.view(2, num, -1)[row].cpu(), wanted, rtol=1e-4, atol=1e-5
            )
            pasts[row] = [torch.cat([pasts[row][0], k]), torch.cat([pasts[row][1], v])]


def test_few_rows_split_the_reduction_and_many_do_not() -> None:
    few = conv.choose_tile(32, 768, 768, 7)
    assert few.splits > 1 and few.rows * few.outputs <= conv.SPLIT_TILE_VALUES
    assert 768 // few.outputs * few.splits <= conv.SPLIT_PROGRAMS
    assert conv.choose_tile(8192, 768, 768, 7).splits == 1
    assert conv.choose_tile(1024, 1536, 1024, 7).rows == 128  # 96 tiles
    assert conv.choose_tile(1024, 768, 768, 7).rows == 64  # 48 would leave most of a device idle
    assert conv.choose_tile(8192, 768, 768, 7, deep=True).num_stages == 4
    assert conv.choose_tile(122_880, 96, 96, 7).outputs == 128  # masked beats narrow tiles
    assert conv.choose_tile(122_880, 96, 96, 1).outputs == 32
    assert conv.choose_splits(12, 84) == 14 and conv.choose_splits(66, 84) == 1
    assert conv.choose_splits(10, 7) == 1  # too short to share
