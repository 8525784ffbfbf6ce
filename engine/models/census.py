"""The census of a checkpoint: which tensors its files hold against those its config describes.

Reads headers only. The loader takes it of the parts it needs; `checkpoint_findings` takes it of
every part, the ones for cloning included.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from playhead.engine.errors import CheckpointError
from playhead.engine.models.code_predictor import code_predictor_shapes
from playhead.engine.models.codec import codec_shapes
from playhead.engine.models.config import ModelConfig
from playhead.engine.models.speaker_encoder import speaker_shapes
from playhead.engine.models.speech_encoder import speech_encoder_shapes
from playhead.engine.models.talker import talker_shapes

UNREAD = ("decoder.quantizer.rvq_first.input_proj.", "decoder.quantizer.rvq_rest.input_proj.")
"""Known tensors of the speech tokenizer that neither speaking nor cloning needs."""
Shapes = dict[str, tuple[int, ...]]
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
SPEECH_FOLDER = "speech_tokenizer"
_HEADER_LIMIT_BYTES = 100_000_000


def main_shapes(config: ModelConfig) -> Shapes:
    """Return name and shape of every tensor of a checkpoint's main weights."""
    shapes = talker_shapes(config) | code_predictor_shapes(config)
    return shapes if config.speaker is None else shapes | speaker_shapes(config.speaker)


def speech_shapes(config: ModelConfig) -> Shapes:
    """Return name and shape of every tensor of its speech tokenizer that anything here reads."""
    shapes, encoder = codec_shapes(config.codec), config.speech_encoder
    return shapes if encoder is None else shapes | speech_encoder_shapes(encoder)


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a folder, single or shards; CheckpointError when one is gone."""
    index = folder / INDEX
    if index.exists():
        try:
            names = sorted(
                set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            )
        except (ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{index} has no readable weight_map ({error!r}).") from None
        paths = [folder / name for name in names]
    else:
        paths = [folder / SINGLE]
    for path in paths:
        if not path.is_file():
            raise CheckpointError(f"{path} is missing; download the checkpoint again")
    return paths


def read_header(path: Path) -> tuple[Mapping[str, Mapping[str, list[int]]], int]:
    """Return a file's tensor table and the bytes of tensor data it really holds."""
    num_bytes = path.stat().st_size
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        if num_bytes < 8 or not 2 <= header_bytes <= min(_HEADER_LIMIT_BYTES, num_bytes - 8):
            raise CheckpointError(
                f"{path} is {num_bytes} bytes and holds no whole safetensors header; "
                "download it again"
            )
        try:
            table = json.loads(file.read(header_bytes))
        except ValueError:
            raise CheckpointError(f"{path}: the header is damaged; download it again") from None
    table.pop("__metadata__", None)
    return table, num_bytes - 8 - header_bytes


def locate(files: list[Path], expected: Shapes, unread: tuple[str, ...]) -> dict[str, Path]:
    """Return the file of each expected tensor; CheckpointError with the first finding."""
    for finding in findings(files, expected, unread):
        raise CheckpointError(finding)
    return {name: path for path in files for name in read_header(path)[0] if name in expected}


def findings(files: list[Path], expected: Shapes, unread: tuple[str, ...]) -> Iterator[str]:
    """Yield what is wrong, tensor by tensor; names that begin with an `unread` one are let be."""
    seen: set[str] = set()
    for path in files:
        table, data_bytes = read_header(path)
        for name, entry in table.items():
            end, found = entry["data_offsets"][1], tuple(entry["shape"])
            seen.add(name)
            if end > data_bytes:
                yield (
                    f"{path}: tensor {name} is cut off: it ends at byte {end} of the data, the "
                    f"file holds {data_bytes}. Download it again."
                )
            elif name not in expected:
                if not name.startswith(unread):
                    yield (
                        f"{path}: tensor {name} {list(found)} is unexpected; the config describes "
                        "no such part. Use config.json and weights of one checkpoint."
                    )
            elif found != expected[name]:
                yield (
                    f"{path}: tensor {name} has shape {list(found)}, the config asks for "
                    f"{list(expected[name])}. Use config.json and weights of one checkpoint."
                )
    missing = [name for name in expected if name not in seen]
    for name in missing:
        yield (
            f"{files[0].parent}: tensor {name} {list(expected[name])} is missing ({len(missing)} "
            f"of {len(expected)} are). Download the checkpoint again."
        )


def held(folder: Path) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (tensors, values) of the main weights and of the speech tokenizer."""
    main, speech = (
        [math.prod(entry["shape"]) for path in weight_files(at) for entry in _entries(path)]
        for at in (folder, folder / SPEECH_FOLDER)
    )
    return (len(main), sum(main)), (len(speech), sum(speech))


def _entries(path: Path) -> Iterable[Mapping[str, list[int]]]:
    return read_header(path)[0].values()


def checkpoint_findings(folder: Path, config: ModelConfig) -> list[str]:
    """Return everything wrong in the tensors of all parts; raises CheckpointError without files.

    The speech tokenizer's encoder is looked at only where the config describes it (Base).
    """
    unread = UNREAD if config.speech_encoder is not None else ("encoder.", *UNREAD)
    speech = folder / SPEECH_FOLDER
    found = list(findings(weight_files(folder), main_shapes(config), ()))
    return found + list(findings(weight_files(speech), speech_shapes(config), unread))
