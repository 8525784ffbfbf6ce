"""LanguageGuess: which of the engine's languages a text is in, as far as it is known; pure.

Careful on purpose: a wrong guess reads numbers in the wrong language, no guess leaves digits to
the model, which reads them itself.
"""

import re
from collections import Counter

LANGUAGES = {
    "chinese": "zh",
    "english": "en",
    "japanese": "ja",
    "korean": "ko",
    "german": "de",
    "french": "fr",
    "russian": "ru",
    "portuguese": "pt",
    "spanish": "es",
    "italian": "it",
    "beijing_dialect": "zh",
    "sichuan_dialect": "zh",
}
"""A checkpoint's names of languages -> ISO 639 codes."""

_COMMON = {
    "en": "the and is are you to of that it was for with this your have be not will what i",
    "de": "der die das und ist nicht ich ein eine zu mit den von sie auf für es im dem wir",
    "fr": "le la les et est une des vous je pas que du dans pour avec ce nous sur il c'est",
    "es": "el los las y una que por con para su está es del se lo muy más pero hay usted",
    "it": "il gli e di che è una per non con sono del della si ha più ma lei questo nel",
    "pt": "o os e um uma que não com para seu você do da em por mais é são está isso",
}
_LATIN = re.compile(r"[a-zA-ZÀ-ɏ]")
_WEIGHTS = {
    word: [code for code, words in _COMMON.items() if word in words.split()]
    for words in _COMMON.values()
    for word in words.split()
}
LEAST_HITS = 2
_CHINESE = frozenset("的了我你他她们这那吗呢吧没么说您们們這說嗎呢沒麼您為对對还還是")
_NOT_RUSSIAN = frozenset("іїєґўђћљњџјќѓѕәғқңөұүһ")


class LanguageGuess:
    """Collects words; the guess at a place depends on the text before it alone."""

    def __init__(self) -> None:
        """Know nothing."""
        self._hits: Counter[str] = Counter()
        self._scripts: Counter[str] = Counter()
        self.code: str | None = None
        """The language's code; None while it is not clear."""

    def add(self, word: str) -> None:
        """Add a run of letters."""
        if _LATIN.match(word):
            codes = _WEIGHTS.get(word.lower())
            if codes is None:
                return
            for code in codes:
                self._hits[code] += 2 if len(codes) == 1 else 1
            if codes == [self.code]:
                return  # clear already, and clearer now
        else:
            for char in word:
                self._add_char(char.lower())
        self.code = self._clear_code()

    def _add_char(self, char: str) -> None:
        point = ord(char)
        if 0x3040 <= point < 0x3100:
            self._scripts["ja"] += 1
        elif 0xAC00 <= point < 0xD7A4:
            self._scripts["ko"] += 1
        elif char in _CHINESE:
            self._scripts["zh"] += 1
        elif char in _NOT_RUSSIAN:
            self._scripts["other"] += 1
        elif 0x400 <= point < 0x500:
            self._scripts["ru"] += 1

    def _clear_code(self) -> str | None:
        scripts = self._scripts
        if scripts["ja"] or scripts["ko"] or scripts["zh"]:
            if scripts["ja"]:
                return "ja"
            return "ko" if scripts["ko"] >= scripts["zh"] else "zh"
        if scripts["ru"] >= 3 and not scripts["other"]:
            return "ru"
        most, first, second = 0, None, 0
        for code, num in self._hits.items():
            if num > most:
                most, first, second = num, code, most
            elif num > second:
                second = num
        return first if most >= 2 * max(LEAST_HITS, second) else None
