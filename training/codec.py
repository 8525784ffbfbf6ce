"""The codec decoder for training: whole code sequences to 24 kHz, names as in the reference."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from playhead.engine.units import CODEBOOKS
from training.layers import Attention, Mlp, RmsNorm, rotary
from training.sizes import SIZES, Sizes

UPSAMPLING = (2, 2)
RATES = (8, 5, 4, 3)


class CausalConv(nn.Module):
    """Convolution that sees only the past."""

    def __init__(
        self, into: int, out: int, kernel: int, dilation: int = 1, groups: int = 1
    ) -> None:
        """Build with left padding."""
        super().__init__()
        self.conv = nn.Conv1d(into, out, kernel, dilation=dilation, groups=groups)
        self.padding = (kernel - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        """Run x [B, C, T]."""
        return self.conv(F.pad(x, (self.padding, 0)))


class CausalUpsample(nn.Module):
    """Transposed convolution without its last outputs."""

    def __init__(self, into: int, out: int, kernel: int, stride: int) -> None:
        """Build for a stride."""
        super().__init__()
        self.conv, self.cut = nn.ConvTranspose1d(into, out, kernel, stride=stride), kernel - stride

    def forward(self, x: Tensor) -> Tensor:
        """Run x [B, C, T] to [B, out, T * stride]."""
        y: Tensor = self.conv(x)
        return y[..., : y.shape[-1] - self.cut]


class ConvNext(nn.Module):
    """Depthwise convolution and a pointwise MLP, with a residual."""

    def __init__(self, width: int) -> None:
        """Build for a width."""
        super().__init__()
        self.dwconv = CausalConv(width, width, 7, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(0.1 * torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Run x [B, C, T]."""
        y = self.norm(self.dwconv(x).transpose(1, 2))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.transpose(1, 2)


class Snake(nn.Module):
    """x + sin(a x)^2 / b, with a and b stored as logarithms."""

    def __init__(self, width: int) -> None:
        """Start at a = b = 1."""
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Run x [B, C, T]."""
        a, b = self.alpha.exp()[None, :, None], self.beta.exp()[None, :, None]
        return x + torch.sin(x * a) ** 2 / (b + 1e-9)


class Residual(nn.Module):
    """Two activated convolutions with a residual."""

    def __init__(self, width: int, dilation: int) -> None:
        """Build for a dilation."""
        super().__init__()
        self.act1, self.conv1 = Snake(width), CausalConv(width, width, 7, dilation)
        self.act2, self.conv2 = Snake(width), CausalConv(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Run x [B, C, T]."""
        return x + self.conv2(self.act2(self.conv1(self.act1(x))))


class Block(nn.Module):
    """Upsampling by a rate and three residuals."""

    def __init__(self, into: int, out: int, rate: int) -> None:
        """Build for a rate."""
        super().__init__()
        residuals = [Residual(out, dilation) for dilation in (1, 3, 9)]
        self.block = nn.ModuleList(
            [Snake(into), CausalUpsample(into, out, 2 * rate, rate), *residuals]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Run x [B, C, T]."""
        for part in self.block:
            x = part(x)
        return x


class Codebook(nn.Module):
    """A table kept as sums and counts."""

    def __init__(self, size: int, width: int) -> None:
        """Start at zero sums and unit counts."""
        super().__init__()
        self.cluster_usage = nn.Parameter(torch.ones(size))
        self.embedding_sum = nn.Parameter(torch.zeros(size, width))

    def table(self) -> Tensor:
        """Return the entries."""
        return self.embedding_sum / self.cluster_usage.clamp(min=1e-5)[:, None]


class VectorQuantiser(nn.Module):
    """Holds one codebook under the reference's name."""

    def __init__(self, size: int, width: int) -> None:
        """Build the codebook."""
        super().__init__()
        self._codebook = Codebook(size, width)

    def table(self) -> Tensor:
        """Return the entries."""
        return self._codebook.table()


class Layers(nn.Module):
    """Holds the quantisers under the reference's name."""

    def __init__(self, count: int, size: int, width: int) -> None:
        """Build the quantisers."""
        super().__init__()
        self.layers = nn.ModuleList(VectorQuantiser(size, width) for _ in range(count))


class ResidualQuantiser(nn.Module):
    """Sum of codebook entries, projected."""

    def __init__(self, count: int, sizes: Sizes) -> None:
        """Build `count` stages; input_proj is part of the layout but unused in decoding."""
        super().__init__()
        width = sizes.codec_book_width
        self.input_proj = nn.Conv1d(2 * width, width, 1, bias=False)
        self.output_proj = nn.Conv1d(width, 2 * width, 1, bias=False)
        self.vq = Layers(count, sizes.codebook, width)

    def decode(self, codes: Tensor) -> Tensor:
        """Decode [B, count, T] to [B, 2 width, T]."""
        total = self.output_proj.weight.new_zeros(())
        for index, stage in enumerate(self.vq.layers):
            assert isinstance(stage, VectorQuantiser)
            total = total + F.embedding(codes[:, index], stage.table())
        return self.output_proj(total.transpose(1, 2))


class SplitQuantiser(nn.Module):
    """Codebook 0 apart from the other fifteen."""

    def __init__(self, sizes: Sizes) -> None:
        """Build both parts."""
        super().__init__()
        self.rvq_first = ResidualQuantiser(1, sizes)
        self.rvq_rest = ResidualQuantiser(CODEBOOKS - 1, sizes)

    def decode(self, codes: Tensor) -> Tensor:
        """Decode [B, 16, T]."""
        return self.rvq_first.decode(codes[:, :1]) + self.rvq_rest.decode(codes[:, 1:])


class LayerScale(nn.Module):
    """A learned factor a channel."""

    def __init__(self, width: int) -> None:
        """Start small."""
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        """Scale the last dimension."""
        return self.scale * x


class CodecLayer(nn.Module):
    """Windowed attention and MLP with layer scales."""

    def __init__(self, sizes: Sizes) -> None:
        """Build at the given sizes."""
        super().__init__()
        width, heads = sizes.codec_width, sizes.codec_heads
        self.self_attn = Attention(width, heads, heads, normed=False)
        self.mlp = Mlp(width, sizes.codec_mlp)
        self.input_layernorm = RmsNorm(width, 1e-5)
        self.post_attention_layernorm = RmsNorm(width, 1e-5)
        self.self_attn_layer_scale, self.mlp_layer_scale = LayerScale(width), LayerScale(width)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """Run x [B, T, width]."""
        x = x + self.self_attn_layer_scale(self.self_attn(self.input_layernorm(x), turns, mask))
        return x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))


class CodecTransformer(nn.Module):
    """Layers over frames, each seeing a window of the past."""

    def __init__(self, sizes: Sizes) -> None:
        """Build at the given sizes."""
        super().__init__()
        self.sizes = sizes
        width = sizes.codec_width
        self.layers = nn.ModuleList(CodecLayer(sizes) for _ in range(sizes.codec_layers))
        self.norm = RmsNorm(width, 1e-5)
        self.input_proj, self.output_proj = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Run x [B, T, width]."""
        head_width = self.sizes.codec_width // self.sizes.codec_heads
        turns = rotary(x.shape[1], head_width, self.sizes.rope_theta, x.device)
        at = torch.arange(x.shape[1], device=x.device)
        apart = at[:, None] - at[None]
        mask = (apart >= 0) & (apart < self.sizes.codec_window)
        x = self.input_proj(x)
        for layer in self.layers:
            x = layer(x, turns, mask)
        return self.output_proj(self.norm(x))


class Codec(nn.Module):
    """Codes [B, 16, T] to audio [B, 1, 1920 T]; names below `decoder.` in the checkpoint."""

    def __init__(self, sizes: Sizes = SIZES) -> None:
        """Build at the given sizes."""
        super().__init__()
        width, channels = sizes.codec_width, sizes.codec_channels
        self.quantizer = SplitQuantiser(sizes)
        self.pre_conv = CausalConv(2 * sizes.codec_book_width, width, 3)
        self.pre_transformer = CodecTransformer(sizes)
        self.upsample = nn.ModuleList(
            nn.ModuleList([CausalUpsample(width, width, rate, rate), ConvNext(width)])
            for rate in UPSAMPLING
        )
        blocks = [
            Block(channels >> index, channels >> (index + 1), rate)
            for index, rate in enumerate(RATES)
        ]
        last = channels >> len(RATES)
        self.decoder = nn.ModuleList(
            [CausalConv(width, channels, 7), *blocks, Snake(last), CausalConv(last, 1, 7)]
        )

    def forward(self, codes: Tensor) -> Tensor:
        """Decode; the clamp of the reference only outside training."""
        x = self.pre_conv(self.quantizer.decode(codes)).transpose(1, 2)
        x = self.pre_transformer(x).transpose(1, 2)
        for step in self.upsample:
            assert isinstance(step, nn.ModuleList)
            for part in step:
                x = part(x)
        for part in self.decoder:
            x = part(x)
        return x if self.training else x.clamp(-1, 1)

    @torch.no_grad()
    def start_from_books(self, books: Tensor) -> None:
        """Begin with the k-means books [16, 256, width] and one shared projection."""
        scale = books[0].std() * 8
        first, rest = self.quantizer.rvq_first, self.quantizer.rvq_rest
        for book, stage in zip(books, [*first.vq.layers, *rest.vq.layers], strict=True):
            assert isinstance(stage, VectorQuantiser)
            stage._codebook.embedding_sum.copy_(book / scale)
        nn.init.orthogonal_(first.output_proj.weight[:, :, 0])
        rest.output_proj.weight.copy_(first.output_proj.weight)
