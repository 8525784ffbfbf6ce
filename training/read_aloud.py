"""The teacher reads the held-out lines, for figures beside the voice's.

`python -m training.read_aloud LINES OUT.npz TEACHER VOICE.bin VOCAB.json VOICE_FOLDER` writes the
speech of each line as int16 arrays `line_00`, `line_01`, ...
"""

import argparse
from pathlib import Path

import numpy as np

from training.speak import Speaker


def main() -> None:
    """Read every line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("lines", "out", "teacher", "voice", "vocab", "voice_folder"):
        parser.add_argument(name)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    speaker = Speaker(options, options.device, seed=0)
    spoken = {}
    lines = Path(options.lines).read_text(encoding="utf-8").splitlines()
    for index, line in enumerate(lines):
        audio, _, _ = speaker.raw(line, options.speed)
        spoken[f"line_{index:02d}"] = (np.clip(audio, -1, 1) * 32767).astype(np.int16)
    np.savez_compressed(options.out, allow_pickle=False, **spoken)


if __name__ == "__main__":
    main()
