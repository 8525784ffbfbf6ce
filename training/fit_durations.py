"""Fit the duration network on the teacher's own durations.

`python -m training.fit_durations WORK VOICE_FOLDER` reads the scripts of training.speak and
writes VOICE_FOLDER/durations.npz (float16). It predicts the mean logarithm of a sound's length in
40 ms slots at the teacher's speed 1, then scales it so that whole utterances keep their length.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from playhead.engine.text.english.durations import (
    CONTEXT,
    DURATIONS_FILE,
    NUM_TRAITS,
    DurationModel,
)
from playhead.engine.text.english.phonemes import NUM_SOUNDS

WIDTHS = (96, 48)
SHORTEST_SLOTS = 0.3


class Network(nn.Module):
    """The network of playhead.engine.text.english.durations, for training."""

    def __init__(self) -> None:
        """Start near a mean of two slots."""
        super().__init__()
        first, second = WIDTHS
        self.table = nn.Parameter(0.05 * torch.randn(len(CONTEXT), NUM_SOUNDS + 1, first))
        self.traits = nn.Linear(NUM_TRAITS, first)
        self.middle, self.last = nn.Linear(first, second), nn.Linear(second, 1)

    def forward(self, around: Tensor, places: Tensor) -> Tensor:
        """Return log slots [n]."""
        hidden = self.traits(places)
        for index in range(len(CONTEXT)):
            hidden = hidden + self.table[index][around[:, index]]
        out: Tensor = self.last(torch.relu(self.middle(torch.relu(hidden))))
        return out[:, 0]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the weights under the names the product loads."""
        tensors = {
            "table": self.table,
            "trait_weight": self.traits.weight.T,
            "bias_0": self.traits.bias,
            "weight_1": self.middle.weight.T,
            "bias_1": self.middle.bias,
            "weight_2": self.last.weight.T,
            "bias_2": self.last.bias,
        }
        return {k: v.detach().cpu().numpy().astype(np.float16) for k, v in tensors.items()}


def load(work: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Return neighbours, traits and slots at speed 1 of every sound with a known length."""
    around, places, slots = [], [], []
    for path in sorted(work.glob("script_*.npz")):
        script = np.load(path)
        known = np.isfinite(script["slots"])
        around.append(script["around"][known])
        places.append(script["places"][known])
        slots.append((script["slots"] * script["rate"])[known])
    return (
        torch.from_numpy(np.concatenate(around)).long(),
        torch.from_numpy(np.concatenate(places)).float(),
        torch.from_numpy(np.concatenate(slots)).clamp_min(SHORTEST_SLOTS),
    )


def fit(data: tuple[Tensor, Tensor, Tensor], steps: int, device: str) -> Network:
    """Train on nine tenths; print the error on the rest."""
    around, places, slots = (part.to(device) for part in data)
    target = slots.log()
    held = torch.arange(len(target), device=device) % 10 == 0
    network = Network().to(device)
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    train = (~held).nonzero()[:, 0]
    for _ in range(steps):
        pick = train[torch.randint(len(train), (8192,), device=device)]
        loss = nn.functional.huber_loss(
            network(around[pick], places[pick]), target[pick], delta=0.5
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        made = network(around, places).exp()
        ratio = float(slots[held].sum() / made[held].sum())
        network.last.bias.add_(float(np.log(ratio)))
        error = (made[held] * ratio - slots[held]).abs().mean()
        spread = (slots[held] - slots[held].mean()).abs().mean()
    print(
        f"durations: {len(target)} sounds, mean {float(slots.mean()):.2f} slots, held-out error "
        f"{float(error):.3f} slots (a constant: {float(spread):.3f})"
    )
    return network


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work")
    parser.add_argument("voice_folder")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    network = fit(load(Path(options.work)), options.steps, options.device)
    path = Path(options.voice_folder) / DURATIONS_FILE
    np.savez_compressed(path, allow_pickle=False, **network.arrays())
    DurationModel.load(Path(options.voice_folder))


if __name__ == "__main__":
    main()
