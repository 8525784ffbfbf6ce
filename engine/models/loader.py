"""Loading a checkpoint: folder or name -> Model, with every tensor accounted for.

The census comes before any weight is read: a tensor that is missing, unexpected, of another
shape or cut off raises CheckpointError with its name, what was found and what is expected.
"""

import functools
import hashlib
import logging
import math
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from playhead.engine.errors import CheckpointError
from playhead.engine.messages import Sampling
from playhead.engine.models.census import SPEECH_FOLDER, UNREAD, Shapes, locate, weight_files
from playhead.engine.models.code_predictor import CodePredictor, code_predictor_shapes
from playhead.engine.models.codec import Codec, codec_shapes
from playhead.engine.models.config import (
    DEFAULT_FRONT_END,
    ModelConfig,
    ResolvedSampling,
    read_config,
)
from playhead.engine.models.hub import fetch_weights
from playhead.engine.models.speaker_encoder import PREFIX as SPEAKER
from playhead.engine.models.speaker_encoder import SpeakerEncoder, speaker_shapes
from playhead.engine.models.speech_encoder import PREFIX as ENCODER
from playhead.engine.models.speech_encoder import SpeechEncoder, speech_encoder_shapes
from playhead.engine.models.talker import Talker, talker_shapes

log = logging.getLogger(__name__)

_MAIN_UNREAD = (SPEAKER,)
_CODEC_UNREAD = (ENCODER, *UNREAD)
"""Known tensors that speaking does not need: only cloning reads a reference."""
_FILES = ["*.json", "*.txt", "*.safetensors", "speech_tokenizer/*"]

SLOW_ON_CPU = 300_000_000
"""Values of talker and code predictor; the latter's are read 15 times for each frame of 80 ms."""


def is_slow_on_cpu(config: ModelConfig) -> bool:
    """Tell whether a CPU makes speech far slower than it is spoken."""
    shapes = talker_shapes(config) | code_predictor_shapes(config)
    return sum(map(math.prod, shapes.values())) > SLOW_ON_CPU


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
        self._speech = folder / SPEECH_FOLDER
        locate(weight_files(folder), self._shapes, _MAIN_UNREAD)
        locate(weight_files(self._speech), self._codec_shapes, _CODEC_UNREAD)

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
        if self.device.type == "cpu" and is_slow_on_cpu(self.config):
            log.warning(
                "%s runs on a CPU: speech will come far slower than it is spoken, for files alone; "
                "a GPU or the embedded voice keeps up", self.config.size_label or self.folder.name
            )  # fmt: skip
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

    @functools.cached_property
    def speaker_encoder(self) -> SpeakerEncoder:
        """Reads a voice out of a reference; CheckpointError where the checkpoint has none."""
        config = self.config.speaker
        if config is None:
            raise self._no_cloning("speaker encoder")
        shapes, unread = speaker_shapes(config), ("talker.",)
        return SpeakerEncoder(
            config, read_weights(self.folder, shapes, unread, torch.float32, self.device)
        )

    @functools.cached_property
    def speech_encoder(self) -> SpeechEncoder:
        """The speech tokenizer's encoder; CheckpointError where the checkpoint has none."""
        config = self.config.speech_encoder
        if config is None:
            raise self._no_cloning("speech encoder")
        shapes, unread = speech_encoder_shapes(config), ("decoder.",)
        return SpeechEncoder(
            config, read_weights(self._speech, shapes, unread, torch.float32, self.device)
        )

    def _no_cloning(self, part: str) -> CheckpointError:
        return CheckpointError(
            f"{self.folder}: this checkpoint ({self.config.kind}) has no {part}: new voices are "
            "made with a base checkpoint whose config.json has speaker_encoder_config and whose "
            "speech_tokenizer/config.json has encoder_config"
        )

    @functools.cached_property
    def voice_fingerprint(self) -> str:
        """Identify the checkpoint that speaker vectors belong to, by the weights that make them."""
        digest = hashlib.sha256(repr(self.config.speaker).encode())
        for name, value in sorted(self.speaker_encoder.tensors().items()):
            digest.update(name.encode())
            digest.update(value.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    @property
    def text_front_end(self) -> str:
        """Name of the front end that turns text into this checkpoint's text ids."""
        return self.config.text_front_end

    def resolve_sampling(self, asked: Sampling) -> ResolvedSampling:
        """Fill what the caller left open from the checkpoint."""
        return self.config.generation.resolve(asked)

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Return the ids of a whole text outside any request, such as a reference's transcript."""
        from playhead.engine.text.qwen_bpe import load_tokenizer

        return tuple(load_tokenizer(self.folder).encode(text, add_special_tokens=False).ids)

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
    folder = locate_checkpoint(path_or_repo, revision, local_files_only, token)
    device = torch.device(device)
    if dtype is None:
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    return Model(folder, read_config(folder), device, dtype)


def locate_checkpoint(
    path_or_repo: str | Path,
    revision: str | None = None,
    local_files_only: bool = False,
    token: str | None = None,
) -> Path:
    """Return the folder of a checkpoint, fetched from the Hub unless it is there; CheckpointError.

    A download that was broken off goes on where it stood, and whole files are never fetched twice;
    `local_files_only` uses what was fetched before.
    """
    folder = Path(path_or_repo).expanduser()
    if folder.is_dir():
        return folder
    name = str(path_or_repo)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise CheckpointError(
            f"{name!r} is no folder; give a checkpoint folder or a Hub name like owner/model"
        )
    from httpx import HTTPError  # what the Hub's client lets through when a connection breaks
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        if not local_files_only:
            fetch_weights(name, revision, token)
        return Path(
            snapshot_download(
                name,
                revision=revision,
                local_files_only=local_files_only,
                token=token,
                allow_patterns=_FILES,
            )
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, HTTPError, OSError) as error:
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
    files = weight_files(folder)
    where = locate(files, expected, unread_prefixes)
    weights: dict[str, Tensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt", device=str(device)) as opened:
                for name in (n for n, at in where.items() if at == path):
                    weights[name] = opened.get_tensor(name).to(dtype)
        except SafetensorError as error:
            raise CheckpointError(f"{path}: {error}. Download it again.") from error
    return weights
