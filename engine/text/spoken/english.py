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
from playhead.engine.text.english.normalise import plain, spoken
from playhead.engine.text.english.piece import needs_next
from playhead.engine.text.english.roman import roman

PIECE = re.compile(r"\S{1,400}")
_WRITTEN = re.compile(
    rf"[\d$€£¥₹₩%&@°=×÷#+±≈≤≥≠½¼¾⅐-⅞²³]|[A-Za-z]\.[A-Za-z]\.|\w\.(?:{DOMAINS})\b", re.IGNORECASE
)
_WORD = r"[A-Za-z][a-z]{0,30}+(?:['’-][a-z]{1,30}+){0,4}+"
_PLAIN = re.compile(rf"(?:\s*+{_WORD}[,;:?!]?(?=\s))*+(?:\s*+({_WORD})\.(?=\s))?\s*+")
"""Words up to a full stop that nothing before them changes but a figure."""
_LAST = re.compile(r"(?:\+\d{1,3}(?:\s\(?\d{1,4}\)?)*|\S+)\s*$")
_SHORTENED = re.compile(r"^([A-Za-z]+)\.,?$")
_MARK = re.compile(r" ([,.?!])")
_OTHER_SCRIPT = re.compile(
    "((?:(?![\u2000-\u206f\u20a0-\u20cf\u2100-\u2bff])[\u0370-\U0010ffff])+)"
)
"""Letters and marks that are not Latin: the English reader has no sounds for them."""
_JOINED_SCRIPT = "\u2e80"
"""From here on scripts do not part their words."""
_RANGE = re.compile(r"(?<=\d)[~～](?=\d)")
_LETTER_NAMES = re.compile(r"\b([A-Z]) (?=[A-Z]\b)")


def piece_at(text: str, at: int, closed: bool) -> str | None:
    """Return the piece that begins at `at`; None while it may go on."""
    found = PIECE.match(text, at)
    assert found is not None, "a piece begins where no white space is"
    whole = found.end() < len(text) or closed
    return found.group() if whole else None


def plain_end(text: str, at: int) -> int:
    """Return where plain words end that begin at `at`, between pieces and not behind a figure.

    `is_written` is false of each; ordinary English is nothing else, and is read in one match.
    """
    found = _PLAIN.match(text, at)
    assert found is not None, "it matches nothing too"
    last = found[1]
    if last is not None and (last.lower() in TITLES or last.lower() in CLIPPED):
        return found.start(1)
    return found.end()


def last_piece(tail: str) -> str:
    """Return the piece at the end of what was written; of a telephone number all groups so far."""
    if "+" not in tail:
        return "".join(tail.split()[-1:])
    found = _LAST.search(tail)
    return found.group().rstrip() if found else ""


def is_written(piece: str, before: str) -> bool:
    """The piece is not said as it is written, or what stands before it may change it."""
    if _WRITTEN.search(piece):
        return True
    low = plain(piece).lower().strip(".,;:!?")
    if roman(plain(piece).strip(".,;:!?"), plain(before)):
        return True
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
    """Return what is said for a piece between its neighbours; other scripts stay as written."""
    parts = _OTHER_SCRIPT.split(_RANGE.sub("-", piece))
    if len(parts) == 1:
        return _said(parts[0], before, after)
    out = ""
    for at, part in enumerate(parts):
        text = part if at % 2 else _said(part, before if at == 0 else "", "") if part else ""
        apart = out and text and out[-1].isalnum() and text[0].isalnum()
        if apart and max(out[-1], text[0]) < _JOINED_SCRIPT:
            out += " "
        out += text
    return out


def _said(piece: str, before: str, after: str) -> str:
    words = spoken(plain(piece), plain(before), plain(after))
    text = _MARK.sub(r"\1", " ".join(words)).removeprefix(", ")
    return _LETTER_NAMES.sub(r"\1", text)
