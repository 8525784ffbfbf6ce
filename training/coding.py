"""Codes without a learned encoder: log-mel of each frame, PCA, 16 stages of residual k-means.

`python -m training.coding FOLDER BOOKS.safetensors` turns the audio and scripts of training.speak
into `data.pt`: codes and text rows of every utterance at four grid shifts. The books define what
codes mean; they are fitted only when the file does not exist yet.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES, SAMPLE_RATE_HZ
from training.sizes import SIZES
from training.speak import NUM_SHIFTS, SHIFT_SAMPLES

FFT_SAMPLES, HOP_SAMPLES, NUM_MELS = 1024, 240, 80
COLUMNS = FRAME_SAMPLES // HOP_SAMPLES
MEL_FLOOR = 1e-3
KMEANS_ROUNDS, KMEANS_FRAMES = 12, 300_000
CHUNK_FRAMES = 3000


def mel_bank(fft_samples: int = FFT_SAMPLES, num_mels: int = NUM_MELS) -> Tensor:
    """Return triangular mel filters up to 12 kHz: [num_mels, fft_samples / 2 + 1]."""
    top = 2595 * np.log10(1 + 12_000 / 700)
    points = 700 * (10 ** (np.linspace(0, top, num_mels + 2) / 2595) - 1)
    bins = np.linspace(0, SAMPLE_RATE_HZ / 2, fft_samples // 2 + 1)
    rising = (bins[None] - points[:-2, None]) / (points[1:-1] - points[:-2])[:, None]
    falling = (points[2:, None] - bins[None]) / (points[2:] - points[1:-1])[:, None]
    bank = np.maximum(0, np.minimum(rising, falling)) * (80.0 / (points[2:] - points[:-2]))[:, None]
    return torch.tensor(bank, dtype=torch.float32)


def mel_frames(audio: Tensor, bank: Tensor) -> Tensor:
    """Return the log-mel of each 80 ms frame of audio [n * 1920] as [n, 640]."""
    num_frames = audio.shape[-1] // FRAME_SAMPLES
    window = torch.hann_window(FFT_SAMPLES, device=audio.device)
    spectrum = torch.stft(
        audio, FFT_SAMPLES, HOP_SAMPLES, window=window, return_complex=True, pad_mode="constant"
    )
    mel = torch.log((bank @ spectrum.abs()).clamp_min(MEL_FLOOR))
    return mel[:, : COLUMNS * num_frames].T.reshape(num_frames, COLUMNS * NUM_MELS)


def nearest(points: Tensor, book: Tensor) -> Tensor:
    """Return the index of the nearest book entry of each point."""
    norms = (book * book).sum(1)[None]
    return torch.cat([(norms - 2 * part @ book.T).argmin(1) for part in points.split(65536)])


def fit_book(points: Tensor, size: int) -> Tensor:
    """Run k-means; empty cells restart at random points."""
    book = points[torch.randperm(len(points), device=points.device)[:size]].clone()
    for _ in range(KMEANS_ROUNDS):
        index = nearest(points, book)
        total = torch.zeros_like(book).index_add_(0, index, points)
        count = torch.bincount(index, minlength=size).float()
        book = total / count.clamp_min(1)[:, None]
        empty = count < 1
        if empty.any():
            fresh = torch.randint(len(points), (int(empty.sum()),), device=points.device)
            book[empty] = points[fresh]
    return book


def fit_books(mels: Tensor) -> dict[str, Tensor]:
    """Fit the projection and all stages on frames [n, 640]."""
    mean = mels.mean(0)
    covariance = torch.zeros(mels.shape[1], mels.shape[1], device=mels.device)
    for part in mels.split(65536):
        covariance += (part - mean).T @ (part - mean)
    _, vectors = torch.linalg.eigh((covariance / len(mels)).double())
    projection = vectors.flip(1)[:, : SIZES.codec_book_width].float().contiguous()
    picked = torch.randperm(len(mels), device=mels.device)[:KMEANS_FRAMES]
    rest = (mels[picked] - mean) @ projection
    books = []
    for _ in range(CODEBOOKS):
        books.append(fit_book(rest, SIZES.codebook))
        rest = rest - books[-1][nearest(rest, books[-1])]
    return {"mean": mean, "projection": projection, "books": torch.stack(books)}


def encode(mels: Tensor, books: dict[str, Tensor]) -> Tensor:
    """Return the codes of frames [n, 640] as uint8 [n, 16]."""
    rest = (mels - books["mean"]) @ books["projection"]
    codes = []
    for book in books["books"]:
        index = nearest(rest, book)
        rest = rest - book[index]
        codes.append(index.to(torch.uint8))
    return torch.stack(codes, 1)


def load_books(path: Path) -> dict[str, Tensor]:
    """Load the books; the first file of this voice used short names."""
    arrays = load_file(str(path))
    short = {"mu": "mean", "P": "projection"}
    return {short.get(name, name): array.float() for name, array in arrays.items()}


def gather(folder: Path) -> tuple[Tensor, dict[str, Tensor]]:
    """Join the workers' files: audio int16 [samples], and per-utterance arrays."""
    audio, rows, positions, lengths, lines = [], [], [], [], []
    offset = 0
    for path in sorted(folder.glob("script_*.npz")):
        script = np.load(path)
        samples = np.fromfile(
            folder / path.name.replace("script", "audio").replace("npz", "i16"), np.int16
        )
        line = script["line"].reshape(-1, 3)
        lines.append(line[:, 0])
        positions.append(line[:, 1] + offset)
        lengths.append(line[:, 2])
        rows.append(script["rows"])
        audio.append(samples)
        offset += len(samples)
    arrays = {
        "rows": torch.from_numpy(np.concatenate(rows, 1)),
        "position": torch.from_numpy(np.concatenate(positions)),
        "length": torch.from_numpy(np.concatenate(lengths)),
        "line": torch.from_numpy(np.concatenate(lines)),
    }
    return torch.from_numpy(np.concatenate(audio)), arrays


def frame_positions(position: Tensor, length: Tensor) -> Tensor:
    """Return the audio sample at which each frame of the widest shift begins: [frames]."""
    starts = torch.cumsum(length, 0) - length
    local = torch.arange(int(length.sum())) - torch.repeat_interleave(starts, length)
    return torch.repeat_interleave(position, length) + local * FRAME_SAMPLES


def shift_offset(shift: int) -> int:
    """Return how many samples behind the widest shift a grid shift begins."""
    return (NUM_SHIFTS - 1 - shift) * SHIFT_SAMPLES


def code_all(audio: Tensor, frames: Tensor, books_path: Path, device: str) -> Tensor:
    """Return codes [shifts, frames, 16]; fit the books first when there are none."""
    bank = mel_bank().to(device)
    audio, frames = audio.to(device), frames.to(device)
    samples = torch.arange(FRAME_SAMPLES, device=device)
    books: dict[str, Tensor] | None = None
    if books_path.is_file():
        books = {name: array.to(device) for name, array in load_books(books_path).items()}
    else:
        picked = frames[: KMEANS_FRAMES // CHUNK_FRAMES * CHUNK_FRAMES].split(CHUNK_FRAMES)
        mels = [
            mel_frames((audio[part[:, None] + samples].float() / 32768).flatten(), bank)
            for part in picked
        ]
        books = fit_books(torch.cat(mels))
        save_file({k: v.cpu().contiguous() for k, v in books.items()}, str(books_path))
    out = []
    for shift in range(NUM_SHIFTS):
        codes = []
        for part in frames.split(CHUNK_FRAMES):
            index = part[:, None] + shift_offset(shift) + samples
            wave = (audio[index].float() / 32768).flatten()
            codes.append(encode(mel_frames(wave, bank), books).cpu())
        out.append(torch.cat(codes))
    return torch.stack(out)


def main() -> None:
    """Code everything in a folder."""
    began = time.time()
    folder, books_path = Path(sys.argv[1]), Path(sys.argv[2])
    device = sys.argv[3] if len(sys.argv) > 3 else "cuda"
    audio, arrays = gather(folder)
    audio.numpy().tofile(folder / "audio.i16")
    arrays["frame_position"] = frame_positions(arrays["position"], arrays["length"])
    arrays["codes"] = code_all(audio, arrays["frame_position"], books_path, device)
    torch.save(arrays, folder / "data.pt")
    num_frames = int(arrays["length"].sum())
    print(
        f"coded {len(arrays['length'])} utterances, {num_frames} frames x {NUM_SHIFTS} shifts "
        f"in {time.time() - began:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
