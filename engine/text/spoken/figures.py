"""Figures: finds the number, amount, date, time or unit at a place of text and reads it; pure.

A window is the text a reading may depend on: the run of figures, what is glued to it and one
word behind it. It depends on the text alone, so text that arrives in pieces is read the same.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import regex

from playhead.engine.text.spoken.speller import Speller
from playhead.engine.text.spoken.words import CODES, UNITS

MAX_WINDOW_CHARS = 48
_FIGURE_MARKS = frozenset(".,:/-–−－~+＋()'’%‰°℃℉²³ºª$€£¥￥₽₩R\u00a0\u202f")
_DATE_MARKS = frozenset("年月日号號点點时時分秒년월일시분초")
_STARTS = regex.compile(
    r"[+\-−－＋]?(?:(?:USD|EUR|GBP|JPY|RUB|KRW|BRL)[ \u00a0]|R?[$€£¥￥₽₩][ \u00a0]?)?\d|\(\d{2,5}\)"
)
_BEHIND = frozenset("%‰°℃℉$€£¥￥₽₩")
"""Signs that may stand behind a number and a space."""
_DIGIT = re.compile(r"\d")
_SPACES = " \u00a0\u202f"
_NO_SPACE_FROM = 0x2E80
_WIDE = str.maketrans("０１２３４５６７８９：／．，％＋－", "0123456789:/.,%+-")
_N = r"\d+(?:[.,\u00a0\u202f ]\d{3}(?!\d))*(?:[.,]\d+)?"
_SIGN = r"R\$|[$€£¥￥₽₩]"
_CODE = "|".join(CODES)
_END = r"(?![0-9A-Za-zÀ-ӿ])"
"""No letter of an alphabet and no figure follows: `\\b` knows no border before an ideograph."""
_UNIT = "|".join(re.escape(sign) for sign in sorted(UNITS, key=len, reverse=True))


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
            return _word_end(text, i + 1, limit, closed) if following.isalpha() else i
        if char.isalpha() and ord(char) >= _NO_SPACE_FROM and char not in _DATE_MARKS:
            return i + 1
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


@dataclass(frozen=True, slots=True)
class Reading:
    """How many characters of a window were read, and as what."""

    num_chars: int
    said: str


Rule = tuple["re.Pattern[str]", Callable[["re.Match[str]"], str | None]]


class Figures:
    """Reads the figures of one language."""

    def __init__(self, speller: Speller) -> None:
        """Compile the rules of the speller's language, in the order they are tried."""
        self._spell = speller
        self._before = ""
        words, code = speller.words, speller.code
        month = "|".join(speller.months())
        hour = "[:h]" if code in ("fr", "pt") else ":"
        money = "|".join(re.escape(sign) for sign in words.money)
        rules: list[tuple[str, Callable[[re.Match[str]], str | None]]] = [
            (rf"(\d{{4}})[-/.](\d\d?)[-/.](\d\d?){_END}(?![-/.]\d)", self._ymd),
            (r"(\d{4}) ?[年년] ?(\d\d?) ?[月월] ?(\d\d?) ?[日号號일]", self._ymd),
            (rf"(\d\d?)[./-](\d\d?)[./-](\d{{4}}|\d\d){_END}(?![-/.]\d)", self._dmy),
            (rf"(\d\d?)(\.|er|º|°)? ((?:de )?)({month}){_END}", self._day_month),
            (rf"\+\d{{1,3}}(?:[ .-]?\(?\d{{1,4}}\)?){{2,6}}{_END}", self._phone),
            (rf"\(?0\d{{1,4}}\)?(?:[ ./-]\d{{2,8}}){{1,4}}{_END}", self._phone),
            (rf"\d{{2,4}}(?:-\d{{3,4}}){{1,2}}{_END}", self._phone),
            (
                rf"([01]?\d|2[0-3]){hour}([0-5]\d)(?::([0-5]\d))?(?: ?(?:Uhr|h){_END})?"
                r"(?![:\d])([-–](?=\d))?",
                self._clock,
            ),
            (
                rf"(?:({money}|{_SIGN}) ?|({_CODE}) )({_N})(?: ?({words.scales}))?",
                self._money_first,
            ),
            (
                rf"({_N})(?: ?({words.scales}))? ?(?:({money}|{_SIGN})|({_CODE}){_END})",
                self._money_last,
            ),
            (rf"\d+(?:\.\d+){{2,}}{_END}", self._dotted),
            (rf"({_N}) ?({_UNIT})(?![0-9A-Za-zÀ-ӿ²³/])", self._unit),
            (r"(\d+)[-–~](?=\d+(?![\d:])(?![-–/.,]\d))", self._range),
            *self._own_rules(),
            (rf"({_N})", self._number),
        ]
        self._rules: list[Rule] = [(re.compile(pattern), read) for pattern, read in rules]

    def read(self, window: str, before: str) -> Reading:
        """Read the figures a window begins with; `before` is the word in front of them."""
        window = window.translate(_WIDE)
        self._before = before.lower()
        minus = ""
        start = 0
        if window[0] in "-−+" and not re.match(r"\+\d{1,3}[ .(-]?\d", window):
            minus = self._spell.words.minus if window[0] != "+" else self._spell.words.symbols["+"]
            start = 1
        for pattern, rule in self._rules:
            found = pattern.match(window, start)
            said = rule(found) if found is not None else None
            if found is not None and said is not None:
                return Reading(found.end(), self._spell.joined(minus, said))
        return Reading(1, window[0])

    def _own_rules(self) -> list[tuple[str, Callable[[re.Match[str]], str | None]]]:
        code = self._spell.code
        if code == "fr":
            return [(rf"(\d+)(ers?|res?|ère|es?|ème|èmes){_END}", self._suffixed)]
        if code in ("es", "it", "pt"):
            return [(r"(\d+)\.?(º|ª|°|er)(?!\w)", self._suffixed)]
        if code == "de":
            places = "Jahrhundert|Platz|Mal|Etage|Stock|Klasse"
            return [
                (rf"(\d{{1,3}})\.(?= ?(?:{places}){_END})", self._place),
                (r"(\d{1,3})\.(?= [^\W\d_])", self._place_after_article),
            ]
        if code == "ru":
            return [
                (r"(\d{4}) (год[а-я]*|г\.)", self._russian_year),
                (rf"(\d+)-(й|я|е|го|му|м|х|ю|ой){_END}", self._suffixed),
            ]
        if code == "zh":
            counted = "个位名条件张本次岁年天周家间种点百千万亿倍碗杯块只"
            return [
                (r"1[3-9]\d{9}(?!\d)", self._phone),
                (r"(\d{4})(?=年)", lambda found: self._spell.year(int(found[1]))),
                (rf"2(?=[{counted}])", lambda _: self._spell.counted(2)),
            ]
        if code == "ko":
            counters = "개|명|시(?!간?대)|살|번|마리|잔|병|권|장|대|가지|사람|시간|달"
            return [
                (r"(\d\d?)(?=월)", lambda found: self._spell.month(int(found[1]))),
                (rf"(\d{{1,2}})(?= ?(?:{counters}))", self._counted),
            ]
        return []

    def _ymd(self, found: re.Match[str]) -> str | None:
        return self._spell.date(int(found[1]), int(found[2]), int(found[3]))

    def _dmy(self, found: re.Match[str]) -> str | None:
        if self._spell.words.order != "dmy":
            return None
        year = int(found[3])
        full = year if year > 99 else 2000 + year if year < 50 else 1900 + year
        return self._spell.date(full, int(found[2]), int(found[1]), self._day_form())

    def _day_month(self, found: re.Match[str]) -> str | None:
        day = int(found[1])
        if not 1 <= day <= 31 or (self._spell.code == "de" and found[2] != "."):
            return None
        return self._spell.joined(
            self._spell.day(day, self._day_form()), found[3].strip(), found[4]
        )

    def _day_form(self) -> str:
        """Return CLDR's ending of a German day behind the word in front of it."""
        if self._before in ("am", "vom", "zum", "dem", "den", "bis", "seit", "ab"):
            return "-n"
        return "" if self._before in ("der", "die", "das") else "-r"

    def _phone(self, found: re.Match[str]) -> str | None:
        figures = re.findall(r"\d+", found.group())
        if sum(map(len, figures)) < 7:
            return None
        plus = self._spell.words.symbols["+"] if found.group()[0] == "+" else ""
        comma = "，" if self._spell.code == "zh" else "、" if self._spell.code == "ja" else ", "
        said = comma.join(self._spell.digits(group) for group in figures)
        return self._spell.joined(plus, said)

    def _clock(self, found: re.Match[str]) -> str | None:
        second = int(found[3]) if found[3] is not None else None
        said = self._spell.clock(int(found[1]), int(found[2]), second)
        return self._up_to(said) if found[4] else said

    def _money_first(self, found: re.Match[str]) -> str | None:
        return self._money(found[1], found[2], found[3], found[4])

    def _money_last(self, found: re.Match[str]) -> str | None:
        return self._money(found[3], found[4], found[1], found[2])

    def _money(
        self, sign: str | None, code: str | None, figures: str, scale: str | None
    ) -> str | None:
        key = sign or CODES[code or ""]
        if key not in self._spell.words.money:
            return None
        short = self._spell.words.abbreviations
        said = short.get(scale or "", short.get((scale or "").rstrip("."), scale or ""))
        return self._spell.money(key, figures, said)

    def _dotted(self, found: re.Match[str]) -> str | None:
        if re.fullmatch(r"\d{1,3}(?:\.\d{3})+", found.group()) and "." in self._spell.words.group:
            return None
        point = {"de": "Punkt", "fr": "point", "es": "punto", "it": "punto", "pt": "ponto"}
        mark = point.get(
            self._spell.code, {"ru": "точка"}.get(self._spell.code, self._spell.words.point)
        )
        parts = (self._spell.cardinal(int(part)) for part in found.group().split("."))
        return self._spell.joined(*(f" {mark} ".join(parts).split()))

    def _unit(self, found: re.Match[str]) -> str | None:
        return self._spell.unit(found[1], found[2])

    def _range(self, found: re.Match[str]) -> str | None:
        return self._up_to(self._spell.number(found[1]))

    def _up_to(self, first: str) -> str:
        """Say where a range begins; where it ends is read next, with its unit."""
        said = self._spell.joined(first, self._spell.words.to)
        return self._spell.joined(said, "x").removesuffix("x")

    def _suffixed(self, found: re.Match[str]) -> str | None:
        number, suffix = int(found[1]), found[2]
        feminine = suffix in ("re", "res", "ère", "ª", "я", "ю", "ой")
        form = "-feminine" if feminine else "-masculine"
        behind = found.string[found.end() : found.end() + 2]
        if self._spell.code == "es" and not feminine and behind[1:].isalpha():
            form = "-masculine-adjective"
        if suffix == "е":
            form = "-neuter"
        elif suffix in ("го", "му", "х"):
            form = {"го": "-masculine-genitive", "му": "-masculine-dative"}.get(
                suffix, "-plural-genitive"
            )
        elif suffix == "м":
            form = "-masculine-locative"
        return self._spell.ordinal(number, form)

    def _place(self, found: re.Match[str]) -> str | None:
        return self._spell.ordinal(
            int(found[1]), "-n" if self._before in ("im", "am", "zum") else ""
        )

    def _place_after_article(self, found: re.Match[str]) -> str | None:
        """A point behind figures ends a sentence, unless an article stands before them."""
        if self._before in ("der", "die", "das"):
            return self._spell.ordinal(int(found[1]))
        if self._before in ("den", "dem", "des", "im", "am", "vom", "zum", "zur", "beim"):
            return self._spell.ordinal(int(found[1]), "-n")
        return None

    def _russian_year(self, found: re.Match[str]) -> str | None:
        word = "года" if found[2] == "г." else found[2]
        form = {"год": "-masculine", "году": "-masculine-locative"}.get(word, "-masculine-genitive")
        return f"{self._spell.ordinal(int(found[1]), form)} {word}"

    def _counted(self, found: re.Match[str]) -> str | None:
        said = self._spell.counted(int(found[1]))
        return said if found.string[found.end()] == " " else said + " "

    def _number(self, found: re.Match[str]) -> str | None:
        figures = found[1]
        if figures.isdigit():
            if len(figures) > 6:
                return self._spell.digits(figures)
            if len(figures) == 4 and self._spell.code == "de" and "0" < figures[:2] < "20":
                return self._spell.year(int(figures)) if figures >= "1100" else None
        behind = found.string[found.end() : found.end() + 2]
        counts = len(behind) == 2 and behind[0] == " " and behind[1].isalpha()
        if counts and figures.isdigit() and self._spell.is_gendered(int(figures)):
            return figures
        return self._spell.number(figures)
