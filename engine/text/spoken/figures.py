"""Figures: reads the number, amount, date, time or unit a window of text begins with; pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from playhead.engine.text.spoken.fractions import VULGAR, fraction, mixed, ratio
from playhead.engine.text.spoken.speller import Speller
from playhead.engine.text.spoken.words import CODES, UNITS

_WIDE = str.maketrans("０１２３４５６７８９：／．，％＋－～〜", "0123456789:/.,%+-~~")
_N = r"\d+(?:[.,\u00a0\u202f ]\d{3}(?!\d))*(?:[.,]\d+)?"
_SIGN = r"R\$|[$€£¥￥₽₩]"
_CODE = "|".join(CODES)
_END = r"(?![0-9A-Za-zÀ-ӿ])"
"""No letter of an alphabet and no figure follows: `\\b` knows no border before an ideograph."""
_BEFORE_DAY = ("am", "vom", "zum", "dem", "den", "bis", "seit", "ab")
_BEFORE_HOUR = ("ore", "le", "alle", "dalle", "delle")
_UNIT = "|".join(re.escape(sign) for sign in sorted(UNITS, key=len, reverse=True))


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
        self._before, self._glued = "", False
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
                r"(?![:\d])([-–~](?=\d))?",
                self._clock,
            ),
            (
                rf"(?:(?:US)?({money}|{_SIGN}) ?|({_CODE}) )({_N})(?: ?({words.scales}))?",
                self._money_first,
            ),
            (
                rf"({_N})(?: ?({words.scales}))? ?(?:({money}|{_SIGN})|({_CODE}){_END})",
                self._money_last,
            ),
            *self._marked_rules(),
            (rf"\d{{1,7}}(?:-\d{{1,7}}){{2,}}{_END}", self._chain),
            (rf"(\d\d?)/(\d\d?){_END}(?![/.,]\d)", self._slashed),
            (rf"(\d*)([{VULGAR}])", self._mixed),
            (rf"(\d{{1,3}}):(\d{{1,3}}){_END}(?!:)", self._ratio),
            (rf"\d+(?:\.\d+){{2,}}{_END}", self._dotted),
            (rf"({_N}) ?({_UNIT})(?![0-9A-Za-zÀ-ӿ²³/])", self._unit),
            (r"(\d+)[-–~](?=\d+(?![\d:])(?![-–/.,]\d))", self._range),
            *self._own_rules(),
            (rf"({_N})", self._number),
        ]
        self._rules: list[Rule] = [(re.compile(pattern), read) for pattern, read in rules]

    def read(self, window: str, before: str, glued: bool = False) -> Reading:
        """Read the figures a window begins with; `before` is the word in front of them.

        `glued`: no space parts the two.
        """
        window = window.translate(_WIDE)
        self._before, self._glued = before.lower(), glued
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

    def _marked_rules(self) -> list[tuple[str, Callable[[re.Match[str]], str | None]]]:
        """Return what a language writes with marks that stand for something else in others."""
        code = self._spell.code
        if code == "de":
            return [
                (r"(\d\d?)\.(\d\d?)\.(?!\d)", self._point_date),
                (rf"([01]?\d|2[0-3])\.([0-5]\d) ?Uhr{_END}", self._point_time),
                (rf"(\d{{1,4}})er(n?){_END}", self._decade),
            ]
        if code == "it":
            return [
                (r"([01]?\d|2[0-3])\.([0-5]\d)(?!\d|[.,]\d)", self._point_time),
                (r"(\d+)(°)(?= [^\W\d_]{3})", self._degree),
            ]
        if code == "ru":
            return [
                (rf"(?:[78][ -]?)?\(?\d{{3}}\)?[ -]\d{{3}}-\d\d-\d\d{_END}", self._phone),
                (rf"({_N}) ?(тыс|млн|млрд)\.?(?![а-яё])", self._scaled),
            ]
        return []

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
                (rf"2(?=[{counted}])", self._two),
            ]
        if code == "ko":
            counters = "개(?!월)|명|시(?!간?대)|살|번|마리|잔|병|권|장|대|가지|사람|시간|달(?!러)"
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

    def _two(self, found: re.Match[str]) -> str | None:
        return self._spell.cardinal(2) if self._before.endswith("第") else self._spell.counted(2)

    def _chain(self, found: re.Match[str]) -> str | None:
        """Read a number in groups, or a Japanese address."""
        groups = found.group().split("-")
        if self._spell.code == "ja" and len(found.group()) < 10:
            return "の".join(self._spell.cardinal(int(group)) for group in groups)
        return ", ".join(map(self._spell.digits, groups))

    def _slashed(self, found: re.Match[str]) -> str | None:
        """Read a fraction, or a day and a month where one of them can be no part of one."""
        first, second = int(found[1]), int(found[2])
        day, month = (first, second) if self._spell.words.order == "dmy" else (second, first)
        dated = 12 < day <= 31 or "0" in (found[1][0], found[2][0])
        if dated and (first, second) != (24, 7):
            said = self._spell.day_month(day, month, self._day_form())
            if said is not None:
                return said
        if (first, second) == (1, 2) and self._agrees(found):
            return found.group()
        return fraction(self._spell, first, second)

    def _mixed(self, found: re.Match[str]) -> str | None:
        if found[2] == "½" and self._agrees(found):
            return found.group()
        return mixed(self._spell, found[1], found[2])

    def _agrees(self, found: re.Match[str]) -> bool:
        """A half takes the gender of the word behind it: the model reads the two."""
        behind = found.string[found.end() : found.end() + 2]
        agreeing = ("fr", "es", "it", "pt") + ("de",) * (len(found.group()) != 2)
        return behind[1:].isalpha() and self._spell.code in agreeing

    def _ratio(self, found: re.Match[str]) -> str | None:
        return ratio(self._spell, int(found[1]), int(found[2]))

    def _point_date(self, found: re.Match[str]) -> str | None:
        """Read 24.12., which is no decimal in German; 3.5. may be a version at a sentence's end."""
        if len(found[2]) < 2 and self._before not in _BEFORE_DAY:
            return None
        said = self._spell.day_month(int(found[1]), int(found[2]), self._day_form())
        behind = found.string[found.end() :]
        if said is None or (behind and not behind[1:2].isupper()):
            return said
        return said + ("," if behind else ".")

    def _point_time(self, found: re.Match[str]) -> str | None:
        if self._spell.code == "it" and self._before not in _BEFORE_HOUR:
            return None
        return self._spell.clock(int(found[1]), int(found[2]), None)

    def _decade(self, found: re.Match[str]) -> str | None:
        return f"{self._spell.year(int(found[1]))}er{found[2]}"

    def _degree(self, found: re.Match[str]) -> str | None:
        """Read 3° as a place behind an article."""
        if self._before not in ("il", "lo", "la", "al", "dal", "nel", "del", "alla", "della"):
            return None
        return self._suffixed(found)

    def _scaled(self, found: re.Match[str]) -> str | None:
        return self._spell.scaled(found[1], found[2])

    def _day_form(self) -> str:
        """Return CLDR's ending of a German day behind the word in front of it."""
        if self._before in _BEFORE_DAY:
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
        if self._spell.code == "ru" and scale:
            said = self._spell.scaled(figures, scale.rstrip("."))
            return self._spell.joined(said, self._spell.words.money[key][-1])
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
        return self._up_to(self._number(found) or self._spell.number(found[1]))

    def _up_to(self, first: str) -> str:
        """Say where a range begins; where it ends is read next, with its unit."""
        to = self._spell.words.to
        said = first + to if self._spell.code == "ko" else self._spell.joined(first, to)
        return self._spell.joined(said, "x").removesuffix("x")

    def _suffixed(self, found: re.Match[str]) -> str | None:
        number, suffix = int(found[1]), found[2]
        feminine = suffix in ("re", "res", "ère", "ª", "я", "ю", "ой")
        form = "-feminine" if feminine else "-masculine"
        behind = found.string[found.end() : found.end() + 2]
        if self._spell.code == "es" and not feminine and behind[1:].isalpha():
            form = "-masculine-adjective"
        if suffix == "е":
            form = "-neuter" if number < 20 or number % 10 else "-plural"
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
        if self._before.endswith("제") and (self._glued or self._before == "제"):  # third
            return self._spell.cardinal(int(found[1]))
        said = self._spell.counted(int(found[1]))
        return said if found.string[found.end()] == " " else said + " "

    def _number(self, found: re.Match[str]) -> str | None:
        figures = found[1]
        if figures.isdigit():
            if len(figures) > 6 or (len(figures) > 2 and self._names_a_thing()):
                return self._spell.digits(figures)
            if len(figures) == 4 and self._spell.code == "de" and "0" < figures[:2] < "20":
                return self._spell.year(int(figures)) if figures >= "1100" else None
        behind = found.string[found.end() : found.end() + 2]
        counts = len(behind) == 2 and behind[0] == " " and behind[1].isalpha()
        if counts and figures.isdigit() and self._spell.is_gendered(int(figures)):
            return figures
        return self._spell.number(figures)

    def _names_a_thing(self) -> bool:
        """The figures of CA1234 are read one by one where scripts part no words."""
        latin = self._before[-1:].isascii() and self._before[-1:].isalpha()
        return self._glued and latin and self._spell.code in ("zh", "ja", "ko")
