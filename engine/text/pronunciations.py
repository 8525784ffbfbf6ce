"""Pronunciations a caller gives with a request: checked at the edge, applied in front of the text.

A respelling is plain text, or, for the English front end, phonemes between slashes: words of the
alphabet in english/phonemes.py, as in ("Nguyen", "/nəɡwˈɪn/").
"""

import re
from collections.abc import Sequence

from playhead.engine.errors import InputError
from playhead.engine.text.english.phonemes import (
    CONSONANTS,
    SOUNDS_CLOSE,
    SOUNDS_OPEN,
    VOWELS,
    is_pronunciation,
)

MAX_PRONUNCIATIONS = 200
MAX_WORD_CHARS = 64
MAX_RESPELLING_CHARS = 200

_PHONEMES = re.compile(r"/(.*)/", re.DOTALL)


def check_pronunciations(given: Sequence[tuple[str, str]], phonemes: bool = True) -> None:
    """Raise the InputError that says which entry can't be used and why.

    `phonemes`: the front end takes phonemes beside respellings.
    """
    if len(given) > MAX_PRONUNCIATIONS:
        raise InputError(
            f"pronunciations has {len(given)} entries, most are {MAX_PRONUNCIATIONS}; "
            "send those the text needs"
        )
    for word, respelling in given:
        _check_chars("word", word, word, MAX_WORD_CHARS)
        _check_chars("respelling", word, respelling, MAX_RESPELLING_CHARS)
        said = _PHONEMES.fullmatch(respelling)
        if said is None:
            continue
        if not phonemes:
            raise InputError(
                f"pronunciations: {word!r} has phonemes, which this checkpoint does not take; "
                "write it as it sounds, as in 'noo-win'"
            )
        for part in said[1].split() or [""]:
            if not is_pronunciation(part):
                allowed = " ".join((*CONSONANTS, *VOWELS, "ˈ", "ˌ"))
                raise InputError(
                    f"pronunciations: {word!r} has {part!r}, allowed are words of {allowed}"
                )


def _check_chars(kind: str, word: str, text: str, most: int) -> None:
    shown = word[:MAX_WORD_CHARS]
    if not text.strip() or len(text) > most:
        raise InputError(
            f"pronunciations: the {kind} of {shown!r} has {len(text)} characters, "
            f"allowed are 1 to {most}, not all of them spaces"
        )


def spoken_entries(given: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return entries with phonemes marked as the English front end reads them."""
    return [(word, _marked(respelling)) for word, respelling in given]


def _marked(respelling: str) -> str:
    said = _PHONEMES.fullmatch(respelling)
    if said is None:
        return respelling
    return " ".join(f"{SOUNDS_OPEN}{part}{SOUNDS_CLOSE}" for part in said[1].split())
