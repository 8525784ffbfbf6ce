"""The published checkpoints: their names on the Hub and how much they hold. Pure, no torch."""

from collections.abc import Mapping

# repository: tensors and values of model.safetensors, as public ports record them
PUBLISHED: Mapping[str, tuple[int, int]] = {
    "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice": (404, 1_916_676_352),
    "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign": (404, 1_916_676_352),
    "Qwen/Qwen3-TTS-12Hz-1.7B-Base": (480, 1_928_677_440),
    "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice": (402, 905_788_672),
    "Qwen/Qwen3-TTS-12Hz-0.6B-Base": (478, 914_643_008),
}
PUBLISHED_SPEECH_TOKENIZER = (271 + 225, 114_323_137 + 56_234_304)
"""Tensors and values of its decoder plus its encoder; the same file in all repositories."""
SHORT_NAMES = {name.rsplit("12Hz-", 1)[1].lower(): name for name in PUBLISHED}
"""As in 1.7b-base."""
