"""Pieces of English text, what stands between white space, and what they depend on; pure."""

import re

from playhead.engine.text.english.abbreviations import CLIPPED, PAUSES, TITLES

PHONE_START = re.compile(r"\+\d{1,3}(?: |$)")
_ENDS_WITH_MARK = re.compile(r"[,;:.!?…)]$")
_MAYBE_ABBREVIATION = re.compile(
    r"(?:^|[^A-Za-z])(?:[A-Za-z]\.)+$|(?:^|[^A-Za-z])([A-Za-z]{2,6})\.$"
)


def run_of(before: str, core: str) -> str:
    """Return what stands before the piece behind `core`: of a telephone number all so far."""
    in_number = PHONE_START.match(before) and re.fullmatch(r"\(?\d{1,4}\)?", core)
    return f"{before} {core}" if in_number else core


def needs_next(core: str) -> bool:
    """The reading of this piece (after `plain`) can depend on the piece behind it."""
    if not _ENDS_WITH_MARK.search(core):
        return True
    return _may_be_abbreviation(core)


def _may_be_abbreviation(core: str) -> bool:
    match = _MAYBE_ABBREVIATION.search(core)
    if match is None:
        return False
    word = match.group(1)
    return word is None or word.lower() in TITLES or word.lower() in CLIPPED


def merge_pauses(tokens: list[str]) -> list[str]:
    """Keep one mark where several meet: the strongest, the first of equals."""
    out: list[str] = []
    for token in tokens:
        if token in PAUSES and out and out[-1] in PAUSES:
            if out[-1] == ",":
                out[-1] = token
        else:
            out.append(token)
    return out
