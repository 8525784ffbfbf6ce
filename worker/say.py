"""`playhead say`: text to a WAV file or the speakers, without any server."""

import shutil
import subprocess
import sys
import tempfile
import wave
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from playhead.engine.errors import ConfigError
from playhead.engine.units import SAMPLE_BYTES, SAMPLE_RATE_HZ, samples_to_s

PLAYERS = (("aplay", "-q"), ("paplay",), ("afplay",), ("ffplay", "-autoexit", "-nodisp"))


@dataclass(frozen=True, slots=True)
class SayOptions:
    """What to say, how, and where to put it."""

    text: str
    out: Path | None
    play: bool
    voice: str | None = None
    language: str = "auto"
    instruct: str | None = None
    seed: int = 0
    model: str | None = None
    profile: str = "cpu"


def say(options: SayOptions) -> int:
    """Speak a text into a file; return the exit code. Raises PlayheadError."""
    if options.out is None and not options.play:
        raise ConfigError("nothing to do with the speech; give -o FILE.wav or --play")
    text = sys.stdin.read() if options.text == "-" else options.text
    from playhead.engine.library import open_model  # torch: only when something is spoken

    with open_model(options.model, options.profile) as tts, tempfile.TemporaryDirectory() as tmp:
        pieces = tts.stream(
            text,
            voice=options.voice,
            language=options.language,
            instruct=options.instruct,
            seed=options.seed,
        )
        path = options.out or Path(tmp) / "speech.wav"
        num_samples = write_wav(path, pieces)
        print(f"{samples_to_s(num_samples):.2f} s of speech", file=sys.stderr)
        if options.play:
            play(path)
    return 0


def write_wav(path: Path, pieces: Iterable[bytes]) -> int:
    """Write PCM pieces as they come; return the number of samples. No file if the first fails."""
    num_samples = 0
    coming = iter(pieces)
    first = next(coming, b"")
    with wave.open(str(path), "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(SAMPLE_BYTES)
        wav.setframerate(SAMPLE_RATE_HZ)
        for piece in chain((first,), coming):
            wav.writeframes(piece)
            num_samples += len(piece) // SAMPLE_BYTES
    return num_samples


def play(path: Path) -> None:
    """Play a WAV file with whatever player the machine has; raises ConfigError if none."""
    for command, *flags in PLAYERS:
        if found := shutil.which(command):
            subprocess.run([found, *flags, str(path)], check=True)
            return
    names = ", ".join(name for name, *_ in PLAYERS)
    raise ConfigError(f"no audio player found; install one of {names}, or write a file with -o")
