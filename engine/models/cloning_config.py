"""What a checkpoint says of the two parts that only cloning needs; pure values, no torch.

Keys that a checkpoint leaves out have the defaults of the published ones: Base checkpoints write
only the width of the speaker vector, speech tokenizers the whole encoder.
"""

import math
from dataclasses import dataclass

from playhead.engine.models.section import Section
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES, SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class SpeakerConfig:
    """The network from log-mel frames to one speaker vector (spec section 7)."""

    width: int
    """Values of the speaker vector: the talker's width."""
    channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    """Of the first layer, the residual blocks, and their joint layer."""
    kernels: tuple[int, ...] = (5, 3, 3, 3, 1)
    dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    attention: int = 128
    squeeze: int = 128
    splits: int = 8
    num_mels: int = 128


@dataclass(frozen=True, slots=True)
class SpeechEncoderConfig:
    """The encoder from samples to codes (spec section 7)."""

    hidden: int
    num_filters: int
    rates: tuple[int, ...]
    """Strides of the convolutions, first to last; a last one of 2 follows the transformer."""
    kernel: int
    last_kernel: int
    residual_kernel: int
    compress: int
    num_layers: int
    num_heads: int
    head_dim: int
    intermediate: int
    norm_eps: float
    rope_theta: float
    code_width: int
    num_codes: int
    num_quantizers: int
    """Stored ones; the first CODEBOOKS are used."""


def read_speaker(section: Section, talker_width: int) -> SpeakerConfig:
    """Read a Base checkpoint's `speaker_encoder_config`; CheckpointError on a wrong value."""
    section.only("sample_rate", SAMPLE_RATE_HZ)
    plain = SpeakerConfig(width=section.integer("enc_dim"))
    found = SpeakerConfig(
        width=plain.width,
        channels=section.integers("enc_channels", plain.channels),
        kernels=section.integers("enc_kernel_sizes", plain.kernels),
        dilations=section.integers("enc_dilations", plain.dilations),
        attention=section.count("enc_attention_channels", plain.attention),
        squeeze=section.count("enc_se_channels", plain.squeeze),
        splits=section.count("enc_res2net_scale", plain.splits),
        num_mels=section.count("mel_dim", plain.num_mels),
    )
    if found.width != talker_width:
        raise section.fail("enc_dim", found.width, f"the talker's hidden_size {talker_width}")
    lengths = {len(found.channels), len(found.kernels), len(found.dilations)}
    if lengths != {len(found.channels)} or len(found.channels) < 3:
        raise section.fail("enc_channels", list(found.channels), "as many kernels and dilations")
    if sum(found.channels[1:-1]) != found.channels[-1] or len(set(found.channels[:-1])) != 1:
        raise section.fail("enc_channels", list(found.channels), "equal blocks and their sum last")
    if found.channels[0] % found.splits:
        raise section.fail("enc_res2net_scale", found.splits, f"a divisor of {found.channels[0]}")
    return found


def read_speech_encoder(section: Section, num_codes: int) -> SpeechEncoderConfig:
    """Read a speech tokenizer's `encoder_config`; CheckpointError on a wrong value."""
    fixed = {"audio_channels": 1, "num_residual_layers": 1, "use_causal_conv": True,
             "use_conv_shortcut": False, "pad_mode": "constant", "hidden_act": "gelu",
             "attention_bias": False, "num_semantic_quantizers": 1,
             "sampling_rate": SAMPLE_RATE_HZ, "codebook_size": num_codes}  # fmt: skip
    for key, value in fixed.items():
        section.only(key, value)
    rates = tuple(reversed(section.integers("upsampling_ratios", (8, 6, 5, 4))))
    if 2 * math.prod(rates) != FRAME_SAMPLES:
        raise section.fail("upsampling_ratios", list(rates), f"a product of {FRAME_SAMPLES // 2}")
    hidden, heads = section.count("hidden_size", 512), section.count("num_attention_heads", 8)
    section.only("num_key_value_heads", heads)
    width = section.count("codebook_dim", 256)
    section.only("vector_quantization_hidden_dimension", width)
    quantizers = section.count("num_quantizers", 32)
    if quantizers < CODEBOOKS:
        raise section.fail("num_quantizers", quantizers, f"at least {CODEBOOKS}")
    return SpeechEncoderConfig(
        hidden=hidden,
        num_filters=section.count("num_filters", 64),
        rates=rates,
        kernel=section.count("kernel_size", 7),
        last_kernel=section.count("last_kernel_size", 3),
        residual_kernel=section.count("residual_kernel_size", 3),
        compress=section.count("compress", 2),
        num_layers=section.count("num_hidden_layers", 8),
        num_heads=heads,
        head_dim=section.count("head_dim", hidden // heads),
        intermediate=section.count("intermediate_size", 2048),
        norm_eps=section.number("norm_eps", 1e-5),
        rope_theta=section.number("rope_theta", 1e4),
        code_width=width,
        num_codes=num_codes,
        num_quantizers=quantizers,
    )
