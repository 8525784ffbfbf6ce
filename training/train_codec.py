"""Train the codec decoder: fixed codes to speech, spectral loss first, then critics.

`python -m training.train_codec WORK OUT --seconds 500 [--start codec.safetensors]` resumes from
`WORK/codec_state.pt` and leaves `OUT/codec.pt` (float16 averages). The learning rate falls to its
end within each call.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from playhead.engine.units import FRAME_SAMPLES
from training.codec import Codec
from training.coding import load_books, shift_offset
from training.discriminators import SpectralLoss, critics
from training.states import save_state

CONTEXT_FRAMES, LOSS_FRAMES = 12, 12
PEAK_RATE, WARM_RATE = 1e-3, 7e-4
CRITICS_FROM = 0.16
"""Share of the first call after which the critics join, when training starts from nothing."""
CRITIC_WARMUP_STEPS = 150
BEGINNING_EVERY = 6
"""Steps between batches of utterance beginnings, decoded from an empty past as a stream is."""


class CodecTrainer:
    """Decoder, critics, corpus of codes and audio."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Load; resume when there is a state."""
        self.options, self.device = options, options.device
        self.cuda = options.device.startswith("cuda")
        work = Path(options.work)
        data = torch.load(work / "data.pt", weights_only=True)
        self.codes = data["codes"].to(self.device)
        self.positions = data["frame_position"].to(self.device)
        length = data["length"].to(self.device)
        begins = torch.cumsum(length, 0) - length
        self.begins = begins[begins <= len(self.positions) - LOSS_FRAMES]
        audio = np.fromfile(work / "audio.i16", dtype=np.int16)
        self.audio = torch.from_numpy(audio).to(self.device)
        offsets = [shift_offset(shift) for shift in range(len(self.codes))]
        self.offsets = torch.tensor(offsets, device=self.device)
        self.codec = Codec().to(self.device)
        self.critics = critics().to(self.device)
        self.spectral = SpectralLoss().to(self.device)
        self.warm = bool(options.start)
        if self.warm:
            weights = load_file(options.start, device=self.device)
            names = {k.removeprefix("decoder."): v.float() for k, v in weights.items()}
            self.codec.load_state_dict(names)
        else:
            self.codec.start_from_books(load_books(Path(options.books))["books"].to(self.device))
        unused = ("cluster_usage", "input_proj.weight")
        self.trained = [
            p
            for name, p in self.codec.named_parameters()
            if not (name.startswith("quantizer.") and name.endswith(unused))
        ]
        adam: dict[str, Any] = {"betas": (0.8, 0.99), "weight_decay": 1e-3}
        self.decoder_optimiser = torch.optim.AdamW(self.trained, lr=PEAK_RATE, **adam)
        self.critic_optimiser = torch.optim.AdamW(self.critics.parameters(), lr=5e-4, **adam)
        self.average = [p.detach().clone() for p in self.trained]
        self.step = self.resumed_step = 0
        self.state_path = work / "codec_state.pt"
        if self.state_path.is_file():
            self._resume()
        self.frames = torch.arange(CONTEXT_FRAMES + LOSS_FRAMES, device=self.device)
        self.samples = torch.arange(FRAME_SAMPLES, device=self.device)

    def _resume(self) -> None:
        state = torch.load(self.state_path, map_location=self.device, weights_only=False)
        self.codec.load_state_dict(state["codec"])
        self.critics.load_state_dict(state["critics"])
        self.decoder_optimiser.load_state_dict(state["decoder_optimiser"])
        self.critic_optimiser.load_state_dict(state["critic_optimiser"])
        self.average = state["average"]
        self.step = self.resumed_step = state["step"]

    def draw(self) -> tuple[Tensor, Tensor]:
        """Return codes [B, 16, T] and the audio of the last LOSS_FRAMES [B, 1, samples].

        Frames before them are context; a batch of beginnings has none.
        """
        batch, span = self.options.batch, len(self.frames)
        if self.step % BEGINNING_EVERY == 0:
            pick = torch.randint(0, len(self.begins), (batch,), device=self.device)
            index = self.begins[pick][:, None] + self.frames[:LOSS_FRAMES]
        else:
            start = torch.randint(0, len(self.positions) - span, (batch,), device=self.device)
            index = start[:, None] + self.frames
        shift = torch.randint(0, len(self.codes), (batch,), device=self.device)
        codes = self.codes[shift[:, None], index].long().transpose(1, 2)
        begins = self.positions[index[:, -LOSS_FRAMES:]] + self.offsets[shift][:, None]
        audio = self.audio[begins[..., None] + self.samples].float().div_(32768)
        return codes, audio.flatten(1)[:, None]

    def train_step(self, progress: float) -> Tensor:
        """Take one step; return the spectral loss."""
        peak = WARM_RATE if self.warm else PEAK_RATE
        rate = peak * min(1, (self.step - self.resumed_step + 1) / 200)
        rate *= 0.475 * (1 + np.cos(np.pi * progress)) + 0.05
        judged = self.warm or self.resumed_step > 0 or progress > CRITICS_FROM
        for group in self.decoder_optimiser.param_groups:
            group["lr"] = rate * (0.6 if judged else 1.0)
        for group in self.critic_optimiser.param_groups:
            group["lr"] = max(0.5 * rate, 1e-4)
        codes, real = self.draw()
        self.codec.train()
        made = self.codec(codes)[..., -LOSS_FRAMES * FRAME_SAMPLES :]
        spectral = self.spectral(made, real)
        loss = spectral + 0.2 * (made.abs().clamp_min(0.98) - 0.98).mean()
        if judged:
            self._teach_critics(made.detach(), real)
            flattery = self._flattery(made, real)
            loss = 3.0 * loss + flattery * float(self.step > CRITIC_WARMUP_STEPS)
        self.decoder_optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.trained, 3.0)
        if torch.isfinite(norm):
            self.decoder_optimiser.step()
        self.step += 1
        keep = 0.999 if self.step > 500 else 0.98
        with torch.no_grad():
            torch._foreach_lerp_(self.average, [p.detach() for p in self.trained], 1 - keep)
        return spectral.detach()

    def _teach_critics(self, made: Tensor, real: Tensor) -> None:
        loss = made.new_zeros(())
        with torch.autocast("cuda", torch.bfloat16, enabled=self.cuda):
            for critic in self.critics:
                score, _ = critic(torch.cat([real, made]))
                on_real, on_made = score.float().chunk(2)
                loss = loss + ((1 - on_real) ** 2).mean() + (on_made**2).mean()
        self.critic_optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.critics.parameters(), 5.0)
        self.critic_optimiser.step()

    def _flattery(self, made: Tensor, real: Tensor) -> Tensor:
        """Return the adversarial and feature-matching losses of the decoder."""
        total = made.new_zeros(())
        with torch.autocast("cuda", torch.bfloat16, enabled=self.cuda):
            for critic in self.critics:
                score, features = critic(torch.cat([real, made]))
                total = total + 2.0 * ((1 - score.float().chunk(2)[1]) ** 2).mean()
                for feature in features:
                    a, b = feature.float().chunk(2)
                    scale = a.detach().abs().mean().clamp_min(1e-3)
                    total = total + (a.detach() - b).abs().mean() / scale
        return total / len(self.critics)

    def save(self) -> None:
        """Write the averages, and everything a later call needs."""
        kept = [p.detach().clone() for p in self.trained]
        with torch.no_grad():
            for weight, mean in zip(self.trained, self.average, strict=True):
                weight.copy_(mean)
        halves = {k: v.half().cpu() for k, v in self.codec.state_dict().items()}
        with torch.no_grad():
            for weight, old in zip(self.trained, kept, strict=True):
                weight.copy_(old)
        save_state(halves, Path(self.options.out) / "codec.pt")
        state = {
            "codec": self.codec.state_dict(),
            "critics": self.critics.state_dict(),
            "decoder_optimiser": self.decoder_optimiser.state_dict(),
            "critic_optimiser": self.critic_optimiser.state_dict(),
            "average": self.average,
            "step": self.step,
        }
        save_state(state, self.state_path)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--start", default="", help="codec weights to begin from")
    parser.add_argument("--books", default="", help="books to begin from, without --start")
    return parser.parse_args(arguments)


def main() -> None:
    """Train."""
    options, began = parse(), time.time()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(int(time.time()))
    Path(options.out).mkdir(parents=True, exist_ok=True)
    trainer = CodecTrainer(options)
    print(f"codec: resumed at step {trainer.step}", flush=True)
    reported = saved = time.time()
    sums: list[Tensor] = []
    while time.time() - began < options.seconds:
        loss = trainer.train_step(min(1.0, (time.time() - began) / options.seconds))
        if trainer.step % 50 == 0 or not trainer.cuda:
            sums.append(loss)
        if sums and (time.time() - reported > 30 or not trainer.cuda):
            mean = float(torch.stack(sums).mean())
            print(f"codec step {trainer.step} spectral {mean:.3f}", flush=True)
            sums, reported = [], time.time()
        if time.time() - saved > 90:
            trainer.save()
            saved = time.time()
    trainer.save()
    print(f"codec: done at step {trainer.step}", flush=True)


if __name__ == "__main__":
    main()
