"""Loading a checkpoint: folder or name -> Model, with every tensor accounted for.

The census comes before any weight is read: a tensor that is missing, unexpected, of another
shape or cut off raises CheckpointError with its name, what was found and what is expected.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from playhead.engine.errors import CheckpointError
from playhead.engine.messages import Sampling
from playhead.engine.models.code_predictor import CodePredictor, code_predictor_shapes
from playhead.engine.models.codec import Codec, codec_shapes
from playhead.engine.models.config import (
    DEFAULT_FRONT_END,
    ModelConfig,
    ResolvedSampling,
    read_config,
)
from playhead.engine.models.talker import Talker, talker_shapes

Shapes = dict[str, tuple[int, ...]]
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_HEADER_LIMIT_BYTES = 100_000_000
_MAIN_UNREAD = ("speaker_encoder.",)
_CODEC_UNREAD = (
    "encoder.",
    "decoder.quantizer.rvq_first.input_proj.",
    "decoder.quantizer.rvq_rest.input_proj.",
)
"""Known tensors that speaking does not need: only cloning reads a reference."""
_FILES = ["*.json", "*.txt", "*.safetensors", "speech_tokenizer/*"]


class Model:
    """A checked checkpoint; a part's weights are read when the part is first used."""

    def __init__(
        self, folder: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Take the census of both weight files; raises CheckpointError."""
        self.folder = folder
        self.config = config
        self.device = device
        self.dtype = dtype
        """Of talker and code predictor; the codec is always fp32."""
        self._shapes = talker_shapes(config) | code_predictor_shapes(config)
        self._codec_shapes = codec_shapes(config.codec)
        self._speech = folder / "speech_tokenizer"
        _census(_files(folder), self._shapes, _MAIN_UNREAD)
        _census(_files(self._speech), self._codec_shapes, _CODEC_UNREAD)

    def main_weights(self) -> dict[str, Tensor]:
        """Read the tensors of talker and code predictor by their names in the checkpoint."""
        return read_weights(self.folder, self._shapes, _MAIN_UNREAD, self.dtype, self.device)

    def codec_weights(self) -> dict[str, Tensor]:
        """Read the tensors of the codec's decoder, fp32, by their names in the checkpoint."""
        return read_weights(
            self._speech, self._codec_shapes, _CODEC_UNREAD, torch.float32, self.device
        )

    @functools.cached_property
    def _frame_models(self) -> tuple[Talker, CodePredictor]:
        with torch.inference_mode():
            weights = self.main_weights()
            return Talker(self.config, weights), CodePredictor(self.config, weights)

    @property
    def talker(self) -> Talker:
        """The talker, packed for eager running."""
        return self._frame_models[0]

    @property
    def code_predictor(self) -> CodePredictor:
        """The code predictor, packed for eager running."""
        return self._frame_models[1]

    @functools.cached_property
    def codec(self) -> Codec:
        """The codec's decoder, packed for eager running."""
        with torch.inference_mode():
            return Codec(self.config.codec, self.codec_weights())

    @property
    def text_front_end(self) -> str:
        """Name of the front end that turns text into this checkpoint's text ids."""
        return self.config.text_front_end

    def resolve_sampling(self, asked: Sampling) -> ResolvedSampling:
        """Fill what the caller left open from the checkpoint."""
        return self.config.generation.resolve(asked)

    def instruct_ids(self, instruct: str) -> tuple[int, ...] | None:
        """Return the ids of a whole instruction turn; None where the model knows no such turn."""
        if self.text_front_end != DEFAULT_FRONT_END:
            return None
        from playhead.engine.text.qwen_bpe import instruct_ids

        ids = self.config.text_ids
        return instruct_ids(self.folder, ids.im_start, ids.im_end, instruct)


def load_model(
    path_or_repo: str | Path,
    *,
    revision: str | None = None,
    local_files_only: bool = False,
    token: str | None = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
) -> Model:
    """Load a checkpoint folder, or a Hub repository by name.

    `dtype` None means fp32 on CPU and bf16 elsewhere. Raises CheckpointError.
    """
    folder = _locate(path_or_repo, revision, local_files_only, token)
    device = torch.device(device)
    if dtype is None:
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    return Model(folder, read_config(folder), device, dtype)


def _locate(
    path_or_repo: str | Path, revision: str | None, local_files_only: bool, token: str | None
) -> Path:
    folder = Path(path_or_repo).expanduser()
    if folder.is_dir():
        return folder
    name = str(path_or_repo)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise CheckpointError(
            f"{name!r} is no folder; give a checkpoint folder or a Hub name like owner/model"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                local_files_only=local_files_only,
                token=token,
                allow_patterns=_FILES,
            )
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(
            f"{name!r} could not be fetched ({type(error).__name__}: {error}). "
            "Check the name, the network and the token, or give a local folder."
        ) from error


def read_weights(
    folder: Path,
    expected: Shapes,
    unread_prefixes: tuple[str, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> dict[str, Tensor]:
    """Read exactly the expected tensors of a folder, single file or shards; CheckpointError."""
    files = _files(folder)
    where = _census(files, expected, unread_prefixes)
    weights: dict[str, Tensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt", device=str(device)) as opened:
                for name in (n for n, at in where.items() if at == path):
                    weights[name] = opened.get_tensor(name).to(dtype)
        except SafetensorError as error:
            raise CheckpointError(f"{path}: {error}. Download it again.") from error
    return weights


def _files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.exists():
        try:
            names = sorted(
                set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            )
        except (ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{index} has no readable weight_map ({error!r}).") from None
        paths = [folder / name for name in names]
    else:
        paths = [folder / _SINGLE]
    for path in paths:
        if not path.is_file():
            raise CheckpointError(f"{path} is missing; download the checkpoint again")
    return paths


def _header(path: Path) -> tuple[Mapping[str, Mapping[str, list[int]]], int]:
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


def _census(
    files: list[Path], expected: Shapes, unread_prefixes: tuple[str, ...]
) -> dict[str, Path]:
    """Check every tensor against the expected ones; return the file of each."""
    where: dict[str, Path] = {}
    for path in files:
        table, data_bytes = _header(path)
        for name, entry in table.items():
            end = entry["data_offsets"][1]
            if end > data_bytes:
                raise CheckpointError(
                    f"{path}: tensor {name} is cut off: it ends at byte {end} of the data, the "
                    f"file holds {data_bytes}. Download it again."
                )
            found = tuple(entry["shape"])
            if name not in expected:
                if not name.startswith(unread_prefixes):
                    raise CheckpointError(
                        f"{path}: tensor {name} {list(found)} is unexpected; the config describes "
                        "no such part. Use config.json and weights of one checkpoint."
                    )
            elif found != expected[name]:
                raise CheckpointError(
                    f"{path}: tensor {name} has shape {list(found)}, the config asks for "
                    f"{list(expected[name])}. Use config.json and weights of one checkpoint."
                )
            else:
                where[name] = path
    missing = [name for name in expected if name not in where]
    if missing:
        shape = list(expected[missing[0]])
        raise CheckpointError(
            f"{files[0].parent}: tensor {missing[0]} {shape} is missing ({len(missing)} of "
            f"{len(expected)} are). Download the checkpoint again."
        )
    return where
