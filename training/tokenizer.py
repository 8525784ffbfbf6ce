"""The checkpoint's tokenizer files: rows of pairs as text, in the Qwen2 layout.

A row is written as one ideograph (playhead.engine.text.english.phonemes.written). Its three UTF-8
bytes become one token by two merges, so the tokenizer gives the same ids as the front end.
"""

import json
from pathlib import Path
from typing import Any

from playhead.engine.text.english.phonemes import NUM_PAIRS, PAIR_BASE, written
from training.sizes import NEWLINE, SPECIALS, TEXT_IDS

QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ADDED = {
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": True,
}


def byte_characters() -> dict[int, str]:
    """Return the printable character of each byte, as in GPT-2 and Qwen2."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {
        byte: chr(256 + index) for index, byte in enumerate(rest)
    }


def write_tokenizer(folder: Path) -> None:
    """Write vocab.json, merges.txt, tokenizer.json and tokenizer_config.json."""
    vocab, merges = vocabulary()
    added = [{"id": TEXT_IDS[text], "content": text, **_ADDED} for text in SPECIALS]
    files = {
        "tokenizer.json": pipeline(vocab, merges, added),
        "vocab.json": vocab,
        "tokenizer_config.json": settings(added),
    }
    for name, content in files.items():
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        (folder / name).write_text(text + "\n", encoding="utf-8")
    merged = "\n".join(["#version: 0.2", *merges])
    (folder / "merges.txt").write_text(merged + "\n", encoding="utf-8")


def vocabulary() -> tuple[dict[str, int], list[str]]:
    """Return token -> id, and the merges that make a row of its three bytes."""
    vocab = {character: index for index, character in enumerate(sorted(byte_characters().values()))}
    assert len(vocab) == PAIR_BASE and vocab["Ċ"] == NEWLINE
    merges: list[str] = []
    letters = byte_characters()
    next_id = PAIR_BASE + NUM_PAIRS
    for row in range(PAIR_BASE, PAIR_BASE + NUM_PAIRS):
        first, second, third = (letters[byte] for byte in written([row]).encode())
        if first + second not in vocab:
            vocab[first + second] = next_id
            next_id += 1
            merges.append(f"{first} {second}")
        vocab[first + second + third] = row
        merges.append(f"{first + second} {third}")
    return vocab, merges


def pipeline(
    vocab: dict[str, int], merges: list[str], added: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return tokenizer.json: Qwen2's pre-tokens, then byte-level BPE."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    split = {
        "type": "Split",
        "pattern": {"Regex": QWEN2_PATTERN},
        "behavior": "Isolated",
        "invert": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def settings(added: list[dict[str, Any]]) -> dict[str, Any]:
    """Return tokenizer_config.json."""
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "model_max_length": 4096,
        "add_prefix_space": False,
        "pad_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "unk_token": None,
        "bos_token": None,
        "errors": "replace",
        "split_special_tokens": False,
        "added_tokens_decoder": {
            str(entry["id"]): {k: v for k, v in entry.items() if k != "id"} for entry in added
        },
    }
