"""English pieces that are not plain words, read as the English front end reads them; pure."""

import re

from playhead.engine.text.english.abbreviations import (
    CLIPPED,
    DOMAINS,
    FIXED_UNITS,
    SCALE_WORDS,
    TITLES,
    UNITS,
)
from playhead.engine.text.english.normalise import needs_next, plain, spoken

PIECE = re.compile(r"\S{1,400}")
_WRITTEN = re.compile(rf"[\d$€£%&@°=×#+]|[A-Za-z]\.[A-Za-z]\.|\w\.(?:{DOMAINS})\b", re.IGNORECASE)
_SHORTENED = re.compile(r"^([A-Za-z]+)\.,?$")
_MARK = re.compile(r" ([,.?!])")
_LETTER_NAMES = re.compile(r"\b([A-Z]) (?=[A-Z]\b)")


def piece_at(text: str, at: int, closed: bool) -> str | None:
    """Return the piece that begins at `at`; None while it may go on."""
    found = PIECE.match(text, at)
    assert found is not None, "a piece begins where no white space is"
    whole = found.end() < len(text) or closed
    return found.group() if whole else None


def is_written(piece: str, before: str) -> bool:
    """The piece is not said as it is written, or what stands before it may change it."""
    if _WRITTEN.search(piece):
        return True
    low = plain(piece).lower().strip(".,;:!?")
    if before[-1:].isdigit() and (low in UNITS or low in FIXED_UNITS or low in SCALE_WORDS):
        return True
    if before[-1:].isdigit() and re.fullmatch(r"[ap]\.?m\.?", low):
        return True
    short = _SHORTENED.match(plain(piece))
    return short is not None and (short[1].lower() in TITLES or short[1].lower() in CLIPPED)


def depends_on_next(piece: str) -> bool:
    """The reading of the piece can depend on the one behind it."""
    return needs_next(plain(piece))


def said(piece: str, before: str, after: str) -> str:
    """Return what is said for a piece between its neighbours."""
    words = spoken(plain(piece), plain(before), plain(after))
    text = _MARK.sub(r"\1", " ".join(words)).removeprefix(", ")
    return _LETTER_NAMES.sub(r"\1", text)
