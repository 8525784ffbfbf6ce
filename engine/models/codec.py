"""The causal codec: frames of 16 codes in, 1920 samples a frame out, with carried state.

Everything runs channels last, [B, T, C]. A causal convolution is a copy of its windows and one
matrix product (measured on CPU as fast as the library's convolution at the published sizes and
faster at small ones); a transposed convolution of kernel 2r and stride r is a causal one of
kernel 2 with r * D outputs, so its state is one past row instead of an overlap of outputs.
Always fp32 (fp64 in tests).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.engine.models.config import CodecConfig
from playhead.engine.models.layers import Attend, Stack, stack_shapes
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES
from playhead.kernels import snake

_DILATIONS = (1, 3, 9)
_KERNEL = 7
_LAYER_NORM_EPS = 1e-6
_MIN_USAGE = 1e-5
_SNAKE_EPS = 1e-9
_SNAKE_LANES = 256
"""Snake parameters are repeated to at least this many values: short rows vectorise badly."""
_TRANSFORMER = "decoder.pre_transformer"


def codec_shapes(config: CodecConfig) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every decoder tensor of a speech tokenizer."""
    c, half = config, config.codebook_width // 2
    shapes: dict[str, tuple[int, ...]] = {}

    def conv(name: str, *shape: int, outputs: int | None = None) -> None:
        shapes[f"{name}.weight"] = shape
        shapes[f"{name}.bias"] = (shape[0] if outputs is None else outputs,)

    def act(name: str, channels: int) -> None:
        shapes[f"{name}.alpha"] = shapes[f"{name}.beta"] = (channels,)

    for group, count in (("rvq_first", 1), ("rvq_rest", CODEBOOKS - 1)):
        for i in range(count):
            book = f"decoder.quantizer.{group}.vq.layers.{i}._codebook"
            shapes[f"{book}.embedding_sum"] = (c.num_codes, half)
            shapes[f"{book}.cluster_usage"] = (c.num_codes,)
        shapes[f"decoder.quantizer.{group}.output_proj.weight"] = (c.codebook_width, half, 1)
    conv("decoder.pre_conv.conv", c.latent, c.codebook_width, 3)
    conv(f"{_TRANSFORMER}.input_proj", c.stack.hidden, c.latent)
    conv(f"{_TRANSFORMER}.output_proj", c.latent, c.stack.hidden)
    shapes |= stack_shapes(_TRANSFORMER, c.stack, head_norm=False, layer_scale=True)
    for i, ratio in enumerate(c.upsample_ratios):
        part = f"decoder.upsample.{i}"
        conv(f"{part}.0.conv", c.latent, c.latent, ratio)
        conv(f"{part}.1.dwconv.conv", c.latent, 1, _KERNEL)
        conv(f"{part}.1.norm", c.latent)
        conv(f"{part}.1.pwconv1", 4 * c.latent, c.latent)
        conv(f"{part}.1.pwconv2", c.latent, 4 * c.latent)
        shapes[f"{part}.1.gamma"] = (c.latent,)
    conv("decoder.decoder.0.conv", c.decoder_width, c.latent, _KERNEL)
    width = c.decoder_width
    for i, rate in enumerate(c.decoder_rates):
        part = f"decoder.decoder.{i + 1}.block"
        act(f"{part}.0", width)
        conv(f"{part}.1.conv", width, width // 2, 2 * rate, outputs=width // 2)
        width //= 2
        for unit in range(2, 2 + len(_DILATIONS)):
            for number, kernel in ((1, _KERNEL), (2, 1)):
                act(f"{part}.{unit}.act{number}", width)
                conv(f"{part}.{unit}.conv{number}.conv", width, width, kernel)
    last = len(c.decoder_rates) + 1
    act(f"decoder.decoder.{last}", width)
    conv(f"decoder.decoder.{last + 1}.conv", 1, width, _KERNEL)
    return shapes


@dataclass(slots=True)
class CodecState:
    """What each slot carries from one call to the next; slot-major."""

    pasts: list[Tensor]
    """Per convolution [slots, rows, channels]: its last inputs, zeros at the start."""
    kv: Tensor
    """[layers, slots, k heads + v heads, window - 1, D], oldest first, right-aligned."""
    frames: list[int]
    """Frames decoded so far: rotary position, and how much of `kv` is there."""

    def reset(self, slot: int) -> None:
        """Forget a slot's past."""
        for past in self.pasts:
            past[slot].zero_()
        self.frames[slot] = 0

    def read(self, slot: int) -> Tensor:
        """Copy a slot's past out, flat."""
        return torch.cat([part.flatten() for part in self._parts(slot)])

    def write(self, slot: int, values: Tensor, num_frames: int) -> None:
        """Put a past that `read` took behind `num_frames` frames into a slot."""
        parts = self._parts(slot)
        sizes = [part.numel() for part in parts]
        for part, value in zip(parts, torch.split(values, sizes), strict=True):
            part.copy_(value.view(part.shape))
        self.frames[slot] = num_frames

    def _parts(self, slot: int) -> list[Tensor]:
        return [*(past[slot] for past in self.pasts), self.kv[:, slot]]


Slots = slice | Tensor
"""One slot or a run of them as a slice (a view, no copy), or any slots as indices."""
_Step = Callable[[Tensor, CodecState, Slots], Tensor]
"""[B, T, C] in, [B, T', C'] out; reads and writes the slots' state."""


class Codec:
    """Decoder weights, folded at load, as a list of steps over rows."""

    def __init__(self, config: CodecConfig, weights: dict[str, Tensor]) -> None:
        """Fold tables, scales and exponentials; weights keep the dtype they come in."""
        self.config = config
        self._weights = weights
        self._past_shapes: list[tuple[int, int]] = []
        self._tables = self._fold_tables()
        self._offset = torch.arange(CODEBOOKS, device=self._tables.device) * config.num_codes
        self._pre_conv = self._conv("decoder.pre_conv.conv")
        self._stack = Stack(config.stack, weights, _TRANSFORMER)
        self._project_in = self._linear(f"{_TRANSFORMER}.input_proj")
        self._project_out = self._linear(f"{_TRANSFORMER}.output_proj")
        self._steps = self._build_steps()
        self._weights = {}

    # -- state

    def new_state(self, num_slots: int) -> CodecState:
        """Return fresh state for `num_slots` streams."""
        c, like = self.config, self._tables
        stack = c.stack
        heads = stack.num_kv_heads * 2
        shape = (stack.num_layers, num_slots, heads, c.window_frames - 1, stack.head_dim)
        return CodecState(
            pasts=[like.new_zeros(num_slots, *shape) for shape in self._past_shapes],
            kv=like.new_zeros(shape),
            frames=[0] * num_slots,
        )

    # -- decoding

    def decode(self, codes: Tensor, state: CodecState, slots: Sequence[int]) -> Tensor:
        """Decode the next n frames of each slot: codes [B, n, 16] int64 -> samples [B, n * 1920].

        Slots must differ; their states move on by n frames.
        """
        batch, num_frames, _ = codes.shape
        at: Slots = slice(slots[0], slots[0] + 1)
        if batch > 1:
            at = torch.tensor(slots, device=codes.device)
        x = self._tables.index_select(0, (codes + self._offset).view(-1))
        x = self._pre_conv(x.view(batch, num_frames, CODEBOOKS, -1).sum(2), state, at)
        x = self._transform(x, state, at, slots)
        for slot in slots:
            state.frames[slot] += num_frames
        for step in self._steps:
            x = step(x, state, at)
        return x.view(batch, num_frames * FRAME_SAMPLES).clamp_(-1.0, 1.0)

    def _transform(self, x: Tensor, state: CodecState, at: Slots, slots: Sequence[int]) -> Tensor:
        batch, num_frames, _ = x.shape
        starts = torch.tensor([state.frames[s] for s in slots], device=x.device)
        positions = (starts[:, None] + torch.arange(num_frames, device=x.device)).view(-1)
        cos, sin = self._stack.rope_tables(positions)
        past = self.config.window_frames - 1
        valid = [min(state.frames[s], past) for s in slots]
        attend = self._attend(state, at, num_frames, valid)
        rows = self._project_in(x.view(batch * num_frames, -1))
        rows = self._project_out(self._stack.final(self._stack.run(rows, cos, sin, attend)))
        return rows.view(batch, num_frames, -1)

    def _attend(self, state: CodecState, at: Slots, num_new: int, valid: Sequence[int]) -> Attend:
        """Return windowed attention over each slot's last window - 1 frames and the new ones."""
        num_heads = self.config.stack.num_heads
        num_kv = self.config.stack.num_kv_heads
        window, device = self.config.window_frames, state.kv.device
        num_past = window - 1
        skip = num_past - max(valid)
        mask = None
        if num_new > 1 or min(valid) < max(valid):
            # Key c of past + new is seen by query i when i <= c <= past + i, if it exists.
            key = torch.arange(skip, num_past + num_new, device=device)
            query = torch.arange(num_new, device=device)[:, None]
            exists = key >= num_past - torch.tensor(valid, device=device)[:, None]
            mask = (key >= query) & (key <= query + num_past) & exists[:, None, None, :]

        def attend(layer: int, heads: Tensor) -> Tensor:
            new = heads.view(len(valid), num_new, *heads.shape[1:]).transpose(1, 2)
            held = torch.cat([state.kv[layer, at], new[:, num_heads:]], 2)
            state.kv[layer, at] = held[:, :, -num_past:]
            held = held[:, :, skip:]
            mixed = F.scaled_dot_product_attention(
                new[:, :num_heads],
                held[:, :num_kv],
                held[:, num_kv:],
                attn_mask=mask,
                enable_gqa=num_heads != num_kv,
            )
            return mixed.transpose(1, 2).reshape(heads.shape[0], -1)

        return attend

    # -- folding weights into steps

    def _fold_tables(self) -> Tensor:
        """Return all codebooks as output rows [16 * num_codes, codebook_width]."""
        tables = []
        for group, count in (("rvq_first", 1), ("rvq_rest", CODEBOOKS - 1)):
            part = f"decoder.quantizer.{group}"
            project = self._weights[f"{part}.output_proj.weight"][:, :, 0].T
            for i in range(count):
                total = self._weights[f"{part}.vq.layers.{i}._codebook.embedding_sum"]
                usage = self._weights[f"{part}.vq.layers.{i}._codebook.cluster_usage"]
                tables.append((total / usage.clamp(min=_MIN_USAGE)[:, None]) @ project)
        return torch.cat(tables)

    def _linear(self, name: str) -> Callable[[Tensor], Tensor]:
        weight = self._weights[f"{name}.weight"].T.contiguous()
        bias = self._weights[f"{name}.bias"]
        return lambda rows: torch.addmm(bias, rows, weight)

    def _past(self, num_rows: int, channels: int) -> int:
        """Reserve carried rows; return their index in CodecState.pasts."""
        self._past_shapes.append((num_rows, channels))
        return len(self._past_shapes) - 1

    def _causal(self, weight: Tensor, bias: Tensor, dilation: int = 1) -> _Step:
        """Return a causal convolution of weight [D, C, k]."""
        outputs, channels, kernel = weight.shape
        matrix = weight.permute(2, 1, 0).reshape(kernel * channels, outputs).contiguous()
        if kernel == 1:
            return lambda x, state, at: torch.addmm(bias, x.view(-1, channels), matrix).view(
                x.shape[0], x.shape[1], outputs
            )
        index = self._past((kernel - 1) * dilation, channels)

        def step(x: Tensor, state: CodecState, at: Slots) -> Tensor:
            held, num_rows = _extend(x, state.pasts[index], at), x.shape[1]
            windows = _windows(held, num_rows, kernel, dilation).reshape(-1, kernel * channels)
            return torch.addmm(bias, windows, matrix).view(x.shape[0], num_rows, outputs)

        return step

    def _conv(self, name: str, dilation: int = 1) -> _Step:
        return self._causal(
            self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], dilation
        )

    def _up(self, name: str, rate: int) -> _Step:
        """Return a transposed convolution of stride `rate` and kernel rate or 2 * rate."""
        weight = self._weights[f"{name}.weight"]  # [in, out, k]
        inputs, outputs, kernel = weight.shape
        # Tap j of the causal form (newest last) holds outputs [r, D] of input t - (k / r - 1 - j).
        taps = weight.view(inputs, outputs, kernel // rate, rate).flip(2)
        causal = taps.permute(3, 1, 0, 2).reshape(rate * outputs, inputs, kernel // rate)
        conv = self._causal(causal, self._weights[f"{name}.bias"].repeat(rate))
        return lambda x, state, at: conv(x, state, at).view(x.shape[0], -1, outputs)

    def _snake(self, name: str, num_rows: int) -> Callable[[Tensor], Tensor]:
        """Return a snake for inputs of a multiple of `num_rows` rows a frame."""
        alpha = self._weights[f"{name}.alpha"].exp()
        inverse_beta = 1.0 / (self._weights[f"{name}.beta"].exp() + _SNAKE_EPS)
        wanted = math.ceil(_SNAKE_LANES / alpha.numel())
        repeat = next(n for n in range(wanted, num_rows + 1) if num_rows % n == 0)
        alpha, inverse_beta = alpha.repeat(repeat), inverse_beta.repeat(repeat)
        lanes = alpha.numel()
        return lambda x: snake(x.view(-1, lanes), alpha, inverse_beta).view(x.shape)

    def _conv_next(self, name: str) -> _Step:
        """Return the residual block between the upsampling convolutions."""
        w, channels = self._weights, self.config.latent
        index = self._past(_KERNEL - 1, channels)
        depthwise = w[f"{name}.dwconv.conv.weight"][:, 0].T.contiguous()  # [k, C]
        depthwise_bias = w[f"{name}.dwconv.conv.bias"]
        norm, norm_bias = w[f"{name}.norm.weight"], w[f"{name}.norm.bias"]
        widen = self._linear(f"{name}.pwconv1")
        gamma = w[f"{name}.gamma"]
        narrow = (w[f"{name}.pwconv2.weight"].T * gamma).contiguous()
        narrow_bias = w[f"{name}.pwconv2.bias"] * gamma

        def step(x: Tensor, state: CodecState, at: Slots) -> Tensor:
            held = _extend(x, state.pasts[index], at)
            mixed = (_windows(held, x.shape[1], _KERNEL, 1) * depthwise).sum(2).add_(depthwise_bias)
            rows = mixed.view(-1, channels)
            rows = F.layer_norm(rows, (channels,), norm, norm_bias, _LAYER_NORM_EPS)
            rows = torch.addmm(narrow_bias, F.gelu(widen(rows)), narrow)
            return rows.view(x.shape).add_(x)

        return step

    def _residual(self, name: str, dilation: int, num_rows: int) -> _Step:
        first = self._snake(f"{name}.act1", num_rows)
        conv1 = self._conv(f"{name}.conv1.conv", dilation)
        second = self._snake(f"{name}.act2", num_rows)
        conv2 = self._conv(f"{name}.conv2.conv")

        def step(x: Tensor, state: CodecState, at: Slots) -> Tensor:
            h = second(conv1(first(x), state, at))
            return conv2(h, state, at).add_(x)

        return step

    def _build_steps(self) -> list[_Step]:
        """Return everything after the transformer, in order."""
        c = self.config
        steps: list[_Step] = []
        num_rows = 1
        for i, ratio in enumerate(c.upsample_ratios):
            steps.append(self._up(f"decoder.upsample.{i}.0.conv", ratio))
            steps.append(self._conv_next(f"decoder.upsample.{i}.1"))
            num_rows *= ratio
        steps.append(self._conv("decoder.decoder.0.conv"))
        for i, rate in enumerate(c.decoder_rates):
            block = f"decoder.decoder.{i + 1}.block"
            steps.append(_stateless(self._snake(f"{block}.0", num_rows)))
            steps.append(self._up(f"{block}.1.conv", rate))
            num_rows *= rate
            for unit, dilation in enumerate(_DILATIONS, start=2):
                steps.append(self._residual(f"{block}.{unit}", dilation, num_rows))
        last = len(c.decoder_rates) + 1
        steps.append(_stateless(self._snake(f"decoder.decoder.{last}", num_rows)))
        steps.append(self._conv(f"decoder.decoder.{last + 1}.conv"))
        return steps


def _stateless(function: Callable[[Tensor], Tensor]) -> _Step:
    return lambda x, state, at: function(x)


def _extend(x: Tensor, past: Tensor, at: Slots) -> Tensor:
    """Put the slots' past rows before x [B, T, C]; keep the newest rows as their past."""
    held = torch.cat([past[at], x], 1)
    past[at] = held[:, -past.shape[1] :]
    return held


def _windows(held: Tensor, num_rows: int, kernel: int, dilation: int) -> Tensor:
    """View rows [B, P + T, C] as causal windows [B, T, kernel, C] without a copy."""
    batch, _, channels = held.shape
    return held.as_strided(
        (batch, num_rows, kernel, channels),
        (held.stride(0), channels, dilation * channels, 1),
    )
