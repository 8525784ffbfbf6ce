"""The speaker encoder: a reference waveform in, one speaker vector out (ECAPA-TDNN).

The vector stands in the prompt where a named speaker's row would. Computed in fp32; runs once a
voice, on any device, on the caller's thread.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.engine.models.cloning_config import SpeakerConfig
from playhead.engine.units import SAMPLE_RATE_HZ

PREFIX = "speaker_encoder."
N_FFT = 1024
HOP_SAMPLES = 256
_PAD = (N_FFT - HOP_SAMPLES) // 2
_MEL_FLOOR = 1e-5
_MAGNITUDE_EPS = 1e-9
_VARIANCE_FLOOR = 1e-12
MIN_SAMPLES = N_FFT
"""Shorter waveforms have no frame to look at."""
_LINEAR_END_HZ, _HZ_PER_MEL = 1000.0, 200.0 / 3.0
_LOG_STEP = math.log(6.4) / 27.0
"""Slaney's mel scale: linear below 1 kHz, above it 27 steps for each factor of 6.4."""


def speaker_shapes(config: SpeakerConfig) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every speaker-encoder tensor of a Base checkpoint."""
    c, shapes = config, dict[str, tuple[int, ...]]()
    wide, last = c.channels[0], c.channels[-1]

    def conv(name: str, outputs: int, inputs: int, kernel: int) -> None:
        shapes[f"{PREFIX}{name}.weight"] = (outputs, inputs, kernel)
        shapes[f"{PREFIX}{name}.bias"] = (outputs,)

    conv("blocks.0.conv", wide, c.num_mels, c.kernels[0])
    for block in range(1, len(c.channels) - 1):
        part, split = f"blocks.{block}", wide // c.splits
        conv(f"{part}.tdnn1.conv", wide, wide, 1)
        for i in range(c.splits - 1):
            conv(f"{part}.res2net_block.blocks.{i}.conv", split, split, c.kernels[block])
        conv(f"{part}.tdnn2.conv", wide, wide, 1)
        conv(f"{part}.se_block.conv1", c.squeeze, wide, 1)
        conv(f"{part}.se_block.conv2", wide, c.squeeze, 1)
    conv("mfa.conv", last, last, c.kernels[-1])
    conv("asp.tdnn.conv", c.attention, 3 * last, 1)
    conv("asp.conv", last, c.attention, 1)
    conv("fc", c.width, 2 * last, 1)
    return shapes


class SpeakerEncoder:
    """Speaker-encoder weights, fp32."""

    def __init__(self, config: SpeakerConfig, weights: dict[str, Tensor]) -> None:
        """Take the weights by their names in the checkpoint."""
        self.config = config
        self._weights = {name.removeprefix(PREFIX): value for name, value in weights.items()}
        device = weights[f"{PREFIX}fc.bias"].device
        self._mel = mel_filters(config.num_mels).to(device)
        self._window = torch.hann_window(N_FFT, device=device)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights by their names within the part."""
        return self._weights

    @torch.inference_mode()
    def embed(self, samples: Tensor) -> Tensor:
        """Return the speaker vector [width] fp32 of samples [N] in -1..1 at 24 kHz."""
        assert samples.shape[0] >= MIN_SAMPLES, "the caller checks the length"
        x = self._tdnn(self.log_mel(samples)[None], "blocks.0", self.config.dilations[0])
        blocks = []
        for block in range(1, len(self.config.channels) - 1):
            x = self._residual_block(x, block)
            blocks.append(x)
        x = self._tdnn(torch.cat(blocks, 1), "mfa", self.config.dilations[-1])
        return self._conv(self._pool(x), "fc")[0, :, 0]

    def log_mel(self, samples: Tensor) -> Tensor:
        """Return log-mel frames [num_mels, T] of samples [N] at 24 kHz."""
        padded = F.pad(samples.to(self._window)[None], (_PAD, _PAD), mode="reflect")
        spectrum = torch.stft(
            padded, N_FFT, HOP_SAMPLES, N_FFT, self._window, center=False, return_complex=True
        )
        magnitude = torch.sqrt(torch.view_as_real(spectrum[0]).pow(2).sum(-1) + _MAGNITUDE_EPS)
        return (self._mel @ magnitude).clamp(min=_MEL_FLOOR).log()

    def _conv(self, x: Tensor, name: str, dilation: int = 1) -> Tensor:
        """Convolve [B, C, T] to the same length, mirrored at both ends."""
        weight = self._weights[f"{name}.weight"]
        span = (weight.shape[2] - 1) * dilation
        if span:
            x = F.pad(x, (span // 2, span - span // 2), mode="reflect")
        return F.conv1d(x, weight, self._weights[f"{name}.bias"], dilation=dilation)

    def _tdnn(self, x: Tensor, name: str, dilation: int = 1) -> Tensor:
        return F.relu(self._conv(x, f"{name}.conv", dilation))

    def _residual_block(self, x: Tensor, block: int) -> Tensor:
        part, dilation = f"blocks.{block}", self.config.dilations[block]
        pieces = self._tdnn(x, f"{part}.tdnn1").chunk(self.config.splits, 1)
        mixed = [pieces[0]]
        for i, piece in enumerate(pieces[1:]):
            fed = piece if i == 0 else piece + mixed[-1]
            mixed.append(self._tdnn(fed, f"{part}.res2net_block.blocks.{i}", dilation))
        y = self._tdnn(torch.cat(mixed, 1), f"{part}.tdnn2")
        squeezed = F.relu(self._conv(y.mean(2, keepdim=True), f"{part}.se_block.conv1"))
        return y * self._conv(squeezed, f"{part}.se_block.conv2").sigmoid() + x

    def _pool(self, x: Tensor) -> Tensor:
        """Return attention-weighted mean and deviation over time: [B, C, T] -> [B, 2C, 1]."""
        even = torch.full_like(x[:, :1], 1.0 / x.shape[2])
        mean, deviation = (value.expand_as(x) for value in _statistics(x, even))
        attention = torch.tanh(self._tdnn(torch.cat([x, mean, deviation], 1), "asp.tdnn"))
        return torch.cat(_statistics(x, self._conv(attention, "asp.conv").softmax(2)), 1)


def _statistics(x: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation [B, C, 1] of x [B, C, T] under shares that sum to one."""
    mean = (share * x).sum(2, keepdim=True)
    variance = (share * (x - mean).pow(2)).sum(2, keepdim=True)
    return mean, variance.clamp(min=_VARIANCE_FLOOR).sqrt()


def mel_filters(num_mels: int) -> Tensor:
    """Return triangular filters [num_mels, bins] fp32, each of unit area (Slaney's toolbox)."""
    bins = torch.linspace(0, SAMPLE_RATE_HZ / 2, N_FFT // 2 + 1, dtype=torch.float64)
    top = _LINEAR_END_HZ / _HZ_PER_MEL + math.log(SAMPLE_RATE_HZ / 2 / _LINEAR_END_HZ) / _LOG_STEP
    mels = torch.linspace(0, top, num_mels + 2, dtype=torch.float64)
    start = _LINEAR_END_HZ / _HZ_PER_MEL
    curved = _LINEAR_END_HZ * torch.exp(_LOG_STEP * (mels - start))
    edges = torch.where(mels < start, mels * _HZ_PER_MEL, curved)
    widths = edges.diff()
    distance = edges[:, None] - bins
    rising = -distance[:-2] / widths[:-1, None]
    falling = distance[2:] / widths[1:, None]
    area = 2.0 / (edges[2:] - edges[:-2])
    return (torch.minimum(rising, falling).clamp(min=0.0) * area[:, None]).float()
