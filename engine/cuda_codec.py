"""The body of a codec graph: n new frames of each of R streams to samples, state in place.

    codes ─▶ look-up ─▶ conv 3 ─▶ transformer ─▶ 2 x (up 2, depthwise block) ─▶ conv 7
          ─▶ 4 x (snake, up r, 3 residual units) ─▶ snake, conv 7 ─▶ samples

Every convolution has a held buffer of its own in the arena, so one launch loads all pasts of the
batch and one stores them back. Each snake runs in the epilogue of what writes its input.
"""

import torch
from torch import Tensor

from playhead.engine.cuda_state import Arena, CodecState, Past, past_blocks
from playhead.engine.cuda_weights import (
    LAYER_NORM_EPS,
    BlockWeights,
    CodecWeights,
    UnitWeights,
    UpWeights,
)
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES
from playhead.kernels import conv
from playhead.kernels.conv import ConvWeight, Rows, Snake
from playhead.kernels.launches import TRITON, Launches


def held_values(weights: CodecWeights, pasts: list[Past], streams: int, frames: int) -> int:
    """Return the arena values that R streams of n frames need."""
    new_rows = _rows_per_frame(weights)
    held = sum(
        streams * (p.num_rows + rows * frames) * p.channels
        for p, rows in zip(pasts, new_rows, strict=True)
    )
    return held + 2 * streams * frames * _widest(weights)


def _rows_per_frame(weights: CodecWeights) -> list[int]:
    """Return how many new rows a frame has at each convolution with a past, in order."""
    rows, out = 1, [1]
    for ratio in weights.config.upsample_ratios:
        rows *= ratio
        out.append(rows)
    out.append(rows)
    for block in weights.blocks:
        out.append(rows)
        rows *= block.rate
        out += [rows] * len(block.units)
    return [*out, rows]


def _widest(weights: CodecWeights) -> int:
    """Return the values of the largest buffer without a past, for one frame."""
    c = weights.config
    rows = 1
    for ratio in c.upsample_ratios:
        rows *= ratio
    sizes, width = [4 * c.latent * rows], c.decoder_width
    for block in weights.blocks:
        rows, width = rows * block.rate, width // 2
        sizes.append(rows * width)
    return max(sizes)


class CodecBody:
    """One call of R streams with n frames each."""

    def __init__(
        self, weights: CodecWeights, state: CodecState, arena: Arena, streams: int, frames: int,
        codes: Tensor, slots: Tensor, samples: Tensor, record: Tensor,
        launches: Launches = TRITON,
    ) -> None:  # fmt: skip
        """Cut the buffers, which all calls share: `codes` and `slots` int32, `samples` fp32, flat.

        `record` int16 takes what goes to the host: samples as PCM, then one value a stream that
        is not 0 where some sample was not a number.
        """
        self._weights, self._state, self._arena = weights, state, arena
        self._streams, self._frames, self._k = streams, frames, launches
        self._codes = codes[: streams * frames * CODEBOOKS].view(streams, frames, CODEBOOKS)
        self._slots = slots[:streams]
        num = streams * frames
        self.samples = samples[: num * FRAME_SAMPLES].view(streams, frames * FRAME_SAMPLES)
        num_samples = num * FRAME_SAMPLES
        self.record = record[: num_samples + streams]
        self._pcm = self.record[:num_samples].view(streams, frames * FRAME_SAMPLES)
        self._broken = self.record[num_samples:]
        self._held: list[Rows] = []
        self._blocks = self._place()
        self._spare_at = held_values(weights, state.pasts_of, streams, frames)
        self._spare_at -= 2 * num * _widest(weights)
        c = weights.config.stack
        like = arena.values
        self._x, self._y = like.new_empty(2, num, c.hidden)
        self._qkv = like.new_empty(num, 3 * c.num_heads * c.head_dim)
        self._mixed = like.new_empty(num, c.num_heads * c.head_dim)
        self._gate_up = like.new_empty(num, 2 * c.intermediate)
        self._gated = like.new_empty(num, c.intermediate)

    def _place(self) -> Tensor:
        """Give each convolution its held buffer; return the table of pasts."""
        places: list[tuple[Past, int, int]] = []
        at = 0
        per_frame = _rows_per_frame(self._weights)
        for past, rows in zip(self._state.pasts_of, per_frame, strict=True):
            num_rows = past.num_rows + rows * self._frames
            buffer = self._arena.cut(at, self._streams, num_rows, past.channels)
            self._held.append(Rows(buffer, past.num_rows))
            places.append((past, at, num_rows * past.channels))
            at += buffer.numel()
        return past_blocks(places, self._arena.values.device)

    def _spare(self, which: int, num_rows: int, channels: int) -> Rows:
        """Return one of the two buffers without a past as rows [R, num_rows, channels]."""
        size = self._streams * self._frames * _widest(self._weights)
        at = self._spare_at + which * size
        return Rows(self._arena.cut(at, self._streams, num_rows, channels), 0)

    def run(self) -> None:
        """Launch the whole call."""
        w, s = self._weights, self._state
        held = iter(self._held)
        self._k.move_pasts(
            s.pasts, self._arena.values, self._blocks, self._slots, s.frames, store=False
        )
        first = next(held)
        self._k.look_up(self._codes, w.tables, first.start, first.stride, w.config.num_codes)
        rows = self._transform(first)
        held_ups = [next(held) for _ in w.ups]
        entry = next(held)
        for index, (up, buffer) in enumerate(zip(w.ups, held_ups, strict=True)):
            rows = self._up(rows, up, buffer, entry if index + 1 == len(w.ups) else None)
        into = next(held)
        self._conv(entry, w.first, curved=into, snake=w.blocks[0].entry)
        for index, block in enumerate(w.blocks):
            following = w.blocks[index + 1].entry if index + 1 < len(w.blocks) else w.exit
            units = [next(held) for _ in block.units]
            into = self._block(into, block, units, next(held), following)
        self._k.last_conv(into, w.last, w.last_bias, self.samples)
        self._broken.copy_(self.samples.isfinite().all(1).logical_not_())
        self._pcm.copy_((self.samples * 32767.0).round_().clamp_(-32768.0, 32767.0))
        self._k.move_pasts(
            s.pasts, self._arena.values, self._blocks, self._slots, s.frames, store=True
        )
        self._k.count_frames(self._slots, s.frames, self._frames)

    def _conv(
        self,
        held: Rows,
        weight: ConvWeight,
        plain: Rows | None = None,
        curved: Rows | None = None,
        snake: Snake | None = None,
        residual: Rows | None = None,
        act: int = conv.NONE,
    ) -> None:
        scratch = self._arena.scratch
        self._k.causal_conv(held, weight, plain, curved, snake, residual, act, scratch=scratch)

    def _transform(self, first: Rows) -> Rows:
        """Run the windowed transformer; return its unit-norm rows."""
        w, s, c = self._weights, self._state, self._weights.config.stack
        x = Rows(self._x.view(self._streams, self._frames, -1), 0)
        self._conv(first, w.entry, plain=x)
        for index, layer in enumerate(w.transformer.layers):
            self._k.project(self._x, layer.qkv, self._qkv)
            self._k.ring_attention(
                self._qkv, self._x, s.ring, index, self._slots, s.frames, w.transformer.rope,
                self._mixed, self._frames, c.rms_eps,
            )  # fmt: skip
            # Sums go into their own addend: the library copies one that is apart first.
            self._k.project(self._mixed, layer.out, self._x, self._x)
            self._k.project(self._x, layer.gate_up, self._gate_up)
            self._k.gate_rows(self._gate_up, self._gated, c.rms_eps, self._x)
            self._k.project(self._gated, layer.down, self._x, self._x)
        self._k.rms_norm_rows(self._x, self._y, c.rms_eps)
        return Rows(self._y.view(self._streams, self._frames, -1), 0)

    def _up(self, rows: Rows, up: UpWeights, held: Rows, out: Rows | None) -> Rows:
        """Upsample rows into a held buffer and run the depthwise block over it, into `out`."""
        _, num_rows, channels = held.new.shape
        self._conv(rows, up.up, plain=held)
        mixed = self._spare(0, num_rows, channels)
        carried = Rows(torch.empty_like(mixed.buffer), 0)
        self._k.mix_depthwise(
            held, up.depthwise, up.depthwise_bias, up.narrow_bias, carried, mixed, LAYER_NORM_EPS
        )
        wide = self._spare(1, num_rows, up.widen.matrix.shape[1])
        self._conv(mixed, up.widen, plain=wide, act=conv.GELU)
        self._conv(wide, up.narrow, plain=out or mixed, residual=carried)
        return out or mixed

    def _block(
        self, held: Rows, block: BlockWeights, units: list[Rows], following: Rows, snake: Snake
    ) -> Rows:
        """Upsample snake'd rows and run the residual units; return the next held buffer."""
        _, num_rows, channels = units[0].new.shape
        stream = self._spare(0, num_rows, channels)
        # The launch sees r * D outputs an input row; the memory is the same.
        self._conv(held, block.up, stream, units[0], block.units[0].entry)
        for index, unit in enumerate(block.units):
            if index + 1 == len(block.units):
                self._unit(unit, units[index], stream, following, snake, keep=False)
            else:
                entry = block.units[index + 1].entry
                self._unit(unit, units[index], stream, units[index + 1], entry, keep=True)
        return following

    def _unit(
        self, unit: UnitWeights, held: Rows, stream: Rows, target: Rows, snake: Snake, keep: bool
    ) -> None:
        """Run one residual unit: `stream` is read and, with `keep`, replaced."""
        _, num_rows, channels = stream.buffer.shape
        middle = self._spare(1, num_rows, channels)
        self._conv(held, unit.first, curved=middle, snake=unit.middle)
        self._conv(middle, unit.second, stream if keep else None, target, snake, residual=stream)
