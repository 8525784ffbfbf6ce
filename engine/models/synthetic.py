"""Synthetic checkpoints: random weights at true or tiny shapes, in the published layout on disk.

Speed is measured on random weights at the true shapes; parity tests load the same tiny files
into the reference and into this package. Every tensor is drawn by its own generator, so values
do not depend on order. Speech never ends on its own unless asked for: the end-of-speech row is
zero, so the length is what the caller sets.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from playhead.engine.models.census import main_shapes, speech_shapes
from playhead.engine.models.cloning_config import SpeakerConfig, SpeechEncoderConfig
from playhead.engine.models.config import (
    NUM_SUPPRESSED,
    CodecConfig,
    Kind,
    StackConfig,
    read_config,
)
from playhead.engine.models.synthetic_text import (
    TRUE_TEXT_VOCAB,
    bpe_files,
    special_ids,
    tokenizer_config,
)
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES, SAMPLE_RATE_HZ

_VOICES = ("serena", "vivian", "uncle_fu", "ryan", "aiden", "ono_anna", "sohee", "eric", "dylan")
_DIALECTS = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
_LANGUAGES = (
    "english german spanish chinese japanese french korean russian italian portuguese "
    "beijing_dialect sichuan_dialect"
).split()


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a synthetic checkpoint."""

    size_label: str
    talker: StackConfig
    predictor: StackConfig
    codec: CodecConfig
    text_vocab: int
    text_hidden: int
    kind: Kind = "custom_voice"
    speaker: SpeakerConfig | None = None
    encoder: SpeechEncoderConfig | None = None


def _stack(hidden: int, inter: int, layers: int, heads: int, kv: int, dim: int) -> StackConfig:
    return StackConfig(hidden, inter, layers, heads, kv, dim, rms_eps=1e-6, rope_theta=1e6)


_PREDICTOR = _stack(1024, 3072, 5, 16, 8, 128)
_CODEC = CodecConfig(
    stack=StackConfig(512, 1024, 8, 16, 16, 64, rms_eps=1e-5, rope_theta=1e4),
    codebook_width=512,
    num_codes=2048,
    latent=1024,
    decoder_width=1536,
    window_frames=72,
    upsample_ratios=(2, 2),
    decoder_rates=(8, 5, 4, 3),
)
_LARGE = Shape("1b7", _stack(2048, 6144, 28, 16, 8, 128), _PREDICTOR, _CODEC, TRUE_TEXT_VOCAB, 2048)
_ENCODER = SpeechEncoderConfig(
    hidden=512, num_filters=64, rates=(4, 5, 6, 8), kernel=7, last_kernel=3, residual_kernel=3,
    compress=2, num_layers=8, num_heads=8, head_dim=64, intermediate=2048, norm_eps=1e-5,
    rope_theta=1e4, code_width=256, num_codes=2048, num_quantizers=32,
)  # fmt: skip
_TINY = Shape(
    "1b7",
    _stack(64, 128, 2, 4, 2, 16),
    _stack(48, 96, 2, 4, 2, 16),
    CodecConfig(
        stack=StackConfig(32, 48, 2, 2, 2, 16, rms_eps=1e-5, rope_theta=1e4),
        codebook_width=32,
        num_codes=128,
        latent=32,
        decoder_width=64,
        window_frames=12,
        upsample_ratios=(2, 2),
        decoder_rates=(8, 5, 4, 3),
    ),
    text_vocab=512,
    text_hidden=32,
)
_SMALL = replace(_LARGE, size_label="0b6", talker=_stack(1024, 3072, 28, 16, 8, 128))
_TINY_BASE = replace(
    _TINY,
    kind="base",
    speaker=SpeakerConfig(64, channels=(32, 32, 32, 32, 96), attention=16, squeeze=16),
    encoder=replace(
        _ENCODER, hidden=32, num_filters=4, num_layers=2, num_heads=2, head_dim=16,
        intermediate=64, code_width=16, num_codes=128, num_quantizers=20,
    ),
)  # fmt: skip
_TINY_ONE_WIDTH = replace(
    _TINY, size_label="0b6", predictor=replace(_TINY.predictor, hidden=_TINY.talker.hidden)
)
SHAPES: Mapping[str, Shape] = {
    "1.7b-customvoice": _LARGE,
    "1.7b-voicedesign": replace(_LARGE, kind="voice_design"),
    "1.7b-base": replace(_LARGE, kind="base", speaker=SpeakerConfig(2048), encoder=_ENCODER),
    "0.6b-customvoice": _SMALL,
    "0.6b-base": replace(_SMALL, kind="base", speaker=SpeakerConfig(1024), encoder=_ENCODER),
    "tiny": _TINY,
    "tiny-one-width": _TINY_ONE_WIDTH,
    "tiny-voicedesign": replace(_TINY, kind="voice_design"),
    "tiny-base": _TINY_BASE,
    "tiny-base-one-width": replace(
        _TINY_ONE_WIDTH, kind="base", speaker=_TINY_BASE.speaker, encoder=_TINY_BASE.encoder
    ),
}
"""Shapes by name; the tiny ones are for tests."""


def write_checkpoint(
    folder: str | Path,
    shape: str,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cpu",
    eos_row: Tensor | None = None,
) -> Path:
    """Write a checkpoint of a named shape into `folder`; return the folder.

    `device` is where numbers are drawn (each device draws its own). `eos_row` [hidden] replaces
    the zero end-of-speech row of the talker's head.
    """
    root = write_config(folder, shape)
    config = read_config(root)
    main = {
        name: draw(name, size, seed, device).to(dtype).cpu()
        for name, size in main_shapes(config).items()
    }
    end = main["talker.codec_head.weight"][config.codec_ids.eos]
    end.copy_(torch.zeros_like(end) if eos_row is None else eos_row)
    save_file(main, root / "model.safetensors", metadata={"format": "pt"})
    codec = {n: draw(n, s, seed, device).cpu() for n, s in speech_shapes(config).items()}
    save_file(codec, root / "speech_tokenizer" / "model.safetensors", metadata={"format": "pt"})
    return root


def write_config(folder: str | Path, shape: str) -> Path:
    """Write everything of a checkpoint of a named shape but its weights; return the folder."""
    root, sizes = Path(folder), SHAPES[shape]
    (root / "speech_tokenizer").mkdir(parents=True, exist_ok=True)
    vocab, merges = bpe_files(sizes.text_vocab)
    special = special_ids(sizes.text_vocab)
    _write_json(root / "config.json", _main_config(sizes, vocab["assistant"], special))
    _write_json(root / "generation_config.json", _generation())
    _write_json(root / "preprocessor_config.json", {"processor_class": "Qwen3TTSProcessor"})
    _write_json(root / "vocab.json", vocab)
    (root / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    _write_json(root / "tokenizer_config.json", tokenizer_config(special))
    _write_json(root / "speech_tokenizer" / "config.json", _codec_config(sizes))
    _write_json(
        root / "speech_tokenizer" / "preprocessor_config.json",
        {"feature_extractor_type": "EncodecFeatureExtractor", "sampling_rate": SAMPLE_RATE_HZ},
    )
    return root


# -- weights

_GAINS = (
    # (name pattern, standard deviation or None for 1 / sqrt(fan in), gain)
    (r"text_embedding", 0.5, 1.0),
    (r"codec_embedding", 0.25, 1.0),
    (r"embedding_sum", 0.25, 1.0),
    (r"embed_sum", 1.0, 1.0),
    (r"\.bias$", 0.02, 1.0),
    (r"\.(alpha|beta)$", 0.2, 1.0),
    (r"codec_head|lm_head", None, 1.5),
    (r"(o_proj|down_proj)\.weight$", None, 0.5),
    (r"block\.1\.conv\.weight$", None, 0.7),
    (r"conv2\.conv\.weight$", None, 0.3),
    (r"decoder\.decoder\.6\.conv\.weight$", None, 0.15),
    (r"", None, 1.0),
)
_TRANSPOSED = re.compile(r"upsample\.\d\.0\.conv\.weight$|block\.1\.conv\.weight$")
_AROUND = ((r"norm\.weight$", 1.0), (r"\.scale$", 0.2), (r"gamma$", 0.1))
"""Tensors drawn around a mean, a tenth of it wide, so that a test sees each one applied."""


def draw(name: str, size: tuple[int, ...], seed: int, device: str) -> Tensor:
    """Draw one tensor in fp32 at a scale that keeps activations near one."""
    key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator(device=device).manual_seed(int.from_bytes(key[:8], "big") >> 1)
    noise = torch.empty(size, device=device).normal_(generator=generator)
    if name.endswith("codebook.initialized"):
        return torch.ones_like(noise)
    if name.endswith("cluster_usage"):
        return noise.abs() + 0.5
    for pattern, mean in _AROUND:
        if re.search(pattern, name):
            return mean + noise * (mean / 10)
    std, gain = next((s, g) for pattern, s, g in _GAINS if re.search(pattern, name))
    if std is None:
        # A transposed convolution is [in, out, k] and each output sees k / stride inputs.
        fan_in = 2 * size[0] if _TRANSPOSED.search(name) else math.prod(size[1:])
        std = 1 / math.sqrt(fan_in)
    return noise * (std * gain)


# -- configuration files


def _write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _stack_json(stack: StackConfig) -> dict[str, Any]:
    return {
        "hidden_size": stack.hidden,
        "intermediate_size": stack.intermediate,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": stack.num_heads,
        "num_key_value_heads": stack.num_kv_heads,
        "head_dim": stack.head_dim,
        "rms_norm_eps": stack.rms_eps,
        "rope_theta": stack.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
    }


def _codec_ids(num_codes: int, kind: Kind) -> dict[str, Any]:
    """Return special, language and speaker ids: the published ones for the published vocabulary."""
    base = num_codes + 100 if num_codes == 2048 else num_codes
    names = ("pad_id", "bos_id", "eos_token_id", "think_id", "nothink_id", "think_bos_id")
    offsets = (0, 1, 2, 6, 7, 8)
    ids: dict[str, Any] = {
        f"codec_{name}": base + offset for name, offset in zip(names, offsets, strict=True)
    }
    ids["codec_think_eos_id"] = base + 9
    # Only CustomVoice checkpoints name dialects and speakers.
    named = kind == "custom_voice"
    languages = _LANGUAGES if named else _LANGUAGES[: -len(_DIALECTS)]
    voices = _VOICES if named else ()
    ids["codec_language_id"] = {name: base + 20 + i for i, name in enumerate(languages)}
    ids["spk_id"] = {name: base + 700 + i for i, name in enumerate(voices)}
    ids["spk_is_dialect"] = {name: _DIALECTS.get(name, False) for name in voices}
    return ids


def _main_config(shape: Shape, assistant_id: int, special: tuple[int, ...]) -> dict[str, Any]:
    half = shape.talker.head_dim // 2
    section = [half - 2 * (half // 3), half // 3, half // 3]
    num_codes = shape.codec.num_codes
    predictor = _stack_json(shape.predictor) | {
        "model_type": "qwen3_tts_talker_code_predictor",
        "vocab_size": num_codes,
        "num_code_groups": CODEBOOKS,
        "max_position_embeddings": 65_536,
        "rope_scaling": None,
    }
    talker = (
        _stack_json(shape.talker)
        | _codec_ids(num_codes, shape.kind)
        | {
            "model_type": "qwen3_tts_talker",
            "vocab_size": num_codes + NUM_SUPPRESSED,
            "text_vocab_size": shape.text_vocab,
            "text_hidden_size": shape.text_hidden,
            "num_code_groups": CODEBOOKS,
            "max_position_embeddings": 32_768,
            "position_id_per_seconds": 13,
            "rope_scaling": {"interleaved": True, "mrope_section": section, "rope_type": "default"},
            "code_predictor_config": predictor,
        }
    )
    cloning = {}
    if shape.speaker is not None:
        cloning["speaker_encoder_config"] = _speaker_json(shape.speaker)
    return cloning | {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": shape.size_label,
        "tts_model_type": shape.kind,
        "assistant_token_id": assistant_id,
        "im_start_token_id": special[1],
        "im_end_token_id": special[2],
        "tts_pad_token_id": special[3],
        "tts_bos_token_id": special[4],
        "tts_eos_token_id": special[5],
        "talker_config": talker,
    }


def _generation() -> dict[str, Any]:
    own = {"temperature": 0.9, "top_k": 50, "top_p": 1.0}
    sub = {f"subtalker_{name}": value for name, value in own.items()}
    rest = {"do_sample": True, "subtalker_dosample": True, "repetition_penalty": 1.05}
    return own | sub | rest | {"max_new_tokens": 8192}


def _speaker_json(speaker: SpeakerConfig) -> dict[str, Any]:
    return {
        "enc_dim": speaker.width,
        "sample_rate": SAMPLE_RATE_HZ,
        "mel_dim": speaker.num_mels,
        "enc_channels": list(speaker.channels),
        "enc_kernel_sizes": list(speaker.kernels),
        "enc_dilations": list(speaker.dilations),
        "enc_attention_channels": speaker.attention,
        "enc_se_channels": speaker.squeeze,
        "enc_res2net_scale": speaker.splits,
    }


def _encoder_json(encoder: SpeechEncoderConfig) -> dict[str, Any]:
    return {
        "model_type": "mimi",
        "hidden_size": encoder.hidden,
        "num_filters": encoder.num_filters,
        "upsampling_ratios": list(reversed(encoder.rates)),
        "num_hidden_layers": encoder.num_layers,
        "num_attention_heads": encoder.num_heads,
        "num_key_value_heads": encoder.num_heads,
        "head_dim": encoder.head_dim,
        "intermediate_size": encoder.intermediate,
        "codebook_dim": encoder.code_width,
        "vector_quantization_hidden_dimension": encoder.code_width,
        "codebook_size": encoder.num_codes,
        "num_quantizers": encoder.num_quantizers,
        "upsample_groups": encoder.hidden,
        "sliding_window": 250,
    }


def _codec_config(shape: Shape) -> dict[str, Any]:
    codec = shape.codec
    decoder = _stack_json(codec.stack) | {
        "codebook_dim": codec.codebook_width,
        "codebook_size": codec.num_codes,
        "latent_dim": codec.latent,
        "decoder_dim": codec.decoder_width,
        "sliding_window": codec.window_frames,
        "num_quantizers": CODEBOOKS,
        "upsample_rates": list(codec.decoder_rates),
        "upsampling_ratios": list(codec.upsample_ratios),
        "max_position_embeddings": 8000,
        "layer_scale_initial_scale": 0.01,
    }
    # The reference builds an encoder even where none is needed: keep it small there.
    encoder = shape.encoder or replace(
        _ENCODER, hidden=32, num_filters=4, num_layers=1, num_heads=2, head_dim=16,
        intermediate=32, code_width=16, num_codes=codec.num_codes,
    )  # fmt: skip
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_valid_num_quantizers": CODEBOOKS,
        "input_sample_rate": SAMPLE_RATE_HZ,
        "output_sample_rate": SAMPLE_RATE_HZ,
        "decode_upsample_rate": FRAME_SAMPLES,
        "encode_downsample_rate": FRAME_SAMPLES,
        "decoder_config": decoder,
        "encoder_config": _encoder_json(encoder),
    }
