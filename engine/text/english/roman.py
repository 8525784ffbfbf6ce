"""Roman numerals in English text: where they are numbers, and how they are said; pure."""

import re

from playhead.engine.text.english import numbers

_NUMERAL = re.compile(r"(X{0,3})(IX|IV|V?I{0,3})")
"""Up to 39: larger ones look like other abbreviations (CD, MD, XL)."""
_UNITS = {"": 0, "I": 1, "II": 2, "III": 3, "IV": 4, "V": 5, "VI": 6, "VII": 7, "VIII": 8, "IX": 9}
_COUNTED = frozenset(
    "act appendix book chapter class figure grade level part phase section stage table title type "
    "volume".split()
)
_RULERS = frozenset(
    "albert alexander benedict catherine charles edward elizabeth francis frederick george "
    "gregory gustav henry james john juan louis mary napoleon nicholas otto paul peter philip "
    "pius richard victor wilhelm william".split()
)
_NO_NAMES = frozenset("a an and any each every her his is its my no on or our the their".split())


def roman(word: str, before: str) -> str | None:
    """Return what is said for a numeral of two letters and more; None where it is none.

    It is one behind a name, or a noun that is counted: Henry VIII, Rocky II, chapter XII.
    """
    found = _NUMERAL.fullmatch(word)
    if found is None or len(word) < 2:
        return None
    name = before.strip("(,")
    number = 10 * len(found[1]) + _UNITS[found[2]]
    if name.lower() in _RULERS and name[:1].isupper():
        return f"the {numbers.ordinal(number)}"
    named = name[:1].isupper() and name[1:].islower() and name.lower() not in _NO_NAMES
    return numbers.cardinal(number) if named or name.lower() in _COUNTED else None
