"""The speech encoder: reference samples in, 16 codes a frame out; only cloning needs it.

Strided causal convolutions to 25 Hz, a fully causal transformer (the published tokenizer's config
names a window of 250 positions that its reference never applies), a last stride to 12.5 Hz, then
two residual quantisers. fp32; runs once a voice, on any device, on the caller's thread.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.engine.models.cloning_config import SpeechEncoderConfig
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES
from playhead.kernels import rope, rope_tables

PREFIX = "encoder."
_LAYERS = f"{PREFIX}encoder.layers"
_TRANSFORMER = f"{PREFIX}encoder_transformer.layers"
_DOWN = f"{PREFIX}downsample.conv"
_QUANTIZERS = f"{PREFIX}quantizer"
_MIN_USAGE = 1e-5


def speech_encoder_shapes(config: SpeechEncoderConfig) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every encoder tensor of a speech tokenizer."""
    c, shapes = config, dict[str, tuple[int, ...]]()

    def conv(index: str, outputs: int, inputs: int, kernel: int) -> None:
        shapes[f"{_LAYERS}.{index}.conv.weight"] = (outputs, inputs, kernel)
        shapes[f"{_LAYERS}.{index}.conv.bias"] = (outputs,)

    width, at = c.num_filters, 1
    conv("0", width, 1, c.kernel)
    for rate in c.rates:
        conv(f"{at}.block.1", width // c.compress, width, c.residual_kernel)
        conv(f"{at}.block.3", width, width // c.compress, 1)
        conv(f"{at + 2}", 2 * width, width, 2 * rate)
        width, at = 2 * width, at + 3
    conv(f"{at + 1}", c.hidden, width, c.last_kernel)
    for i in range(c.num_layers):
        part, heads = f"{_TRANSFORMER}.{i}", c.num_heads * c.head_dim
        for name in "qkv":
            shapes[f"{part}.self_attn.{name}_proj.weight"] = (heads, c.hidden)
        shapes[f"{part}.self_attn.o_proj.weight"] = (c.hidden, heads)
        shapes[f"{part}.mlp.fc1.weight"] = (c.intermediate, c.hidden)
        shapes[f"{part}.mlp.fc2.weight"] = (c.hidden, c.intermediate)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{part}.{name}.weight"] = shapes[f"{part}.{name}.bias"] = (c.hidden,)
        for name in ("self_attn_layer_scale", "mlp_layer_scale"):
            shapes[f"{part}.{name}.scale"] = (c.hidden,)
    shapes[f"{_DOWN}.weight"] = (c.hidden, c.hidden, 4)
    for group, count in (("semantic", 1), ("acoustic", c.num_quantizers - 1)):
        part = f"{_QUANTIZERS}.{group}_residual_vector_quantizer"
        shapes[f"{part}.input_proj.weight"] = (c.code_width, c.hidden, 1)
        shapes[f"{part}.output_proj.weight"] = (c.hidden, c.code_width, 1)
        for i in range(count):
            book = f"{part}.layers.{i}.codebook"
            shapes[f"{book}.embed_sum"] = (c.num_codes, c.code_width)
            shapes[f"{book}.cluster_usage"] = (c.num_codes,)
            shapes[f"{book}.initialized"] = (1,)
    return shapes


class SpeechEncoder:
    """Encoder weights, fp32, with the codebooks folded."""

    def __init__(self, config: SpeechEncoderConfig, weights: dict[str, Tensor]) -> None:
        """Take the weights by their names in the checkpoint."""
        self.config = config
        self._books: dict[str, list[Tensor]] = {}
        for group, count in (("semantic", 1), ("acoustic", CODEBOOKS - 1)):
            part = f"{_QUANTIZERS}.{group}_residual_vector_quantizer.layers"
            self._books[group] = [
                weights[f"{part}.{i}.codebook.embed_sum"]
                / weights[f"{part}.{i}.codebook.cluster_usage"].clamp(min=_MIN_USAGE)[:, None]
                for i in range(count)
            ]
        self._weights = {name: w for name, w in weights.items() if ".codebook." not in name}

    @torch.inference_mode()
    def encode(self, samples: Tensor) -> Tensor:
        """Return codes [ceil(N / 1920), 16] int64 of samples [N] in -1..1 at 24 kHz."""
        assert samples.shape[0] > 0, "the caller checks the length"
        x = self._convolve(samples.to(self._weights[f"{_DOWN}.weight"])[None, None])
        x = self._transform(x[0].T).T[None]
        x = _causal_conv(x, self._weights[f"{_DOWN}.weight"], None, 2, mode="replicate")
        codes = [*self._quantise(x, "semantic"), *self._quantise(x, "acoustic")]
        return torch.stack(codes, 1)[: -(-samples.shape[0] // FRAME_SAMPLES)]

    def _conv(self, x: Tensor, index: str, stride: int = 1) -> Tensor:
        name = f"{_LAYERS}.{index}.conv"
        return _causal_conv(
            x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], stride
        )

    def _convolve(self, x: Tensor) -> Tensor:
        """Run the convolutions: samples [1, 1, N] -> rows at 25 Hz [1, hidden, T]."""
        x, at = self._conv(x, "0"), 1
        for rate in self.config.rates:
            h = self._conv(F.elu(x), f"{at}.block.1")
            x = x + self._conv(F.elu(h), f"{at}.block.3")
            x = self._conv(F.elu(x), f"{at + 2}", rate)
            at += 3
        return self._conv(F.elu(x), f"{at + 1}")

    def _transform(self, x: Tensor) -> Tensor:
        """Run the causal transformer over rows [T, hidden]."""
        c, w = self.config, self._weights
        positions = torch.arange(x.shape[0], device=x.device)
        cos, sin = rope_tables(positions, c.head_dim, c.rope_theta, x.dtype)
        shape = (x.shape[0], c.num_heads, c.head_dim)
        for i in range(c.num_layers):
            part = f"{_TRANSFORMER}.{i}"
            h = self._norm(x, f"{part}.input_layernorm")
            q, k, v = (
                (h @ w[f"{part}.self_attn.{n}_proj.weight"].T).view(shape).transpose(0, 1)
                for n in "qkv"
            )
            q, k = rope(q, cos, sin), rope(k, cos, sin)
            mixed = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            mixed = mixed.transpose(0, 1).reshape(x.shape[0], -1)
            branch = mixed @ w[f"{part}.self_attn.o_proj.weight"].T
            x = x + w[f"{part}.self_attn_layer_scale.scale"] * branch
            h = F.gelu(
                self._norm(x, f"{part}.post_attention_layernorm") @ w[f"{part}.mlp.fc1.weight"].T
            )
            x = x + w[f"{part}.mlp_layer_scale.scale"] * (h @ w[f"{part}.mlp.fc2.weight"].T)
        return x

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, self.config.norm_eps)

    def _quantise(self, x: Tensor, group: str) -> list[Tensor]:
        """Return one row of codes [F] per codebook of a group for rows [1, hidden, F]."""
        name = f"{_QUANTIZERS}.{group}_residual_vector_quantizer.input_proj.weight"
        rest = F.conv1d(x, self._weights[name])[0].T
        codes = []
        for book in self._books[group]:
            codes.append(torch.cdist(rest[None], book[None])[0].argmin(1))
            rest = rest - book[codes[-1]]
        return codes


def _causal_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, mode: str = "constant"
) -> Tensor:
    """Convolve [1, C, T] to ceil(T / stride) outputs that see no later input.

    The last stride is filled up at its right end.
    """
    left, right = weight.shape[2] - stride, -x.shape[2] % stride
    return F.conv1d(F.pad(x, (left, right), mode=mode), weight, bias, stride)
