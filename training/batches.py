"""Training rows: utterances behind one another up to a fixed length, as indices of frames."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.sizes import TTS_EOS, TTS_PAD

ROW_FRAMES = (96, 192, 384, 512)
"""Lengths of training rows; the engine's segments are at most 512 frames."""
ROW_WEIGHTS = (0.35, 0.3, 0.2, 0.15)
HELD_OUT_EVERY = 100


@dataclass(frozen=True, slots=True)
class Batch:
    """One training step's rows; T frames a row."""

    index: Tensor
    """Frame of the corpus, [B, T]; 0 past the end."""
    length: Tensor
    """Frames of each row, [B]."""


class Corpus:
    """All frames at all grid shifts, on the training device."""

    def __init__(self, folders: list[Path], device: str) -> None:
        """Load `data.pt` of each folder."""
        codes, rows, starts, lengths, lines = [], [], [], [], []
        offset = 0
        for folder in folders:
            data = torch.load(folder / "data.pt", weights_only=True)
            num_shifts, num_frames, _ = data["codes"].shape
            codes.append(data["codes"].flatten(0, 1))
            rows.append(data["rows"].flatten())
            length = data["length"].numpy()
            start = np.cumsum(length) - length
            for shift in range(num_shifts):
                starts.append(start + offset + shift * num_frames)
                lengths.append(length)
                lines.append(data["line"].numpy())
            offset += num_shifts * num_frames
        self.codes = torch.cat(codes).to(device)
        self.rows = torch.cat(rows).to(device).long()
        self.device = device
        start, length = np.concatenate(starts), np.concatenate(lengths)
        held = np.concatenate(lines) % HELD_OUT_EVERY == 7
        if not held.any():
            held[: max(1, len(held) // 10)] = True
        self.train = np.stack([start[~held], length[~held]], 1)
        self.held = np.stack([start[held], length[held]], 1)

    def text(self, batch: Batch) -> Tensor:
        """Return text rows with the end row behind each row's last frame: [B, T + 1]."""
        frames = batch.index.shape[1]
        at = torch.arange(frames + 1, device=self.device)
        rows = torch.nn.functional.pad(self.rows[batch.index], (0, 1), value=TTS_PAD)
        end = batch.length[:, None]
        rows = torch.where(at == end, TTS_EOS, rows)
        return torch.where(at > end, TTS_PAD, rows)


class Packer:
    """Draws utterances without repeating one before all were drawn."""

    def __init__(
        self, utterances: npt.NDArray[np.int64], positions: int, device: str, seed: int
    ) -> None:
        """Take [start, length] of each utterance and the positions of a batch."""
        self._utterances, self._positions, self._device = utterances, positions, device
        self._random = np.random.default_rng(seed)
        self._order: list[int] = []

    def draw(self) -> Batch:
        """Return the next batch."""
        frames = int(self._random.choice(ROW_FRAMES, p=ROW_WEIGHTS))
        count = max(1, self._positions // frames)
        index = np.zeros((count, frames), np.int64)
        lengths = np.zeros(count, np.int64)
        for row in range(count):
            lengths[row] = self._fill(index[row])
        return Batch(
            torch.from_numpy(index).to(self._device), torch.from_numpy(lengths).to(self._device)
        )

    def _fill(self, row: npt.NDArray[np.int64]) -> int:
        """Put utterances into a row until the next does not fit; return the frames filled."""
        filled = 0
        while True:
            if not self._order:
                self._order = self._random.permutation(len(self._utterances)).tolist()
            start, length = self._utterances[self._order[-1]]
            if filled + length > len(row):
                if filled:
                    return filled
                self._order.pop()
                continue
            self._order.pop()
            row[filled : filled + length] = np.arange(start, start + length)
            filled += int(length)


def held_out(corpus: Corpus, count: int = 96) -> Batch:
    """Return held-out utterances, one a row."""
    chosen = corpus.held[:: max(1, len(corpus.held) // count)][:count]
    frames = int(chosen[:, 1].max())
    index = np.zeros((len(chosen), frames), np.int64)
    for row, (start, length) in zip(index, chosen, strict=True):
        row[:length] = np.arange(start, start + length)
    return Batch(
        torch.from_numpy(index).to(corpus.device),
        torch.from_numpy(chosen[:, 1].copy()).to(corpus.device),
    )
