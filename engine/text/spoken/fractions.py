"""Fractions and ratios as nine languages say them: 3/4, 2½, 3:2; pure."""

import unicodedata

from playhead.engine.text.spoken.speller import Speller

VULGAR = "¼-¾⅐-⅞"
"""Characters that are a fraction, for a class of a pattern."""
MOST_PARTS = 10
"""Larger denominators are not told apart from other uses of the slash."""
_PARTS = {
    "fr": {2: ("demi", "demis"), 3: ("tiers", "tiers"), 4: ("quart", "quarts")},
    "es": {2: ("medio", "medios"), 3: ("tercio", "tercios")},
    "it": {2: ("mezzo", "mezzi")},
    "pt": {2: ("meio", "meios"), 3: ("terço", "terços")},
}
"""One and many parts, where they are no ordinals."""
_RATIO = {
    "de": "zu",
    "fr": "à",
    "es": "a",
    "it": "a",
    "pt": "a",
    "zh": "比",
    "ja": "対",
    "ko": "대",
}
_AND = {
    **{"de": "und", "fr": "et", "es": "y", "it": "e", "pt": "e", "ru": "и"},
    **{"zh": "又", "ja": "と", "ko": "와"},
}
_HALVES = {
    **{"de": "einhalb", "fr": " et demi", "es": " y medio", "it": " e mezzo"},
    **{"pt": " e meio", "ru": " с половиной"},
}
"""Said behind a whole number."""
_OF_PARTS = {"zh": "{b}分之{a}", "ja": "{b}分の{a}", "ko": "{b}분의 {a}"}


def ratio(spell: Speller, first: int, second: int) -> str:
    """Return a score or a proportion."""
    words = (spell.cardinal(first), _RATIO.get(spell.code, ""), spell.cardinal(second))
    return spell.joined(*words)


def fraction(spell: Speller, top: int, bottom: int) -> str | None:
    """Return a fraction; None where the slash may mean something else."""
    if (top, bottom) == (24, 7):
        return spell.joined(spell.cardinal(top), spell.cardinal(bottom))
    if not 2 <= bottom <= MOST_PARTS:
        return None
    if top >= bottom:
        words = (spell.cardinal(top), spell.words.symbols["÷"], spell.cardinal(bottom))
        return spell.joined(*words)
    if spell.code in _OF_PARTS:
        return _OF_PARTS[spell.code].format(a=spell.cardinal(top), b=spell.cardinal(bottom))
    if spell.code == "ru":
        count = spell.cardinal(top, "cardinal-feminine")
        return f"{count} {spell.ordinal(bottom, '-feminine' if top == 1 else '-plural-genitive')}"
    return f"{spell.cardinal(top, 'cardinal-masculine')} {_parts(spell, top, bottom)}"


def _parts(spell: Speller, top: int, bottom: int) -> str:
    if spell.code == "de":
        return "halb" if bottom == 2 else spell.ordinal(bottom).capitalize() + "l"
    one, many = _PARTS[spell.code].get(bottom, ("", ""))
    if not one:
        one = spell.ordinal(bottom, "-masculine")
        many = one[:-1] + "i" if spell.code == "it" else one + "s"
    return one if top == 1 else many


def mixed(spell: Speller, whole: str, sign: str) -> str | None:
    """Return a whole number, which may be empty, and a fraction of one character."""
    top, _, bottom = unicodedata.normalize("NFKC", sign).partition("\u2044")
    part = fraction(spell, int(top), int(bottom))
    if not whole or part is None:
        return part
    count = spell.cardinal(int(whole))
    if sign == "½" and spell.code in _HALVES:
        return (count.removesuffix("s") if count == "eins" else count) + _HALVES[spell.code]
    return spell.joined(count, _AND[spell.code], part)
