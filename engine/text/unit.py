"""TextUnit: a piece of text that later text can no longer change; torch-free, any thread."""

import unicodedata
from typing import NamedTuple

_SPOKEN_MARKS = "&%@#§"
"""Marks that are read as words."""


class TextUnit(NamedTuple):
    """One word with the marks and white space around it, as the talker's text rows."""

    text: str
    """Slice of the input; the texts of all units of a stream joined are the input, exactly."""
    token_ids: tuple[int, ...]
    """Text rows, one a token; empty for text that has no sound (emoji, markdown)."""
    sentence_end: bool
    """A sentence ends behind this unit: speech may pause or change its segment here."""
    word_rows: tuple[float, float] | None = None
    """Frames in which the word sounds, counted from the frame of the unit's first row.

    Only front ends in step with the frames know them (half frames occur: a row holds two slots
    of 40 ms). The lead of the text over the sound is already in them: a first row that announces
    the next frame's sound gives (1.0, ...), less what the voice comes before its rows. The end
    may lie in a later unit's rows.
    """

    @property
    def has_words(self) -> bool:
        """It sounds, and more than white space, control characters and marks is written."""
        if not self.token_ids:
            return False
        if any(map(str.isalnum, self.text)):  # nearly always, and no loop of ours
            return True
        return any(
            unicodedata.category(char)[0] not in "PZC" or char in _SPOKEN_MARKS
            for char in self.text
        )
