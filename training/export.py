"""Write trained weights as a checkpoint folder in the three-part layout, in two shards.

`python -m training.export WEIGHTS_FOLDER VOICE_FOLDER` reads talker.pt, predictor.pt and codec.pt;
lexicon and durations are put into the folder by the steps that make them. The speech encoder is
left out: decoding needs none.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from playhead.engine.text.english.phonemes import NUM_SOUNDS, PAIR_BASE
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES, SAMPLE_RATE_HZ
from training import sizes as ids
from training.codec import RATES, UPSAMPLING
from training.sizes import SIZES, Sizes
from training.talker import Talker, TextTable
from training.tokenizer import write_tokenizer
from training.train_talker import load_weights

SPEAKER_NAME = "heart"
GENERATION = {
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 20,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.6,
    "subtalker_top_k": 20,
    "subtalker_top_p": 1.0,
    "max_new_tokens": 4096,
}


def model_config(sizes: Sizes) -> dict[str, Any]:
    """Return config.json."""
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "talker_config": talker_config(sizes),
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": "tiny",
        "tts_model_type": "custom_voice",
        "im_start_token_id": ids.TEXT_IDS["<|im_start|>"],
        "im_end_token_id": ids.TEXT_IDS["<|im_end|>"],
        "assistant_token_id": ids.TEXT_IDS["assistant"],
        "tts_pad_token_id": ids.TTS_PAD,
        "tts_bos_token_id": ids.TTS_BOS,
        "tts_eos_token_id": ids.TTS_EOS,
        "torch_dtype": "float16",
        "playhead_text_front_end": "english_in_step",
        "playhead_trained_frames": ids.MAX_FRAMES,
    }


def talker_config(sizes: Sizes) -> dict[str, Any]:
    """Return the talker's part of config.json, the code predictor's inside it."""
    head = sizes.talker_width // sizes.heads
    common = {
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "initializer_range": 0.02,
        "num_code_groups": CODEBOOKS,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": head,
        "rope_theta": sizes.rope_theta,
    }
    predictor = common | {
        "model_type": "qwen3_tts_talker_code_predictor",
        "vocab_size": sizes.codebook,
        "hidden_size": sizes.predictor_width,
        "intermediate_size": sizes.predictor_mlp,
        "num_hidden_layers": sizes.predictor_layers,
        "rope_scaling": None,
    }
    third = head // 6
    return common | {
        "model_type": "qwen3_tts_talker",
        "code_predictor_config": predictor,
        "vocab_size": sizes.codec_vocab,
        "hidden_size": sizes.talker_width,
        "intermediate_size": sizes.talker_mlp,
        "num_hidden_layers": sizes.talker_layers,
        "text_hidden_size": sizes.text_width,
        "text_vocab_size": sizes.text_vocab,
        "position_id_per_seconds": 13,
        "rope_scaling": {
            "rope_type": "default",
            "type": "default",
            "interleaved": True,
            "mrope_section": [head // 2 - 2 * third, third, third],
        },
        "codec_pad_id": ids.CODEC_PAD,
        "codec_bos_id": ids.CODEC_BOS,
        "codec_eos_token_id": ids.CODEC_EOS,
        "codec_think_id": ids.THINK,
        "codec_nothink_id": ids.NO_THINK,
        "codec_think_bos_id": ids.THINK_BOS,
        "codec_think_eos_id": ids.THINK_EOS,
        "codec_language_id": {"english": ids.ENGLISH},
        "spk_id": {SPEAKER_NAME: ids.SPEAKER},
        "spk_is_dialect": {SPEAKER_NAME: False},
    }


def codec_config(sizes: Sizes) -> dict[str, Any]:
    """Return speech_tokenizer/config.json."""
    decoder = {
        "codebook_size": sizes.codebook,
        "codebook_dim": 2 * sizes.codec_book_width,
        "hidden_size": sizes.codec_width,
        "latent_dim": sizes.codec_width,
        "max_position_embeddings": 8000,
        "rope_theta": sizes.rope_theta,
        "num_attention_heads": sizes.codec_heads,
        "num_key_value_heads": sizes.codec_heads,
        "head_dim": sizes.codec_width // sizes.codec_heads,
        "attention_bias": False,
        "sliding_window": sizes.codec_window,
        "intermediate_size": sizes.codec_mlp,
        "hidden_act": "silu",
        "layer_scale_initial_scale": 0.01,
        "rms_norm_eps": 1e-5,
        "num_hidden_layers": sizes.codec_layers,
        "num_quantizers": CODEBOOKS,
        "upsample_rates": list(RATES),
        "upsampling_ratios": list(UPSAMPLING),
        "decoder_dim": sizes.codec_channels,
    }
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "decoder_config": decoder,
        "encoder_valid_num_quantizers": CODEBOOKS,
        "input_sample_rate": SAMPLE_RATE_HZ,
        "output_sample_rate": SAMPLE_RATE_HZ,
        "decode_upsample_rate": FRAME_SAMPLES,
        "encode_downsample_rate": FRAME_SAMPLES,
    }


def num_layers(names: Iterable[str]) -> int:
    """Return how many layers a talker has, from the names of its weights."""
    layers = {name.split(".")[2] for name in names if name.startswith("model.layers.")}
    return len(layers)


def talker_weights(trained: tuple[dict[str, Tensor], ...], sizes: Sizes) -> dict[str, Tensor]:
    """Return the talker's weights with the text table written out."""
    model = Talker(sizes)
    table = TextTable(model, PAIR_BASE, NUM_SOUNDS)
    model.load_state_dict(trained[0])
    table.load_state_dict(trained[1])
    weights = {f"talker.{k}": v for k, v in model.state_dict().items()}
    weights["talker.model.text_embedding.weight"] = table.materialise()
    return {k: v.half().contiguous() for k, v in weights.items()}


def save_sharded(weights: dict[str, Tensor], folder: Path) -> None:
    """Write the predictor's weights and the rest as two shards with an index."""
    shards: list[dict[str, Tensor]] = [{}, {}]
    for name in sorted(weights):
        shards[0 if ".code_predictor." in name else 1][name] = weights[name]
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, str(folder / file), metadata={"format": "pt"})
        places |= dict.fromkeys(shard, file)
    size = sum(v.numel() * v.element_size() for v in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
    write_json(folder / "model.safetensors.index.json", index)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write indented JSON."""
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def export(source: Path, folder: Path, sizes: Sizes = SIZES) -> None:
    """Write everything but lexicon, durations and the card; the weights tell the layers."""
    (folder / "speech_tokenizer").mkdir(parents=True, exist_ok=True)
    trained = load_weights(source)
    sizes = replace(sizes, talker_layers=num_layers(trained[0]))
    save_sharded(talker_weights(trained, sizes), folder)
    decoder = torch.load(source / "codec.pt", map_location="cpu", weights_only=True)
    save_file(
        {f"decoder.{k}": v.half().contiguous() for k, v in decoder.items()},
        str(folder / "speech_tokenizer" / "model.safetensors"),
        metadata={"format": "pt"},
    )
    write_json(folder / "config.json", model_config(sizes))
    write_json(folder / "speech_tokenizer" / "config.json", codec_config(sizes))
    write_json(folder / "generation_config.json", GENERATION)
    write_tokenizer(folder)


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]))
