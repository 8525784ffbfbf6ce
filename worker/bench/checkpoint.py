"""Checkpoints that benchmarks run on: random weights at true shapes, generated once and kept.

`silent_frames` asks for speech that begins with silence, as real checkpoints do. It is made in the
weights alone: all biases of the codec are zero, and its first convolution (three causal taps) sees
only the code vector `silent_frames` frames ago. Nothing then reaches the first frames, so they
are exactly zero, and from there on the same random speech follows. Shapes, operations and memory
are those of the plain checkpoint, and the engine's own trim finds and drops the silence: neither
engine nor server knows of it.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from playhead.engine.errors import ConfigError
from playhead.worker.bench.result import locked

if TYPE_CHECKING:
    from playhead.engine.models.config import ModelConfig

SHAPES = {"1.7b": "1.7b-customvoice", "0.6b": "0.6b-customvoice", "tiny": "tiny"}
"""Names of the command line to those of engine/models/synthetic.py."""
EMBEDDED = "embedded"
MAX_SILENT_FRAMES = 2
_FIRST_CONV = "decoder.pre_conv.conv.weight"
_CODEC_FILE = Path("speech_tokenizer") / "model.safetensors"
_DONE = "complete"


def shape_config(
    shape: str = "1.7b-customvoice", talker_layers: int | None = None
) -> "ModelConfig":
    """Return the config of a shape of engine/models/synthetic.py without writing a checkpoint.

    `talker_layers` makes a shorter talker, for checks.
    """
    from playhead.engine.models.config import (
        CodecIds,
        GenerationConfig,
        ModelConfig,
        ResolvedSampling,
        TextIds,
    )
    from playhead.engine.models.synthetic import SHAPES as SYNTHETIC

    sizes = SYNTHETIC[shape]
    talker = sizes.talker
    if talker_layers is not None:
        talker = replace(talker, num_layers=talker_layers)
    published = sizes.text_vocab > 100_000
    text = TextIds(151671, 151672, 151673, 151644, 151645, 77091)
    if not published:
        text = TextIds(*range(sizes.text_vocab - 6, sizes.text_vocab))
    num_codes = sizes.codec.num_codes
    pad = num_codes + 100
    return ModelConfig(
        kind="custom_voice",
        size_label=sizes.size_label,
        talker=talker,
        predictor=sizes.predictor,
        codec=sizes.codec,
        codec_vocab=num_codes + 1024,
        text_vocab=sizes.text_vocab,
        text_hidden=sizes.text_hidden,
        text_ids=text,
        codec_ids=CodecIds(pad, pad + 1, pad + 2, pad + 6, pad + 7, pad + 8, pad + 9),
        language_ids={},
        voice_ids={"ryan": pad + 900},
        dialects={},
        generation=GenerationConfig(ResolvedSampling(0.9, 50, 1.0, 1.05, 0.9, 50, 1.0), 2048),
        trained_frames=8192,
        text_front_end="qwen_bpe",
        speaker=None,
        speech_encoder=None,
    )


def default_folder() -> Path:
    """Return where generated checkpoints are kept: gigabytes, made again if the folder is gone."""
    return Path(tempfile.gettempdir()) / f"playhead-bench-{os.getuid()}"


def checkpoint(
    shape: str, folder: Path | None = None, silent_frames: int = 0, device: str = "cpu"
) -> Path:
    """Return the checkpoint of a shape, written first if it is not there.

    `embedded` is the English voice that comes with the package; every name of
    engine/models/synthetic.py is a shape too. `device` is where random numbers are drawn. Raises
    ConfigError for a shape or a silence that does not exist.
    """
    if not 0 <= silent_frames <= MAX_SILENT_FRAMES:
        raise ConfigError(f"{silent_frames} silent frames; allowed are 0 to {MAX_SILENT_FRAMES}")
    if shape == EMBEDDED:
        if silent_frames:
            raise ConfigError("the embedded voice can't be silenced; choose another --shape")
        from playhead.engine.library import EMBEDDED_VOICE

        return EMBEDDED_VOICE
    from playhead.engine.models.synthetic import SHAPES as SYNTHETIC

    if shape not in SHAPES and shape not in SYNTHETIC:
        raise ConfigError(f"shape {shape!r}; allowed are {', '.join((*SHAPES, EMBEDDED))}")
    root = (folder or default_folder()).resolve()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    plain = _made(root / f"{shape}-{device}", lambda into: _write(into, shape, device))
    if not silent_frames:
        return plain
    name = root / f"{shape}-{device}-silent{silent_frames}"
    return _made(name, lambda into: _silence(plain, into, silent_frames))


def _made(path: Path, write: Callable[[Path], None]) -> Path:
    """Return `path`, filled by `write` unless an earlier run did; half a folder never counts.

    Of several processes that want it one writes it, and the others wait.
    """
    with locked(path.parent):
        if (path / _DONE).exists():
            return path
        into = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
        try:
            write(into)
            (into / _DONE).touch()
            shutil.rmtree(path, ignore_errors=True)
            into.rename(path)
        finally:
            shutil.rmtree(into, ignore_errors=True)
    return path


def _write(into: Path, shape: str, device: str) -> None:
    from playhead.engine.models.synthetic import write_checkpoint

    write_checkpoint(into, SHAPES.get(shape, shape), device=device)


def _silence(plain: Path, into: Path, silent_frames: int) -> None:
    """Write the plain checkpoint with a codec that begins silent; the rest is linked."""
    from safetensors.torch import load_file, save_file

    for source in plain.rglob("*"):
        target = into / source.relative_to(plain)
        if source.is_dir():
            target.mkdir(exist_ok=True)
        elif source.relative_to(plain) != _CODEC_FILE and source.name != _DONE:
            os.link(source, target)
    tensors = load_file(plain / _CODEC_FILE)
    for name, tensor in tensors.items():
        if name.startswith("decoder.") and name.endswith(".bias"):
            tensor.zero_()
    taps = tensors[_FIRST_CONV]  # [out, in, 3]: the last tap is the newest frame
    newest = taps.shape[2] - 1
    kept = taps[:, :, newest].clone()
    taps.zero_()
    taps[:, :, newest - silent_frames] = kept
    save_file(tensors, into / _CODEC_FILE, metadata={"format": "pt"})
