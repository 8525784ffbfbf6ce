"""What a checkpoint's JSON files say: shapes, special ids, voices, languages, sampling defaults.

Pure values, any thread, no torch. `read_config` refuses a value this package cannot compute with
a CheckpointError that names the file, the key, what it found and what it accepts.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast

from playhead.engine.errors import InputError
from playhead.engine.messages import Sampling
from playhead.engine.models.cloning_config import (
    SpeakerConfig,
    SpeechEncoderConfig,
    read_speaker,
    read_speech_encoder,
)
from playhead.engine.models.section import Section, read_json
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES, SAMPLE_RATE_HZ

Kind = Literal["custom_voice", "voice_design", "base"]

NUM_SUPPRESSED = 1024
"""Ids at the end of the talker's vocabulary that are never spoken, end of speech excepted."""
MIN_FRAMES = 2
"""Frames before end of speech may be chosen (the reference's min_new_tokens)."""
DEFAULT_FRONT_END = "qwen_bpe"
DEFAULT_TRAINED_FRAMES = 8192
"""Frames of an utterance of the published checkpoints (their max_new_tokens)."""
_RANGES = {
    "temperature": (0.0, 10.0),
    "top_k": (0, 1 << 20),
    "top_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
}
"""What a caller may ask of the sampler, both ends included."""


@dataclass(frozen=True, slots=True)
class StackConfig:
    """One stack of decoder layers: grouped-query attention, rotary positions, SwiGLU."""

    hidden: int
    intermediate: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_eps: float
    rope_theta: float


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """The causal decoder from codes to samples."""

    stack: StackConfig
    codebook_width: int
    """Width of the summed code vectors; the tables themselves are half as wide."""
    num_codes: int
    latent: int
    decoder_width: int
    window_frames: int
    """Attention span: a frame and the window_frames - 1 before it."""
    upsample_ratios: tuple[int, ...]
    decoder_rates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TextIds:
    """Special ids of the text vocabulary."""

    pad: int
    bos: int
    eos: int
    im_start: int
    im_end: int
    assistant: int


@dataclass(frozen=True, slots=True)
class CodecIds:
    """Special ids of the talker's codec vocabulary."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class ResolvedSampling:
    """Sampling of both models with every value given. Temperature 0 is greedy; top_k 0 is off."""

    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    predictor_temperature: float
    predictor_top_k: int
    predictor_top_p: float


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """The checkpoint's own sampling and length defaults."""

    sampling: ResolvedSampling
    max_frames: int

    def resolve(self, asked: Sampling) -> ResolvedSampling:
        """Fill what the caller left open from the checkpoint; InputError outside a range."""
        given: dict[str, float] = {}
        for field in fields(self.sampling):
            value = getattr(asked, field.name)
            if value is None:
                continue
            low, high = _RANGES[field.name.removeprefix("predictor_")]
            if not low <= value <= high:
                raise InputError(
                    f"{field.name} is {value}, allowed is {low} to {high}; leave it out to take "
                    "the checkpoint's own"
                )
            given[field.name] = value
        return replace(self.sampling, **given)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything of a checkpoint but its weights."""

    kind: Kind
    size_label: str
    """The checkpoint's tts_model_size: "1b7", "0b6" or a name of its own."""
    talker: StackConfig
    predictor: StackConfig
    codec: CodecConfig
    codec_vocab: int
    """Rows of the talker's codec table: codes, then special ids, languages and speakers."""
    text_vocab: int
    text_hidden: int
    text_ids: TextIds
    codec_ids: CodecIds
    language_ids: Mapping[str, int]
    """Lower-case language name to its codec id, dialects included."""
    voice_ids: Mapping[str, int]
    """Lower-case speaker name to its codec id; empty where the model has none."""
    dialects: Mapping[str, str]
    """Speaker name to the dialect it speaks, for those that speak one."""
    generation: GenerationConfig
    trained_frames: int
    """Longest utterance the talker was trained on: no segment may be longer."""
    speaker: SpeakerConfig | None
    """Reads a voice out of a reference; Base checkpoints alone have it."""
    speech_encoder: SpeechEncoderConfig | None
    """Turns a reference into codes; read for Base checkpoints alone."""
    text_front_end: str
    """Which front end turns text into ids; DEFAULT_FRONT_END unless the checkpoint names one."""

    @property
    def num_codes(self) -> int:
        """Codes of a codebook: the ids below the suppressed end of the talker's vocabulary."""
        return self.codec_vocab - NUM_SUPPRESSED

    @property
    def voices(self) -> tuple[str, ...]:
        """Names of the speakers, in the checkpoint's order."""
        return tuple(self.voice_ids)

    @property
    def languages(self) -> tuple[str, ...]:
        """Names of the languages; `auto` is allowed beside them."""
        return tuple(self.language_ids)

    @property
    def tts_pad_id(self) -> int:
        """Text id of the rows after the text."""
        return self.text_ids.pad

    @property
    def tts_eos_id(self) -> int:
        """Text id of the row that ends the text."""
        return self.text_ids.eos

    @property
    def max_new_frames(self) -> int:
        """Most frames of an utterance, by the checkpoint's own limit."""
        return self.generation.max_frames

    def segment_frames(self, limit: int) -> int:
        """Return the most frames of one talker segment, given the profile's limit."""
        return min(limit, self.trained_frames)


def _read_stack(section: Section) -> StackConfig:
    section.only("hidden_act", "silu")
    section.only("attention_bias", False)
    section.only("use_sliding_window", False)
    section.plain_rope()
    heads, kv_heads = section.integer("num_attention_heads"), section.integer("num_key_value_heads")
    if heads % kv_heads:
        raise section.fail("num_key_value_heads", kv_heads, f"a divisor of {heads} heads")
    head_dim = section.integer("head_dim")
    if head_dim % 2:
        raise section.fail("head_dim", head_dim, "an even number")
    return StackConfig(
        hidden=section.integer("hidden_size"),
        intermediate=section.integer("intermediate_size"),
        num_layers=section.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_eps=section.number("rms_norm_eps"),
        rope_theta=section.number("rope_theta"),
    )


def _read_codec(top: Section) -> CodecConfig:
    top.only("model_type", "qwen3_tts_tokenizer_12hz")
    top.only("output_sample_rate", SAMPLE_RATE_HZ, optional=False)
    top.only("decode_upsample_rate", FRAME_SAMPLES, optional=False)
    section = top.section("decoder_config")
    section.only("num_quantizers", CODEBOOKS, optional=False)
    ratios, rates = section.integers("upsampling_ratios"), section.integers("upsample_rates")
    if math.prod(ratios) * math.prod(rates) != FRAME_SAMPLES:
        raise section.fail("upsample_rates", list(rates), f"a product of {FRAME_SAMPLES} samples")
    width = section.integer("codebook_dim")
    if width % 2:
        raise section.fail("codebook_dim", width, "an even number")
    decoder_width = section.integer("decoder_dim")
    if decoder_width % 2 ** len(rates):
        raise section.fail("decoder_dim", decoder_width, f"a multiple of {2 ** len(rates)}")
    return CodecConfig(
        stack=_read_stack(section),
        codebook_width=width,
        num_codes=section.integer("codebook_size"),
        latent=section.integer("latent_dim"),
        decoder_width=decoder_width,
        window_frames=section.integer("sliding_window", low=2),
        upsample_ratios=ratios,
        decoder_rates=rates,
    )


def _read_generation(path: Path) -> GenerationConfig:
    section = read_json(path)
    sampled = section.flag("do_sample")
    predictor_sampled = section.flag("subtalker_dosample")
    sampling = ResolvedSampling(
        temperature=section.number("temperature", 0.9) if sampled else 0.0,
        top_k=int(section.number("top_k", 50)),
        top_p=section.number("top_p", 1.0),
        repetition_penalty=section.number("repetition_penalty", 1.05),
        predictor_temperature=(
            section.number("subtalker_temperature", 0.9) if predictor_sampled else 0.0
        ),
        predictor_top_k=int(section.number("subtalker_top_k", 50)),
        predictor_top_p=section.number("subtalker_top_p", 1.0),
    )
    return GenerationConfig(sampling, max_frames=int(section.number("max_new_tokens", 2048)))


def _read_codec_ids(talker: Section, vocab: int) -> CodecIds:
    return CodecIds(
        pad=talker.integer("codec_pad_id", 0, vocab),
        bos=talker.integer("codec_bos_id", 0, vocab),
        eos=talker.integer("codec_eos_token_id", vocab - NUM_SUPPRESSED, vocab),
        think=talker.integer("codec_think_id", 0, vocab),
        nothink=talker.integer("codec_nothink_id", 0, vocab),
        think_bos=talker.integer("codec_think_bos_id", 0, vocab),
        think_eos=talker.integer("codec_think_eos_id", 0, vocab),
    )


def _read_dialects(talker: Section, languages: Mapping[str, int]) -> dict[str, str]:
    spoken = {k: str(v) for k, v in talker.flags("spk_is_dialect").items() if v}
    for voice, dialect in spoken.items():
        if dialect not in languages:
            allowed = f"false or one of {', '.join(languages)}"
            raise talker.fail(f"spk_is_dialect[{voice!r}]", dialect, allowed)
    return spoken


def read_config(folder: Path) -> ModelConfig:
    """Read the four JSON files of a checkpoint folder; CheckpointError on the first wrong value."""
    top = read_json(folder / "config.json")
    top.only("model_type", "qwen3_tts", optional=False)
    top.only("tokenizer_type", "qwen3_tts_tokenizer_12hz")
    kind = top.text("tts_model_type", "")
    if kind not in ("custom_voice", "voice_design", "base"):
        raise top.fail("tts_model_type", kind, "custom_voice, voice_design or base")
    talker = top.section("talker_config")
    talker.only("num_code_groups", CODEBOOKS, optional=False)
    predictor = talker.section("code_predictor_config")
    predictor.only("num_code_groups", CODEBOOKS)
    vocab = talker.integer("vocab_size", low=NUM_SUPPRESSED + 1)
    text_vocab = talker.integer("text_vocab_size")
    speech = read_json(folder / "speech_tokenizer" / "config.json")
    codec = _read_codec(speech)
    num_codes = vocab - NUM_SUPPRESSED
    for name, found in (
        ("code_predictor_config.vocab_size", predictor.integer("vocab_size")),
        ("speech_tokenizer codebook_size", codec.num_codes),
    ):
        if found != num_codes:
            raise talker.fail(name, found, f"vocab_size - {NUM_SUPPRESSED} = {num_codes}")
    languages, stack = talker.names("codec_language_id", vocab), _read_stack(talker)
    clones = kind == "base"
    speaker = top.optional("speaker_encoder_config") if clones else None
    encoder = speech.optional("encoder_config") if clones else None
    return ModelConfig(
        kind=cast(Kind, kind),
        size_label=top.text("tts_model_size", ""),
        talker=stack,
        predictor=_read_stack(predictor),
        codec=codec,
        codec_vocab=vocab,
        text_vocab=text_vocab,
        text_hidden=talker.integer("text_hidden_size"),
        text_ids=TextIds(
            *(
                top.integer(f"{name}_token_id", 0, text_vocab)
                for name in ("tts_pad", "tts_bos", "tts_eos", "im_start", "im_end", "assistant")
            )
        ),
        codec_ids=_read_codec_ids(talker, vocab),
        language_ids=MappingProxyType(languages),
        voice_ids=MappingProxyType(talker.names("spk_id", vocab)),
        dialects=MappingProxyType(_read_dialects(talker, languages)),
        generation=_read_generation(folder / "generation_config.json"),
        trained_frames=int(top.number("playhead_trained_frames", DEFAULT_TRAINED_FRAMES)),
        speaker=None if speaker is None else read_speaker(speaker, stack.hidden),
        speech_encoder=None if encoder is None else read_speech_encoder(encoder, num_codes),
        text_front_end=top.text("playhead_text_front_end", DEFAULT_FRONT_END),
    )
