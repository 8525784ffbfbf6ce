"""The tokenizer files of synthetic checkpoints: byte-level BPE over bytes and a few words.

"assistant" and "user" are one token each: the reference counts the tokens of its wrapper.
"""

from typing import Any

_WORDS = "assistant user system the and you that hello world this is a test of speech".split()
_SPECIAL_TEXT = (
    "<|endoftext|> <|im_start|> <|im_end|> <tts_pad> <tts_text_bos> <tts_text_eod>".split()
)
_TRUE_SPECIAL_IDS = (151643, 151644, 151645, 151671, 151672, 151673)
_TRUE_ASSISTANT_ID = 77091
TRUE_TEXT_VOCAB = 151936


def special_ids(text_vocab: int) -> tuple[int, ...]:
    """Return the ids of the special texts; the published ones for the published vocabulary."""
    if text_vocab == TRUE_TEXT_VOCAB:
        return _TRUE_SPECIAL_IDS
    first = text_vocab - len(_SPECIAL_TEXT)
    return tuple(range(first, text_vocab))


def bpe_files(text_vocab: int) -> tuple[dict[str, int], list[str]]:
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
            true_id = text_vocab == TRUE_TEXT_VOCAB and left == "assistant"
            vocab.setdefault(left, _TRUE_ASSISTANT_ID if true_id else len(vocab))
    used = set(vocab.values())
    for i in range(special_ids(text_vocab)[0]):
        if i not in used:
            vocab[f"<|unused_{i}|>"] = i
    return dict(sorted(vocab.items(), key=lambda item: item[1])), merges


def tokenizer_config(special: tuple[int, ...]) -> dict[str, Any]:
    """Return the values of tokenizer_config.json."""
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
