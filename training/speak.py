"""The teacher reads the lines, several processes on the GPUs; audio and alignment to disk.

`python -m training.speak LINES OUT TEACHER VOICE.bin VOCAB.json VOICE_FOLDER --seconds 150`
Each worker writes `audio_K.i16` (utterances behind one another, each with room for the grid
shifts) and `script_K.npz`. TEACHER is what training.teacher wrote.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.multiprocessing as mp

from playhead.engine.text.english.lexicon import load_lexicon
from playhead.engine.units import FRAME_SAMPLES
from training import alignment
from training.sizes import MAX_FRAMES
from training.teacher import Teacher

SPEEDS = (0.82, 0.88, 0.94, 1.0, 1.06)
LEAD_SAMPLES = 1920
"""Silence before the first sound at grid shift 0."""
SHIFT_SAMPLES = 480
NUM_SHIFTS = 4
CHARACTER_SAMPLES = 600
"""The teacher's unit of duration: 25 ms."""
EARLY_SAMPLES = 960
"""Its sounds are heard before the times it counts: 35 ms at beginnings and 43 ms behind pauses, the
medians over the held-out lines at speed 0.95; a slot of 40 ms. A row that named a sound so late
would tell the talker only one slot of what follows its frame, not two."""


def worker(index: int, options: argparse.Namespace, deadline: float) -> None:
    """Speak every n-th line until the deadline."""
    torch.set_num_threads(1)
    device = options.device
    if device == "cuda":
        device = f"cuda:{index % torch.cuda.device_count()}"
    speaker = Speaker(options, device, seed=index)
    lines = Path(options.lines).read_text(encoding="utf-8").splitlines()
    kept: list[dict[str, npt.NDArray[np.generic]]] = []
    position = 0
    with open(Path(options.out) / f"audio_{index}.i16", "wb") as audio_file:
        for at in range(index, len(lines), options.workers):
            if time.time() > deadline:
                break
            spoken = speaker.speak(lines[at])
            if spoken is None:
                continue
            audio, script = spoken
            audio_file.write((np.clip(audio, -1, 1) * 32767).astype(np.int16).tobytes())
            script["line"] = np.array([at, position, len(script["rows"][0])])
            position += len(audio)
            kept.append(script)
    if kept:
        save_scripts(kept, Path(options.out) / f"script_{index}.npz")


def save_scripts(kept: list[dict[str, npt.NDArray[np.generic]]], path: Path) -> None:
    """Join the arrays of all utterances; `line` is [line, audio position, frames], 3 a row."""
    joined = {key: np.concatenate([one[key] for one in kept], -1) for key in ("rows", "line")}
    for key in ("around", "places", "slots", "rate"):
        joined[key] = np.concatenate([one[key] for one in kept])
    np.savez(path, allow_pickle=False, **joined)


class Speaker:
    """The teacher with one voice, and the front end's lexicon."""

    def __init__(self, options: argparse.Namespace, device: str, seed: int) -> None:
        """Load everything onto a device."""
        self._teacher = Teacher(Path(options.teacher)).to(device)
        style = np.fromfile(options.voice, dtype=np.float32).reshape(-1, 256)
        self._style = torch.from_numpy(style).to(device)
        self._vocabulary = json.loads(Path(options.vocab).read_text(encoding="utf-8"))["vocab"]
        self._lexicon = load_lexicon(Path(options.voice_folder))
        self._random = np.random.default_rng(seed)
        self._device = device

    def raw(
        self, line: str, speed: float
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], alignment.Script]:
        """Return audio, 25 ms units per character (with both ends), and the script."""
        script = alignment.script_of(line, self._lexicon)
        ids = [self._vocabulary[character] for character in script.characters]
        style = self._style[min(len(ids), len(self._style)) - 1][None]
        audio, units = self._teacher.speak(
            torch.tensor([[0, *ids, 0]], device=self._device), style, speed
        )
        return audio.float().cpu().numpy(), units.cpu().numpy(), script

    def speak(
        self, line: str
    ) -> tuple[npt.NDArray[np.float32], dict[str, npt.NDArray[np.generic]]] | None:
        """Return an utterance and its script, None when it is no use."""
        speed = float(self._random.choice(SPEEDS))
        audio, units, script = self.raw(line, speed)
        loud = alignment.loud_blocks(audio) if np.isfinite(audio).all() else np.zeros(1, bool)
        if not loud.any() or len(script.sounds) < 2:
            return None
        block = alignment.BLOCK_SAMPLES
        heard = np.flatnonzero(loud)
        onset, last = int(heard[0]) * block, (int(heard[-1]) + 1) * block
        begins = np.concatenate([[0], np.cumsum(units)])[1:-1] * CHARACTER_SAMPLES
        starts = begins[script.first_character].astype(np.float64) - EARLY_SAMPLES
        starts = np.maximum(starts, onset)
        starts = alignment.settle_pauses(starts, script.sounds, loud, len(audio))
        starts[0] = onset
        tail = int(self._random.integers(1920, 6720))
        num_frames = -(-(last + tail - onset + LEAD_SAMPLES) // FRAME_SAMPLES)
        if num_frames > MAX_FRAMES:
            return None
        origin = onset - LEAD_SAMPLES - (NUM_SHIFTS - 1) * SHIFT_SAMPLES
        total = num_frames * FRAME_SAMPLES + (NUM_SHIFTS - 1) * SHIFT_SAMPLES
        padded = np.pad(audio, (max(0, -origin), max(0, origin + total - len(audio))))
        cut = padded[max(0, origin) : max(0, origin) + total]
        rows = [
            alignment.rows_of(
                alignment.slot_starts(starts, script.sounds, onset - LEAD_SAMPLES - shift),
                script.sounds,
                num_frames,
            )
            for shift in range(0, NUM_SHIFTS * SHIFT_SAMPLES, SHIFT_SAMPLES)
        ]
        lengths = np.diff([*starts, starts[-1]]) / alignment.SLOT_SAMPLES
        lengths[-1] = np.nan
        return cut, {
            "rows": np.stack(rows),
            "around": script.around.astype(np.int16),
            "places": script.places.astype(np.float16),
            "slots": lengths.astype(np.float32),
            "rate": np.full(len(lengths), speed, np.float32),
        }


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("lines", "out", "teacher", "voice", "vocab", "voice_folder"):
        parser.add_argument(name)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def main() -> None:
    """Start the workers and wait."""
    options = parse()
    Path(options.out).mkdir(parents=True, exist_ok=True)
    began = time.time()
    context = mp.get_context("spawn")
    workers = [
        context.Process(target=worker, args=(index, options, began + options.seconds))
        for index in range(options.workers)
    ]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
    scripts = [np.load(path)["line"] for path in sorted(Path(options.out).glob("script_*.npz"))]
    frames = sum(int(lines.reshape(-1, 3)[:, 2].sum()) for lines in scripts)
    print(f"spoke {frames * 0.08 / 3600:.2f} h in {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
