"""Train talker and code predictor on coded speech.

`python -m training.train_talker WORK OUT --seconds 500` resumes from `WORK/talker_state.pt` (the
first folder's, of several) and leaves `OUT/talker.pt` and `OUT/predictor.pt` (float16 averages).
The learning rate falls to its end within each call, so that every call leaves a whole voice; a
later call begins with a lower `--peak` and may add folders of speech behind the earlier ones.

A model that only ever saw true history drifts on its own. So the history is partly hidden, partly
noised, and partly what the model itself says at that frame: its own samples are kept in a copy of
the corpus (`echo`) and refreshed as training goes on.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from playhead.engine.text.english.phonemes import NUM_SOUNDS, PAIR_BASE
from playhead.engine.units import CODEBOOKS
from training.batches import Batch, Corpus, Packer, held_out
from training.sizes import CODEC_EOS, SIZES, Sizes
from training.states import save_state
from training.talker import PROMPT_ROWS, Talker, TextTable

PEAK_RATE, WARMUP_STEPS = 1.2e-3, 300
PREDICTOR_WEIGHT = 4.0
"""Of the mean loss of codebooks 1 to 15, where words are lost (README); 15 is their likelihood."""
ECHO_EVERY, ECHO_FRAMES, ECHO_TEMPERATURE = 3, 6144, 0.75
MAX_ECHO_SHARE, MAX_HIDDEN_SHARE = 0.8, 0.25
NOISED_FRAMES, NOISED_CODES = 0.04, 0.25


def load_weights(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Load `talker.pt` and `predictor.pt` of a folder: weights of the model and its text table."""
    parts = torch.load(folder / "talker.pt", map_location="cpu", weights_only=True)
    predictor = torch.load(folder / "predictor.pt", map_location="cpu", weights_only=True)
    model = {k: v.float() for k, v in (parts["model"] | predictor).items()}
    return model, {k: v.float() for k, v in parts["table"].items()}


class Trainer:
    """Model, corpus, optimiser and averaged weights."""

    def __init__(self, options: argparse.Namespace, sizes: Sizes = SIZES) -> None:
        """Load the corpus; resume when there is a state."""
        self.options, self.device = options, options.device
        self.cuda = options.device.startswith("cuda")
        folders = [Path(folder) for folder in options.work.split(",")]
        self.corpus = Corpus(folders, options.device)
        self.echo = self.corpus.codes.clone()
        self.model = Talker(sizes, options.dropout).to(self.device)
        self.table = TextTable(self.model, PAIR_BASE, NUM_SOUNDS).to(self.device)
        self.parameters = [*self.model.parameters(), *self.table.parameters()]
        matrices = [p for p in self.parameters if p.ndim > 1]
        vectors = [p for p in self.parameters if p.ndim <= 1]
        groups: list[dict[str, Any]] = [
            {"params": matrices},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(
            groups,
            lr=options.peak,
            betas=(0.9, 0.98),
            weight_decay=0.05,
            fused=self.cuda,
        )
        self.average = [p.detach().clone() for p in self.parameters]
        self.step = self.resumed_step = 0
        self.state_path = folders[0] / "talker_state.pt"
        if self.state_path.is_file():
            self._resume()
        elif options.start:
            self._start_from(Path(options.start))
        seed = int(time.time())
        torch.manual_seed(seed)
        self.packer = Packer(self.corpus.train, options.positions, self.device, seed)
        self.validation = held_out(self.corpus)
        self.predictor_loss = self._predictor_loss
        if options.compile:
            self.predictor_loss = torch.compile(self._predictor_loss)

    def _resume(self) -> None:
        state = torch.load(self.state_path, map_location=self.device, weights_only=False)
        self.model.load_state_dict(state["model"])
        self.table.load_state_dict(state["table"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.average = state["average"]
        self.step = self.resumed_step = state["step"]
        self.echo[: len(state["echo"])] = state["echo"].to(self.device)

    def _start_from(self, path: Path) -> None:
        model, table = load_weights(path)
        self.model.load_state_dict(model)
        self.table.load_state_dict(table)
        self.average = [p.detach().clone() for p in self.parameters]

    def hidden(self, batch: Batch, codes: Tensor, text: Tensor, english: bool) -> Tensor:
        """Return final hidden states [B, T + 1, width]: state s makes frame s."""
        rows = self.table(text)
        history = self.model.frame_rows(codes)
        if self.model.training:
            history = history * self._shown(history)
        first = rows[:, :1] + self.model.codec_bos()
        prompt = self.model.prompt(self.table, english).expand(len(rows), -1, -1)
        x = torch.cat([prompt.to(rows.dtype), first, rows[:, 1:] + history], 1)
        out = self.model.model.run(x, self.model.sizes.rope_theta)
        return out[:, PROMPT_ROWS[english] :]

    def _shown(self, history: Tensor) -> Tensor:
        """Hide some frames of the history, in some rows more than in others."""
        batch, frames, _ = history.shape
        share = MAX_HIDDEN_SHARE * torch.rand(batch, 1, 1, device=self.device)
        return (torch.rand(batch, frames, 1, device=self.device) > share).to(history.dtype)

    def _history(self, batch: Batch, codes: Tensor) -> Tensor:
        """Return the codes the model sees: true, its own, or noise."""
        rows, frames, _ = codes.shape
        share = MAX_ECHO_SHARE * torch.rand(rows, 1, 1, device=self.device)
        own = torch.rand(rows, frames, 1, device=self.device) < share
        codes = torch.where(own, self.echo[batch.index].long(), codes)
        frame = torch.rand(rows, frames, 1, device=self.device) < NOISED_FRAMES
        code = torch.rand(rows, frames, CODEBOOKS, device=self.device) < NOISED_CODES
        other = torch.randint(len(self.corpus.codes), (rows, frames), device=self.device)
        return torch.where(frame & code, self.corpus.codes[other].long(), codes)

    def _predictor_loss(self, hidden: Tensor, codes: Tensor) -> Tensor:
        logits = self.model.predictor_logits(hidden, codes)
        return F.cross_entropy(logits.float().flatten(0, 1), codes[:, 1:].flatten())

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the losses of codebook 0 (with the end of speech) and of codebooks 1..15."""
        training = self.model.training
        codes = self.corpus.codes[batch.index].long()
        text = self.corpus.text(batch)
        english = training and bool(np.random.random() < 0.5)
        history = self._history(batch, codes) if training else codes
        hidden = self.hidden(batch, history, text, english)
        at = torch.arange(codes.shape[1] + 1, device=self.device)[None]
        end = batch.length[:, None]
        labels = F.pad(codes[..., 0], (0, 1))
        labels = torch.where(at == end, CODEC_EOS, torch.where(at > end, -100, labels))
        logits = self.model.codec_head(hidden)
        talker = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100)
        alive = (at[:, :-1] < end).flatten().nonzero()[:, 0]
        if training:
            draw = torch.randint(len(alive), (self.options.predictor_frames,), device=self.device)
            alive = alive[draw]
        states = hidden[:, :-1].flatten(0, 1)[alive]
        predictor = self.predictor_loss if training else self._predictor_loss
        loss = predictor(states, codes.flatten(0, 1)[alive])
        if training and self.step % ECHO_EVERY == 0 and self.step > self.options.echo_after:
            picked = alive[:ECHO_FRAMES]
            first = logits[:, :-1].flatten(0, 1)[picked].detach()
            self._refresh(batch.index.flatten()[picked], states[:ECHO_FRAMES].detach(), first)
        return talker, loss

    @torch.no_grad()
    def _refresh(self, frames: Tensor, states: Tensor, first: Tensor) -> None:
        """Replace the echo of some frames by what the model says there now."""

        def draw(logits: Tensor) -> Tensor:
            noise = -torch.log(
                -torch.log(torch.rand_like(logits, dtype=torch.float32) + 1e-9) + 1e-9
            )
            return (logits.float() / ECHO_TEMPERATURE + noise).argmax(-1)

        predictor = self.model.code_predictor
        codes = [draw(first[:, : self.model.sizes.codebook])]
        rows = [states, self.model.model.codec_embedding(codes[0])]
        for stage in range(CODEBOOKS - 1):
            x = torch.stack([row.to(states.dtype) for row in rows], 1)
            out = predictor.model.run(x, self.model.sizes.rope_theta)[:, -1]
            codes.append(draw(predictor.lm_head[stage](out)))
            rows.append(predictor.model.codec_embedding[stage](codes[-1]))
        self.echo[frames] = torch.stack(codes, 1).to(torch.uint8)

    def train_step(self, progress: float) -> tuple[Tensor, Tensor]:
        """Take one step at a point of the call's learning-rate schedule."""
        warm = min(1.0, (self.step - self.resumed_step + 1) / WARMUP_STEPS)
        rate = self.options.peak * warm * (0.485 * (1 + np.cos(np.pi * progress)) + 0.03)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.model.train()
        with torch.autocast("cuda", torch.bfloat16, enabled=self.cuda):
            talker, predictor = self.losses(self.packer.draw())
        self.optimiser.zero_grad(set_to_none=True)
        weight = self.options.predictor_weight
        (2.0 / (1.0 + weight) * (talker + weight * predictor)).backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimiser.step()
        self.step += 1
        keep = 0.999 if self.step > 2000 else 0.98
        with torch.no_grad():
            torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1 - keep)
        return talker.detach(), predictor.detach()

    def _swap(self) -> None:
        """Exchange weights and averages."""
        with torch.no_grad():
            for weight, mean in zip(self.parameters, self.average, strict=True):
                kept = weight.detach().clone()
                weight.copy_(mean)
                mean.copy_(kept)

    def validate(self) -> list[float]:
        """Return held-out losses of the averaged weights."""
        self._swap()
        self.model.eval()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=self.cuda):
            losses = [float(loss) for loss in self.losses(self.validation)]
        self._swap()
        return losses

    def save(self) -> None:
        """Write the averages, and everything a later call needs."""
        self._swap()
        halves = {k: v.half().cpu() for k, v in self.model.state_dict().items()}
        table = {k: v.half().cpu() for k, v in self.table.state_dict().items()}
        self._swap()
        predictor = {k: halves.pop(k) for k in list(halves) if k.startswith("code_predictor.")}
        save_state(predictor, Path(self.options.out) / "predictor.pt")
        save_state({"model": halves, "table": table}, Path(self.options.out) / "talker.pt")
        state = {
            "model": self.model.state_dict(),
            "table": self.table.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "average": self.average,
            "step": self.step,
            "echo": self.echo,
        }
        save_state(state, self.state_path)


def run(trainer: Trainer, seconds: float) -> None:
    """Train for a time; the schedule runs over it."""
    began = reported = saved = time.time()
    sums: list[Tensor] = []
    while time.time() - began < seconds:
        losses = trainer.train_step(min(1.0, (time.time() - began) / seconds))
        if trainer.step % 20 == 0 or not trainer.cuda:
            sums.append(torch.stack(losses))
        if sums and (time.time() - reported > 25 or not trainer.cuda):
            train = torch.stack(sums).mean(0).tolist()
            held = trainer.validate()
            print(
                f"talker step {trainer.step} {time.time() - began:.0f}s "
                f"train {train[0]:.3f} {train[1]:.3f} held-out {held[0]:.3f} {held[1]:.3f}",
                flush=True,
            )
            sums, reported = [], time.time()
        if time.time() - saved > 90:
            trainer.save()
            saved = time.time()
    trainer.save()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", help="folders with data.pt, comma-separated")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--peak", type=float, default=PEAK_RATE, help="highest learning rate")
    parser.add_argument("--predictor-weight", type=float, default=PREDICTOR_WEIGHT)
    parser.add_argument("--layers", type=int, default=SIZES.talker_layers, help="of the talker")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--positions", type=int, default=16384)
    parser.add_argument("--predictor-frames", type=int, default=6144)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--echo-after", type=int, default=3000)
    parser.add_argument("--start", default="", help="folder with weights to begin from")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args(arguments)


def main() -> None:
    """Train."""
    torch.backends.cuda.matmul.allow_tf32 = True
    options, began = parse(), time.time()
    Path(options.out).mkdir(parents=True, exist_ok=True)
    trainer = Trainer(options, replace(SIZES, talker_layers=options.layers))
    print(
        f"talker: {sum(p.numel() for p in trainer.parameters) / 1e6:.2f} M parameters, "
        f"{len(trainer.corpus.train)} utterances, resumed at step {trainer.step}",
        flush=True,
    )
    run(trainer, options.seconds - (time.time() - began))
    print(f"talker: done at step {trainer.step}", flush=True)


if __name__ == "__main__":
    main()
