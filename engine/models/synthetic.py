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

from playhead.engine.models.code_predictor import code_predictor_shapes
from playhead.engine.models.codec import codec_shapes
from playhead.engine.models.config import NUM_SUPPRESSED, CodecConfig, StackConfig, read_config
from playhead.engine.models.talker import talker_shapes
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES, SAMPLE_RATE_HZ

_VOICES = ("serena", "vivian", "uncle_fu", "ryan", "aiden", "ono_anna", "sohee", "eric", "dylan")
_DIALECTS = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
_LANGUAGES = (
    "english german spanish chinese japanese french korean russian italian portuguese "
    "beijing_dialect sichuan_dialect"
).split()
_WORDS = "assistant user system the and you that hello world this is a test of speech".split()
_SPECIAL_TEXT = (
    "<|endoftext|> <|im_start|> <|im_end|> <tts_pad> <tts_text_bos> <tts_text_eod>".split()
)
_TRUE_SPECIAL_IDS = (151643, 151644, 151645, 151671, 151672, 151673)
_TRUE_ASSISTANT_ID = 77091
_TRUE_TEXT_VOCAB = 151936


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a synthetic checkpoint."""

    size_label: str
    talker: StackConfig
    predictor: StackConfig
    codec: CodecConfig
    text_vocab: int
    text_hidden: int


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
_LARGE = Shape(
    "1b7", _stack(2048, 6144, 28, 16, 8, 128), _PREDICTOR, _CODEC, _TRUE_TEXT_VOCAB, 2048
)
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
SHAPES: Mapping[str, Shape] = {
    "1.7b-customvoice": _LARGE,
    "0.6b-customvoice": replace(
        _LARGE, size_label="0b6", talker=_stack(1024, 3072, 28, 16, 8, 128)
    ),
    "tiny": _TINY,
    "tiny-one-width": replace(
        _TINY, size_label="0b6", predictor=replace(_TINY.predictor, hidden=_TINY.talker.hidden)
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
    root, sizes = Path(folder), SHAPES[shape]
    (root / "speech_tokenizer").mkdir(parents=True, exist_ok=True)
    vocab, merges = _tokenizer(sizes)
    special = _special_ids(sizes)
    _write_json(root / "config.json", _main_config(sizes, vocab["assistant"], special))
    _write_json(root / "generation_config.json", _generation())
    _write_json(root / "preprocessor_config.json", {"processor_class": "Qwen3TTSProcessor"})
    _write_json(root / "vocab.json", vocab)
    (root / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    _write_json(root / "tokenizer_config.json", _tokenizer_config(special))
    _write_json(root / "speech_tokenizer" / "config.json", _codec_config(sizes.codec))
    _write_json(
        root / "speech_tokenizer" / "preprocessor_config.json",
        {"feature_extractor_type": "EncodecFeatureExtractor", "sampling_rate": SAMPLE_RATE_HZ},
    )
    config = read_config(root)
    main = {
        name: draw(name, size, seed, device).to(dtype).cpu()
        for name, size in (talker_shapes(config) | code_predictor_shapes(config)).items()
    }
    end = main["talker.codec_head.weight"][config.codec_ids.eos]
    end.copy_(torch.zeros_like(end) if eos_row is None else eos_row)
    save_file(main, root / "model.safetensors", metadata={"format": "pt"})
    codec = {n: draw(n, s, seed, device).cpu() for n, s in codec_shapes(config.codec).items()}
    save_file(codec, root / "speech_tokenizer" / "model.safetensors", metadata={"format": "pt"})
    return root


# -- weights

_GAINS = (
    # (name pattern, standard deviation or None for 1 / sqrt(fan in), gain)
    (r"text_embedding", 0.5, 1.0),
    (r"codec_embedding", 0.25, 1.0),
    (r"embedding_sum", 0.25, 1.0),
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


def _codec_ids(num_codes: int) -> dict[str, Any]:
    """Return special, language and speaker ids: the published ones for the published vocabulary."""
    base = num_codes + 100 if num_codes == 2048 else num_codes
    names = ("pad_id", "bos_id", "eos_token_id", "think_id", "nothink_id", "think_bos_id")
    offsets = (0, 1, 2, 6, 7, 8)
    ids: dict[str, Any] = {
        f"codec_{name}": base + offset for name, offset in zip(names, offsets, strict=True)
    }
    ids["codec_think_eos_id"] = base + 9
    ids["codec_language_id"] = {name: base + 20 + i for i, name in enumerate(_LANGUAGES)}
    ids["spk_id"] = {name: base + 700 + i for i, name in enumerate(_VOICES)}
    ids["spk_is_dialect"] = {name: _DIALECTS.get(name, False) for name in _VOICES}
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
        | _codec_ids(num_codes)
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
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": shape.size_label,
        "tts_model_type": "custom_voice",
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


def _codec_config(codec: CodecConfig) -> dict[str, Any]:
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
    # The reference builds an encoder from this even though decoding needs none: keep it small.
    encoder = {"model_type": "mimi", "hidden_size": 32, "num_filters": 4, "num_hidden_layers": 1}
    encoder |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    encoder |= {"intermediate_size": 32, "codebook_dim": 16, "codebook_size": codec.num_codes}
    encoder |= {"vector_quantization_hidden_dimension": 16, "upsample_groups": 32}
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_valid_num_quantizers": CODEBOOKS,
        "input_sample_rate": SAMPLE_RATE_HZ,
        "output_sample_rate": SAMPLE_RATE_HZ,
        "decode_upsample_rate": FRAME_SAMPLES,
        "encode_downsample_rate": FRAME_SAMPLES,
        "decoder_config": decoder,
        "encoder_config": encoder,
    }


# -- tokenizer: byte-level BPE in which "assistant" and "user" are one token each


def _special_ids(shape: Shape) -> tuple[int, ...]:
    if shape.text_vocab == _TRUE_TEXT_VOCAB:
        return _TRUE_SPECIAL_IDS
    first = shape.text_vocab - len(_SPECIAL_TEXT)
    return tuple(range(first, shape.text_vocab))


def _tokenizer(shape: Shape) -> tuple[dict[str, int], list[str]]:
    """Return vocabulary and merges; ids below the first special one are filled up."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = [chr(b) for b in visible] + [chr(256 + i) for i in range(256 - len(visible))]
    vocab = {symbol: i for i, symbol in enumerate(symbols)}
    merges: list[str] = []
    space = chr(256 + 32)
    for word in (*_WORDS[:3], *(space + w for w in _WORDS[3:])):
        left = word[0]
        for symbol in word[1:]:
            pair, left = f"{left} {symbol}", left + symbol
            if pair not in merges:
                merges.append(pair)
            true_id = shape.text_vocab == _TRUE_TEXT_VOCAB and left == "assistant"
            vocab.setdefault(left, _TRUE_ASSISTANT_ID if true_id else len(vocab))
    used = set(vocab.values())
    for i in range(_special_ids(shape)[0]):
        if i not in used:
            vocab[f"<|unused_{i}|>"] = i
    return dict(sorted(vocab.items(), key=lambda item: item[1])), merges


def _tokenizer_config(special: tuple[int, ...]) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    added = {
        str(i): {"content": text, "special": True, **flags}
        for i, text in zip(special, _SPECIAL_TEXT, strict=True)
    }
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": added,
        "add_prefix_space": False,
        "errors": "replace",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 131_072,
    }
