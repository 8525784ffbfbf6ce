"""Critics of the codec: multi-period and multi-resolution, and the spectral loss."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from training.coding import mel_bank

PERIODS, RESOLUTIONS = (2, 3, 5, 7, 11), (2048, 1024, 512)
LOSS_FFTS = (256, 512, 1024, 2048)


class PeriodCritic(nn.Module):
    """Looks at every p-th sample."""

    def __init__(self, period: int, widths: tuple[int, ...] = (24, 64, 128, 192)) -> None:
        """Build for a period."""
        super().__init__()
        self.period = period
        ins = (1, *widths[:-1])
        self.convs = nn.ModuleList(
            weight_norm(nn.Conv2d(into, out, (5, 1), (3, 1), (2, 0)))
            for into, out in zip(ins, widths, strict=True)
        )
        self.post = weight_norm(nn.Conv2d(widths[-1], 1, (3, 1), 1, (1, 0)))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Judge x [B, 1, T]; also return the features."""
        batch, _, length = x.shape
        x = F.pad(x, (0, -length % self.period), mode="reflect").view(batch, 1, -1, self.period)
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.post(x), features


class SpectrumCritic(nn.Module):
    """Looks at the complex spectrum."""

    def __init__(self, fft: int, width: int = 24) -> None:
        """Build for an FFT size."""
        super().__init__()
        self.fft = fft
        shapes = (
            (2, width, (7, 5), (1, 2), (3, 2)),
            (width, width, (5, 3), (2, 2), (2, 1)),
            (width, 2 * width, (5, 3), (2, 1), (2, 1)),
            (2 * width, 2 * width, (5, 3), (2, 1), (2, 1)),
        )
        self.convs = nn.ModuleList(weight_norm(nn.Conv2d(*shape)) for shape in shapes)
        self.post = weight_norm(nn.Conv2d(2 * width, 1, 3, 1, 1))
        self.register_buffer("window", torch.hann_window(fft))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Judge x [B, 1, T]; also return the features."""
        with torch.autocast("cuda", enabled=False):
            spectrum = spectrum_of(x[:, 0].float(), self.fft, self.window)
            parts = torch.view_as_real(spectrum) * (2.0 / self.fft**0.5)
        x = parts.permute(0, 3, 1, 2)
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.post(x), features


def spectrum_of(x: Tensor, fft: int, window: Tensor | nn.Module) -> Tensor:
    """Return the complex spectrum of x [B, T]."""
    assert isinstance(window, Tensor)
    return torch.stft(
        x, fft, fft // 4, window=window, return_complex=True, center=True, pad_mode="constant"
    )


def critics() -> nn.ModuleList:
    """Return all critics."""
    periods = [PeriodCritic(period) for period in PERIODS]
    return nn.ModuleList([*periods, *(SpectrumCritic(fft) for fft in RESOLUTIONS)])


class SpectralLoss(nn.Module):
    """Log-mel distance and spectral convergence at several resolutions."""

    def __init__(self) -> None:
        """Precompute windows and banks."""
        super().__init__()
        for fft in LOSS_FFTS:
            self.register_buffer(f"window_{fft}", torch.hann_window(fft))
            if fft > 256:
                self.register_buffer(f"bank_{fft}", mel_bank(fft, 64 if fft < 1024 else 80))

    def forward(self, made: Tensor, real: Tensor) -> Tensor:
        """Compare audio [B, 1, T]."""
        loss = made.new_zeros(())
        for fft in LOSS_FFTS:
            both = torch.cat([made, real])[:, 0]
            size = spectrum_of(both, fft, getattr(self, f"window_{fft}")).abs().clamp_min(1e-5)
            a, b = size.chunk(2)
            far = (a - b).flatten(1).norm(dim=1) / b.flatten(1).norm(dim=1).clamp_min(1e-2)
            loss = loss + 0.5 * far.mean()
            if fft > 256:
                mel = torch.log((getattr(self, f"bank_{fft}") @ size).clamp_min(1e-4))
                p, q = mel.chunk(2)
                loss = loss + (p - q).abs().mean()
        return loss
