"""Choosing codes: greedy, or Gumbel-max over top-k then top-p, by rows with settings of their own.

A draw depends on (seed, frame, codebook, token) alone, so a row draws the same in any batch.
Settings are run-time tensors: rows of any settings share a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from playhead.engine.models.config import ResolvedSampling
from playhead.kernels import (
    philox_gumbel,
    repetition_penalty,
    top_k_threshold,
    top_p_threshold,
)


@dataclass(frozen=True, slots=True)
class StageSampling:
    """Settings of one model for the rows of a batch; tensors are [B, 1]."""

    greedy: bool
    """Every row is greedy: no noise is needed at all."""
    sampled: Tensor
    """1.0 where the row is sampled, 0.0 where it is greedy."""
    inverse_temperature: Tensor
    """1.0 where the row is greedy."""
    top_k: Tensor
    largest_k: int
    """0: no row limits k."""
    top_p: Tensor | None
    """None: no row limits the mass."""

    @classmethod
    def of(
        cls, rows: Sequence[tuple[float, int, float]], num_codes: int, device: torch.device
    ) -> "StageSampling":
        """Build from each row's (temperature, top_k, top_p); top_k 0 is off."""

        def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)[:, None]

        limits = [min(k, num_codes) if k > 0 and t > 0 else num_codes for t, k, _ in rows]
        limited = [k for k in limits if k < num_codes]
        # One row without a limit makes every row sort in full; it is rare and stays correct.
        largest_k = max(limits) if limited else 0
        masses = [p if t > 0 else 1.0 for t, _, p in rows]
        return cls(
            greedy=all(t == 0 for t, _, _ in rows),
            sampled=column([float(t > 0) for t, _, _ in rows], torch.float32),
            inverse_temperature=column(
                [1 / t if t > 0 else 1.0 for t, _, _ in rows], torch.float32
            ),
            top_k=column(limits, torch.int64),
            largest_k=largest_k,
            top_p=column(masses, torch.float32) if any(p < 1 for p in masses) else None,
        )

    def choose(self, logits: Tensor, noise: Tensor | None) -> Tensor:
        """Return codes [B] int64 from logits [B, V] and noise [B, V] (zero for greedy rows)."""
        if self.greedy or noise is None:
            return logits.argmax(-1)
        scores = logits.float() * self.inverse_temperature
        if self.largest_k:
            threshold = top_k_threshold(scores, self.top_k, self.largest_k)
            scores = torch.where(scores < threshold, float("-inf"), scores)
        if self.top_p is not None:
            threshold = top_p_threshold(scores, self.top_p)
            scores = torch.where(scores < threshold, float("-inf"), scores)
        return scores.add_(noise).argmax(-1)


@dataclass(frozen=True, slots=True)
class BatchSampling:
    """Settings of a batch of rows for both models."""

    talker: StageSampling
    predictor: StageSampling
    penalty: Tensor | None
    """Repetition penalty [B, 1]; None where every row has 1."""
    seeds: Tensor
    """[B] int64."""
    sampled: Tensor
    """[B, 16, 1]: which codebooks of which rows take noise."""

    @classmethod
    def of(
        cls,
        rows: Sequence[ResolvedSampling],
        seeds: Sequence[int],
        num_codes: int,
        num_codebooks: int,
        device: torch.device,
    ) -> "BatchSampling":
        """Build from each row's settings and seed."""
        talker = StageSampling.of(
            [(r.temperature, r.top_k, r.top_p) for r in rows], num_codes + 1, device
        )
        predictor = StageSampling.of(
            [(r.predictor_temperature, r.predictor_top_k, r.predictor_top_p) for r in rows],
            num_codes,
            device,
        )
        penalties = [r.repetition_penalty for r in rows]
        penalty = None
        if any(p != 1 for p in penalties):
            penalty = torch.tensor(penalties, dtype=torch.float32, device=device)[:, None]
        parts = [talker.sampled] + [predictor.sampled] * (num_codebooks - 1)
        return cls(
            talker=talker,
            predictor=predictor,
            penalty=penalty,
            seeds=torch.tensor([_signed(s) for s in seeds], dtype=torch.int64, device=device),
            sampled=torch.stack(parts, 1),
        )

    def noise(self, frames: Tensor, num_codes: int) -> Tensor | None:
        """Return Gumbel noise [B, 16, num_codes + 1] of frames [B], or None if all is greedy.

        All codebooks of a frame are drawn at once: one set of calls, not sixteen.
        """
        if self.talker.greedy and self.predictor.greedy:
            return None
        drawn = philox_gumbel(self.seeds, frames, self.sampled.shape[1], num_codes + 1)
        return drawn.mul_(self.sampled)

    def first_scores(self, logits: Tensor, seen: Tensor, must_go_on: Tensor | None) -> Tensor:
        """Return codebook-0 scores [B, V + 1]: penalty over `seen` [B, V + 1] bool, then the end.

        `must_go_on` [B] bool masks end of speech; None where no row masks it.
        """
        scores = logits.float()
        if self.penalty is not None:
            scores = repetition_penalty(scores, seen, self.penalty)
        if must_go_on is not None:
            scores[:, -1].masked_fill_(must_go_on, float("-inf"))
        return scores


def _signed(seed: int) -> int:
    """Wrap any whole number into int64: seeds are 64-bit keys."""
    seed &= (1 << 64) - 1
    return seed - (1 << 64) if seed >> 63 else seed
