"""Errors of logits in units of the norm of their head's row, a bound of them, and the choices."""

import numpy as np
import torch
from torch import Tensor

from playhead.engine.units import CODEBOOKS

BOUND = 1.5
"""Two bf16 routes differ in where they round; the largest of some million errors varies by less."""


class Errors:
    """Logit errors in units of the norm of the head's row, and the choices, of what was seen."""

    def __init__(self, norms: Tensor) -> None:
        """Begin with nothing seen; `norms` [16, num_codes] are those of the heads' rows."""
        self._norms = norms.unsqueeze(1)
        self.half_most, self.mine_most = torch.zeros(2, CODEBOOKS)
        """[16]: largest error of the eager model in the engine's dtype, and of the frame."""
        self._half_square, self._mine_square = torch.zeros(2, CODEBOOKS)
        self._margins: list[Tensor] = []
        self._best: list[Tensor] = []
        self._same: list[Tensor] = []

    def add(self, wanted: Tensor, half: Tensor, mine: Tensor) -> None:
        """Take in logits [16, rows, num_codes] of one frame from all three."""
        for most, square, got in (
            (self.half_most, self._half_square, half),
            (self.mine_most, self._mine_square, mine),
        ):
            error = ((got - wanted).abs() / self._norms).nan_to_num(nan=torch.inf)
            most.copy_(torch.maximum(most, error.amax((1, 2)).cpu()))
            square += error.square().mean((1, 2)).cpu()
        best = wanted.argmax(2)
        self._margins.append(margins(wanted, self._norms, best).cpu())
        self._best.append(best.cpu())
        self._same.append((mine.argmax(2) == best).cpu())

    def figures(self) -> dict[str, float]:
        """Return the figures of the whole run; bounds and errors in units of a row's norm."""
        bound = BOUND * self.half_most
        margin, best, same = (torch.stack(x) for x in (self._margins, self._best, self._same))
        covered = margin > bound[None, :, None]
        kinds = [len(codes.unique()) for codes in best.transpose(0, 1)]
        told = {
            "positions": float(covered.numel()),
            "covered_share": float(covered.float().mean()),
            "covered_share_least_codebook": float(covered.float().mean((0, 2)).min()),
            "exceptions": float((covered & ~same).sum()),
            "same_argmax_share": float(same.float().mean()),
            "best_codes_per_codebook": float(np.mean(kinds)),
            "bound_used": float((self.mine_most / bound).max()),
            "rms_ratio": float((self._mine_square / self._half_square).sqrt().max()),
        }
        parts = (("bound", bound), ("error", self.mine_most), ("half_error", self.half_most))
        for name, values in parts:
            told[f"logit_{name}_talker"] = float(values[0])
            told[f"logit_{name}_predictor"] = float(values[1:].max())
        return told


def margins(logits: Tensor, norms: Tensor, best: Tensor) -> Tensor:
    """Return [16, rows]: the beta up to which no other code can overtake the best.

    logits [16, rows, codes], norms [16, 1, codes], best [16, rows]: the smallest of
    (l[best] - l[v]) / (|w[best]| + |w[v]|) over all other codes v.
    """
    at = best.unsqueeze(2)
    wide = norms.expand_as(logits)
    apart = (logits.gather(2, at) - logits) / (wide.gather(2, at) + wide)
    return apart.scatter(2, at, torch.inf).amin(2)
