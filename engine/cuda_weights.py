"""Checkpoint weights folded for the captured graphs: fewer launches, the same function.

Norm weights go into the next matrix, predictor input tables are projected to its width, the text
vocabulary is projected once, snake parameters are exponentiated, layer scales and gammas go into
the last matrix of their branch, and chains of linear maps become one. Folding is done in fp32
and rounded once. Pure functions of a weight mapping; any device.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.engine.models.config import CodecConfig, ModelConfig, StackConfig
from playhead.engine.units import CODEBOOKS
from playhead.kernels.conv import ConvWeight, Snake
from playhead.kernels.quantized import Matrix, QuantizedKind, Round, rounding

HEAD_ALIGN = 64
"""Rows of the talker's head are padded to a multiple: an odd row pitch makes a slow product."""
TEXT_CHUNK_ROWS = 16384
LAYER_NORM_EPS = 1e-6
_MIN_USAGE = 1e-5
_SNAKE_EPS = 1e-9
_DILATIONS = (1, 3, 9)
_TRANSFORMER = "decoder.pre_transformer"
_TALKER = "talker.model"
_PREDICTOR = "talker.code_predictor.model"

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; matrices are [out, in] with the norm before them folded in."""

    qkv: Matrix
    out: Matrix
    gate_up: Matrix
    down: Matrix
    norms: tuple[Tensor, Tensor]
    """Head norms of q and k, fp32 [D]; empty where the stack has none."""


@dataclass(frozen=True, slots=True)
class StackWeights:
    """A stack of folded layers."""

    config: StackConfig
    layers: tuple[LayerWeights, ...]
    rope: Tensor
    """[positions, D] fp32: cosines, then sines, rounded to the model's dtype first."""


@dataclass(frozen=True, slots=True)
class FrameWeights:
    """Everything a frame graph reads."""

    talker: StackWeights
    predictor: StackWeights
    num_codes: int
    head: Matrix
    """[padded, H]: codes, then end of speech, then zeros."""
    project: Matrix
    """[Hp, H] from the unit-norm talker state; diagonal where the widths are equal."""
    project_bias: Tensor
    """[Hp]"""
    heads: tuple[Matrix, ...]
    """15 of [num_codes, Hp]"""
    inputs: tuple[Tensor, ...]
    """15 of [num_codes, Hp]: the input rows of codebooks 0..14."""
    code_rows: Tensor
    """[16 * num_codes, H]"""
    text_rows: Tensor
    """[text vocabulary, H]"""
    codec_rows: Tensor
    """[codec vocabulary, H], for prompts."""
    start_row: Tensor
    """[H]: the codec side of the row that the first frame completes."""

    @property
    def num_bytes(self) -> int:
        """Device memory of all of it."""
        storages = [t.untyped_storage() for t in tensors_of(self)]  # rows may be views of a table
        return sum({s._cdata: s.nbytes() for s in storages}.values())


@dataclass(frozen=True, slots=True)
class UpWeights:
    """One upsampling step: a linear map to r rows, then the depthwise block."""

    up: ConvWeight
    depthwise: Tensor
    """[7, C] fp32"""
    depthwise_bias: Tensor
    widen: ConvWeight
    narrow: ConvWeight
    """Its bias is added by the depthwise kernel: the matrix product adds a residual instead."""
    narrow_bias: Tensor


@dataclass(frozen=True, slots=True)
class UnitWeights:
    """A residual unit: snake'd dilated convolution, snake, 1x1 convolution."""

    first: ConvWeight
    middle: Snake
    second: ConvWeight
    entry: Snake
    """The snake before `first`, applied by whatever wrote its input."""


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """One upsampling block of the waveform decoder."""

    entry: Snake
    """The snake before `up`."""
    up: ConvWeight
    rate: int
    units: tuple[UnitWeights, ...]


@dataclass(frozen=True, slots=True)
class CodecWeights:
    """Everything a codec graph reads."""

    config: CodecConfig
    tables: Tensor
    """[16 * num_codes, codebook width]"""
    entry: ConvWeight
    """pre_conv and the transformer's input projection in one."""
    transformer: StackWeights
    ups: tuple[UpWeights, ...]
    """The transformer's final norm weight and output projection are part of the first."""
    first: ConvWeight
    blocks: tuple[BlockWeights, ...]
    exit: Snake
    last: Tensor
    """[7, C] fp32"""
    last_bias: Tensor

    @property
    def num_bytes(self) -> int:
        """Device memory of all of it."""
        return sum(t.nbytes for t in tensors_of(self))


def tensors_of(value: object) -> list[Tensor]:
    """Return every tensor inside nested weight classes and tuples."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple):
        return [t for item in value for t in tensors_of(item)]
    fields = getattr(type(value), "__dataclass_fields__", {})
    return [t for name in fields for t in tensors_of(getattr(value, name))]


def rope_table(config: StackConfig, num_positions: int, dtype: torch.dtype) -> Tensor:
    """Return [positions, D] fp32 of cosines, then sines, rounded through `dtype`."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angle = torch.arange(num_positions).float()[:, None] * (1.0 / config.rope_theta**steps)
    return torch.cat([angle.cos(), angle.sin()], 1).to(dtype).float()


def _fold_layer(weights: Weights, prefix: str, kept: Round) -> LayerWeights:
    def read(name: str) -> Tensor:
        return weights[f"{prefix}.{name}.weight"].float()

    before, after = read("input_layernorm"), read("post_attention_layernorm")
    qkv = torch.cat([read(f"self_attn.{n}_proj") for n in "qkv"]) * before
    gate_up = torch.cat([read("mlp.gate_proj"), read("mlp.up_proj")]) * after
    out, down = read("self_attn.o_proj"), read("mlp.down_proj")
    if f"{prefix}.mlp_layer_scale.scale" in weights:
        out = out * weights[f"{prefix}.self_attn_layer_scale.scale"].float()[:, None]
        down = down * weights[f"{prefix}.mlp_layer_scale.scale"].float()[:, None]
    empty = out.new_zeros(0)
    headed = f"{prefix}.self_attn.q_norm.weight" in weights
    norms = (read("self_attn.q_norm"), read("self_attn.k_norm")) if headed else (empty, empty)
    return LayerWeights(kept(qkv), kept(out), kept(gate_up), kept(down), norms)


def _fold_stack(
    weights: Weights, prefix: str, config: StackConfig, num_positions: int, dtype: torch.dtype,
    kept: Round,
) -> StackWeights:  # fmt: skip
    layers = tuple(
        _fold_layer(weights, f"{prefix}.layers.{i}", kept) for i in range(config.num_layers)
    )
    device = layers[0].norms[0].device
    return StackWeights(config, layers, rope_table(config, num_positions, dtype).to(device))


def _project_text(weights: Weights, dtype: torch.dtype) -> Tensor:
    table = weights["talker.model.text_embedding.weight"]
    part = "talker.text_projection.linear_fc"
    first, first_bias = weights[f"{part}1.weight"].float(), weights[f"{part}1.bias"].float()
    second, second_bias = weights[f"{part}2.weight"].float(), weights[f"{part}2.bias"].float()
    rows = [
        F.linear(F.silu(F.linear(chunk.float(), first, first_bias)), second, second_bias).to(dtype)
        for chunk in torch.split(table, TEXT_CHUNK_ROWS)
    ]
    return torch.cat(rows)


def fold_frame(
    config: ModelConfig, weights: Weights, max_positions: int, dtype: torch.dtype,
    quantized: QuantizedKind | None = None,
) -> FrameWeights:  # fmt: skip
    """Fold talker, code predictor and tables; `max_positions` bounds prompt plus segment.

    With `quantized` the matrices of products are kept so; tables stay in `dtype`.
    """
    num_codes, eos = config.num_codes, config.codec_ids.eos
    table = weights[f"{_TALKER}.codec_embedding.weight"]
    head = weights["talker.codec_head.weight"].float()
    head = torch.cat([head[:num_codes], head[eos : eos + 1]])
    final = weights[f"{_TALKER}.norm.weight"].float()
    own_final = weights[f"{_PREDICTOR}.norm.weight"].float()
    books = [weights[f"{_PREDICTOR}.codec_embedding.{g}.weight"] for g in range(CODEBOOKS - 1)]
    project = weights.get("talker.code_predictor.small_to_mtp_projection.weight")
    bias = weights.get("talker.code_predictor.small_to_mtp_projection.bias")

    def own(rows: Tensor) -> Tensor:
        if project is None or bias is None:
            return rows.to(dtype)
        return F.linear(rows.float(), project.float(), bias.float()).to(dtype)

    heads = [
        weights[f"talker.code_predictor.lm_head.{g}.weight"].float() * own_final
        for g in range(CODEBOOKS - 1)
    ]
    if project is None or bias is None:
        # A diagonal product keeps the final norm's weight on the way into the predictor.
        folded, folded_bias = torch.diag(final), final.new_zeros(config.predictor.hidden)
    else:
        folded, folded_bias = project.float() * final, bias
    padding = -(num_codes + 1) % HEAD_ALIGN
    kept = rounding(dtype, quantized, table)
    inputs = [own(rows) for rows in (table[:num_codes], *books[:-1])]
    return FrameWeights(
        talker=_fold_stack(weights, _TALKER, config.talker, max_positions, dtype, kept),
        predictor=_fold_stack(weights, _PREDICTOR, config.predictor, CODEBOOKS, dtype, kept),
        num_codes=num_codes,
        head=kept(F.pad(head * final, (0, 0, 0, padding))),
        project=kept(folded),
        project_bias=folded_bias.to(dtype),
        heads=tuple(kept(h) for h in heads),
        inputs=tuple(inputs),
        code_rows=torch.cat([table[:num_codes], *books]).to(dtype),
        text_rows=_project_text(weights, dtype),
        codec_rows=table.to(dtype),
        start_row=table[config.codec_ids.bos].to(dtype),
    )


class _CodecFolder:
    """Reads one codec's tensors by name and folds them."""

    def __init__(self, config: CodecConfig, weights: Weights, dtype: torch.dtype) -> None:
        self._config, self._weights, self._dtype = config, weights, dtype

    def read(self, name: str) -> Tensor:
        return self._weights[f"decoder.{name}"].float()

    def pair(self, name: str) -> tuple[Tensor, Tensor]:
        return self.read(f"{name}.weight"), self.read(f"{name}.bias")

    def causal(self, weight: Tensor, bias: Tensor, dilation: int = 1) -> ConvWeight:
        """Fold a causal kernel [D, C, k]."""
        outputs, channels, taps = weight.shape
        matrix = weight.permute(2, 1, 0).reshape(taps * channels, outputs)
        return ConvWeight(matrix.to(self._dtype).contiguous(), bias, taps, dilation)

    def transposed(self, weight: Tensor, bias: Tensor, rate: int) -> ConvWeight:
        """Fold a transposed kernel [C, D, rate or 2 * rate] of stride `rate` to r * D outputs."""
        channels, outputs, kernel = weight.shape
        # Newest tap last: tap j holds the outputs of the input (k / r - 1 - j) rows back.
        taps = weight.view(channels, outputs, kernel // rate, rate).flip(2)
        causal = taps.permute(3, 1, 0, 2).reshape(rate * outputs, channels, kernel // rate)
        return self.causal(causal, bias.repeat(rate))

    def snake(self, name: str, repeat: int = 1) -> Snake:
        alpha = self.read(f"{name}.alpha").exp().repeat(repeat)
        inverse_beta = (1.0 / (self.read(f"{name}.beta").exp() + _SNAKE_EPS)).repeat(repeat)
        return Snake(alpha, inverse_beta)

    def tables(self) -> Tensor:
        rows = []
        for group, count in (("rvq_first", 1), ("rvq_rest", CODEBOOKS - 1)):
            project = self.read(f"quantizer.{group}.output_proj.weight")[:, :, 0].T
            for i in range(count):
                book = f"quantizer.{group}.vq.layers.{i}._codebook"
                usage = self.read(f"{book}.cluster_usage").clamp(min=_MIN_USAGE)[:, None]
                rows.append(self.read(f"{book}.embedding_sum") / usage @ project)
        return torch.cat(rows).to(self._dtype)

    def entry(self) -> ConvWeight:
        conv, conv_bias = self.pair("pre_conv.conv")
        into, into_bias = self.pair("pre_transformer.input_proj")
        folded = torch.einsum("od,dck->ock", into, conv)
        return self.causal(folded, into @ conv_bias + into_bias)

    def up(self, index: int, rate: int) -> UpWeights:
        part = f"upsample.{index}"
        step, bias = self.pair(f"{part}.0.conv")
        if index == 0:  # the transformer's final norm and output projection come before
            out, out_bias = self.pair("pre_transformer.output_proj")
            bias = bias[:, None] + torch.einsum("cdk,c->dk", step, out_bias)
            out = out * self.read("pre_transformer.norm.weight")
            step = torch.einsum("cdk,ch->hdk", step, out)
            linear = self.transposed(step, torch.zeros_like(bias[:, 0]), rate)
            linear = ConvWeight(linear.matrix, bias.t().reshape(-1).contiguous(), 1, 1)
        else:
            linear = self.transposed(step, bias, rate)
        norm, norm_bias = self.pair(f"{part}.1.norm")
        widen, widen_bias = self.pair(f"{part}.1.pwconv1")
        narrow, narrow_bias = self.pair(f"{part}.1.pwconv2")
        gamma = self.read(f"{part}.1.gamma")
        depthwise, depthwise_bias = self.pair(f"{part}.1.dwconv.conv")
        zero = torch.zeros_like(narrow_bias)
        return UpWeights(
            up=linear,
            depthwise=depthwise[:, 0].T.contiguous(),
            depthwise_bias=depthwise_bias,
            widen=self.causal((widen * norm)[..., None], widen_bias + widen @ norm_bias),
            narrow=self.causal((narrow * gamma[:, None])[..., None], zero),
            narrow_bias=narrow_bias * gamma,
        )

    def block(self, index: int, rate: int) -> BlockWeights:
        part = f"decoder.{index}.block"
        units = []
        for unit, dilation in enumerate(_DILATIONS, start=2):
            name = f"{part}.{unit}"
            repeat = rate if unit == 2 else 1  # written by the transposed convolution
            units.append(
                UnitWeights(
                    first=self.causal(*self.pair(f"{name}.conv1.conv"), dilation),
                    middle=self.snake(f"{name}.act2"),
                    second=self.causal(*self.pair(f"{name}.conv2.conv")),
                    entry=self.snake(f"{name}.act1", repeat),
                )
            )
        up = self.transposed(*self.pair(f"{part}.1.conv"), rate)
        return BlockWeights(self.snake(f"{part}.0"), up, rate, tuple(units))


def fold_codec(config: CodecConfig, weights: Weights, dtype: torch.dtype) -> CodecWeights:
    """Fold the decoder of a speech tokenizer; `weights` are its fp32 tensors."""
    fold = _CodecFolder(config, weights, dtype)
    num_blocks = len(config.decoder_rates)
    last, last_bias = fold.pair(f"decoder.{num_blocks + 2}.conv")
    # Distances, not positions: the window and the new frames of one call (codec_state.py).
    positions = 2 * config.window_frames + 64
    rope = rope_table(config.stack, positions, torch.float32).to(last.device)
    stack = _fold_stack(weights, _TRANSFORMER, config.stack, 1, dtype, rounding(dtype))
    return CodecWeights(
        config=config,
        tables=fold.tables(),
        entry=fold.entry(),
        transformer=StackWeights(config.stack, stack.layers, rope),
        ups=tuple(fold.up(i, rate) for i, rate in enumerate(config.upsample_ratios)),
        first=fold.causal(*fold.pair("decoder.0.conv")),
        blocks=tuple(fold.block(i + 1, rate) for i, rate in enumerate(config.decoder_rates)),
        exit=fold.snake(f"decoder.{num_blocks + 1}"),
        last=last[0].T.contiguous(),
        last_bias=last_bias,
    )
