"""Where figures begin, and the window of text their reading may depend on; pure.

A window is the run of figures, what is glued to it and one word behind it. It depends on the text
alone, so text that arrives in pieces is read the same.
"""

import re

import regex

from playhead.engine.text.spoken.fractions import VULGAR

MAX_WINDOW_CHARS = 48
_FIGURE_MARKS = frozenset(".,:/-–−－~+＋()'’：／．～〜%‰°℃℉²³ºª$€£¥￥₽₩R\u00a0\u202f")
_DATE_MARKS = frozenset("年月日号號点點时時分秒년월일시분초")
_STARTS = regex.compile(
    r"[+\-−－＋]?(?:(?:USD|EUR|GBP|JPY|RUB|KRW|BRL)[ \u00a0]|(?:US|R)?[$€£¥￥₽₩][ \u00a0]?)?\d"
    rf"|[{VULGAR}]|\(\d{{2,5}}\)"
)
_BEHIND = frozenset("%‰°℃℉$€£¥￥₽₩")
"""Signs that may stand behind a number and a space."""
_DIGIT = re.compile(r"\d")
_SPACES = " \u00a0\u202f"
_NO_SPACE_FROM = 0x2E80


def starts_figure(text: str, at: int, closed: bool) -> bool | None:
    """Figures, or a sign before figures, begin here; None while that is open."""
    found = _STARTS.match(text, at, partial=not closed)
    return None if found is not None and found.partial else found is not None


def window_end(text: str, at: int, closed: bool, spaced_groups: bool) -> int | None:
    """Return where the window of the figures at `at` ends; None while more text is needed."""
    spaced = spaced_groups or text[at] in "+(0"
    limit = at + MAX_WINDOW_CHARS
    i = at
    while i < limit:
        if i == len(text):
            return i if closed else None
        char = text[i]
        if char == "\n":
            return i
        if char in _SPACES:
            if i + 1 == len(text):
                return i if closed else None
            following = text[i + 1]
            joins = spaced or text[i - 1] in _DATE_MARKS or not _DIGIT.search(text, at, i)
            if following in _BEHIND or (following.isdigit() and joins):
                i += 1
                continue
            if following == "(" and spaced:
                i += 1
                continue
            return _word_end(text, i + 1, limit, closed) if following.isalpha() else i
        if char.isalpha() and ord(char) >= _NO_SPACE_FROM and char not in _DATE_MARKS:
            return _word_end(text, i, limit, closed)
        if not (char.isalnum() or char in _FIGURE_MARKS or char in _DATE_MARKS):
            return i + 1
        i += 1
    return limit


def _word_end(text: str, at: int, limit: int, closed: bool) -> int | None:
    """Return the end of the word behind the figures, with the mark behind it."""
    if ord(text[at]) >= _NO_SPACE_FROM and not _is_hangul(text[at]):
        return at + 1
    i = at
    while i < limit:
        if i == len(text):
            return i if closed else None
        if text[i].isalpha() or text[i] in "/²³.":
            i += 1
        elif text[i] != " ":
            return i + 1
        elif i + 1 == len(text):
            return i if closed else None
        elif text[i + 1] in _BEHIND:
            return i + 2
        elif text[at:i] in ("de", "di") and text[i + 1].isalpha():
            return _word_end(text, i + 1, limit, closed)
        else:
            return i
    return limit


def _is_hangul(char: str) -> bool:
    return "\uac00" <= char < "\ud7b0"
