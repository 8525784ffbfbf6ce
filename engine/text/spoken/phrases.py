"""PhraseBook: finds written words and phrases at a place of text that is still arriving."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

_BOUND_BELOW = 0x2E80
"""Scripts from here on are written without spaces: a phrase ends anywhere."""


@dataclass(frozen=True, slots=True)
class Found:
    """A phrase of the book and how far it reaches."""

    num_chars: int
    value: str


WAIT = Found(0, "")
"""More text decides whether a phrase stands here."""


class PhraseBook:
    """Phrases and what stands for them; the longest wins."""

    def __init__(self, entries: Iterable[tuple[str, str]], fold_case: bool) -> None:
        """Take (phrase, value) pairs; of equal phrases the last counts."""
        self._fold = fold_case
        by_phrase = {self._folded(phrase): value for phrase, value in entries}
        self._by_first: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for phrase in sorted(by_phrase, key=len, reverse=True):
            self._by_first[phrase[0]].append((phrase, by_phrase[phrase]))

    def find(self, text: str, at: int, closed: bool) -> Found | None:
        """Return the phrase that begins at `at`; WAIT while that is open."""
        if at and _is_bound(text[at - 1]) and _is_bound(text[at]):
            return None
        return self.find_start(text, at, closed)

    def find_start(self, text: str, at: int, closed: bool) -> Found | None:
        """Do the same where the caller knows that a word begins at `at`."""
        for phrase, value in self._by_first.get(self._folded(text[at]), ()):
            given = self._folded(text[at : at + len(phrase) + 1])
            if given[: len(phrase)] != phrase:
                if not closed and phrase.startswith(given):
                    return WAIT
                continue
            if _is_bound(phrase[-1]):
                if len(given) == len(phrase):
                    return WAIT
                if _is_bound(given[-1]):
                    continue
            return Found(len(phrase), value)
        return None

    def _folded(self, text: str) -> str:
        """Lower case where that keeps the length."""
        if not self._fold:
            return text
        low = text.lower()
        return low if len(low) == len(text) else "".join(_low(char) for char in text)


def _low(char: str) -> str:
    low = char.lower()
    return low if len(low) == 1 else char


def _is_bound(char: str) -> bool:
    return char.isalnum() and ord(char) < _BOUND_BELOW
