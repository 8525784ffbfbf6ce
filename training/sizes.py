"""Sizes and special ids of the voice; every part of the recipe takes them from here."""

from dataclasses import dataclass

from playhead.engine.text.english.phonemes import NUM_PAIRS, PAIR_BASE

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "assistant",
    "user",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
)

NUM_HALVES = -(-NUM_PAIRS // 64)
"""Tokens of the first two bytes of the characters that rows are written as."""
MAX_FRAMES = 250
"""Longest utterance that is trained on."""
FIRST_SPECIAL = PAIR_BASE + NUM_PAIRS + NUM_HALVES


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the three parts."""

    codebook: int = 256
    talker_width: int = 256
    talker_layers: int = 7
    talker_mlp: int = 576
    text_width: int = 128
    predictor_width: int = 256
    predictor_layers: int = 2
    predictor_mlp: int = 512
    heads: int = 4
    kv_heads: int = 2
    rope_theta: float = 10_000.0
    codec_width: int = 160
    codec_layers: int = 2
    codec_heads: int = 4
    codec_mlp: int = 320
    codec_window: int = 16
    codec_channels: int = 192
    codec_book_width: int = 96
    """Half of the codec's `codebook_dim`."""

    @property
    def codec_vocab(self) -> int:
        """Codes plus specials; the layout suppresses the last 1024 ids, so at least that many."""
        return self.codebook + 1024

    @property
    def text_vocab(self) -> int:
        """Bytes, pairs of sounds, half characters and specials, rounded up to 64."""
        return -(-(FIRST_SPECIAL + len(SPECIALS)) // 64) * 64


SIZES = Sizes()
CODEC_PAD, CODEC_BOS, CODEC_EOS, THINK, NO_THINK, THINK_BOS, THINK_EOS, ENGLISH, SPEAKER = range(
    SIZES.codebook, SIZES.codebook + 9
)
TEXT_IDS = {text: FIRST_SPECIAL + index for index, text in enumerate(SPECIALS)}
NEWLINE = 198
"""The byte-level id of a line feed in the Qwen2 byte order."""
TTS_PAD, TTS_BOS, TTS_EOS = (TEXT_IDS[f"<tts_{name}>"] for name in ("pad", "text_bos", "text_eod"))
ROLE = (TEXT_IDS["<|im_start|>"], TEXT_IDS["assistant"], NEWLINE)
