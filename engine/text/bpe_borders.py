"""BpeBorders: where a run of ideographs or kana can be cut without changing its ids.

Byte-level BPE works on whole runs of letters, and such a run has no spaces: a sentence of Chinese
is one. Between two characters that no token of the vocabulary holds together, no merge can ever
join them, so the text before is final. Built once a tokenizer, then a set look-up a character.
"""

import unicodedata
from itertools import pairwise

from tokenizers import Tokenizer

_FIRST, _LAST = "\u3040", "\u9fff"
"""Kana and ideographs: three bytes each."""


def _byte_of_char() -> dict[str, int]:
    """Return the byte each character of a byte-level vocabulary stands for (GPT-2's table)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    table = {chr(byte): byte for byte in shown}
    return table | {chr(256 + at): byte for at, byte in enumerate(hidden)}


class BpeBorders:
    """The pairs of characters, or of parts of them, that some token holds together."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Go through the vocabulary."""
        bytes_of = _byte_of_char()
        self._joined: set[tuple[bytes, bytes]] = set()
        for token in tokenizer.get_vocab():
            if len(token) > 1 and not token.isascii() and all(char in bytes_of for char in token):
                self._add(bytes(bytes_of[char] for char in token))

    def _add(self, token: bytes) -> None:
        starts = [at for at, byte in enumerate(token) if byte & 0xC0 != 0x80]
        bounds = [0, *(start for start in starts if start), len(token)]
        parts = [token[start:end] for start, end in pairwise(bounds)]
        self._joined.update(pairwise(parts))

    def cut_before(self, text: str, at: int) -> bool:
        """Say whether the ids before `at` and from it on never depend on each other.

        False where either character was or could still be composed with a mark: its bytes are
        not those that are written.
        """
        left, right = text[at - 1], text[at]
        if not (_FIRST <= left <= _LAST and _FIRST <= right <= _LAST):
            return False
        if at + 1 == len(text) or any(map(unicodedata.combining, text[at - 1 : at + 2])):
            return False
        before, behind = left.encode(), right.encode()
        return not any(
            (before[-num_left:], behind[:num_right]) in self._joined
            for num_left in (1, 2, 3)
            for num_right in (1, 2, 3)
        )
