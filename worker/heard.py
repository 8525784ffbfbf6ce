"""Which words of a speech were heard, given how far it was heard; pure."""

from collections.abc import Sequence

from playhead.engine.messages import Word


def heard_text(words: Sequence[Word], heard_s: float) -> str:
    """Return the text heard: whole words, and the word being spoken if more than half sounded."""
    return "".join(word.text for word in words if _counts(word, heard_s)).rstrip()


def begun(words: Sequence[Word], at_s: float) -> int:
    """Return how many words have begun to sound."""
    return sum(1 for word in words if word.start_s <= at_s)


def _counts(word: Word, heard_s: float) -> bool:
    if heard_s <= 0.0:
        return False
    return heard_s > (word.start_s + word.end_s) / 2 or word.end_s <= heard_s
