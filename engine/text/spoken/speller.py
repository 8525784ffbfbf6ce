"""Speller: numbers, amounts, dates and times of one language as words.

Numbers are spelled by CLDR's own rules (unicode-rbnf), units and months come from CLDR's tables
(babel). Both are optional: without them numbers stay as written. Pure; loaded once a language.
"""

import datetime
import functools
import importlib.util
import re
from typing import Any

from playhead.engine.text.spoken.words import (
    CENT_WORDS,
    CENTS_ALONE,
    FEMININE_MONEY,
    FEMININE_UNITS,
    UNITS,
    WORDS,
    Words,
)

MAX_CARDINAL = 10**15
"""Longer numbers are read digit by digit."""
_NATIVE_KOREAN = 100
"""Below this, Korean counters take the native numbers."""
_KOREAN_MONTHS = {6: "유", 10: "시"}
_RUSSIAN_STEMS = {
    **{"пятьдесят": "пятидесят", "шестьдесят": "шестидесят"},
    **{"семьдесят": "семидесят", "восемьдесят": "восьмидесят"},
}
_RUSSIAN_TENS = re.compile(rf"\b({'|'.join(_RUSSIAN_STEMS)})([а-я])")
_RUSSIAN_SCALES = {
    "тыс": ("тысяча", "тысячи", "тысяч"),
    "млн": ("миллион", "миллиона", "миллионов"),
    "млрд": ("миллиард", "миллиарда", "миллиардов"),
}
_NUMBERED_MONTHS = frozenset(("zh", "ja", "ko"))
_FIRST_OF_MONTH = frozenset(("fr", "it", "pt"))


class Speller:
    """Spells in one language."""

    def __init__(self, code: str) -> None:
        """Load a language by its ISO 639 code."""
        from babel import Locale
        from unicode_rbnf import RbnfEngine

        self.code = code
        self.words: Words = WORDS[code]
        self._engine: Any = RbnfEngine.for_language(code)
        self._locale = Locale.parse(code)
        self._spaced = code not in ("zh", "ja")

    def joined(self, *parts: str) -> str:
        """Return words one after another as the language writes them."""
        return (" " if self._spaced else "").join(part for part in parts if part)

    def cardinal(self, number: int, form: str = "numbering") -> str:
        """Return a whole number; `form` is CLDR's, such as `cardinal-feminine`."""
        if number >= MAX_CARDINAL:
            return self.digits(str(number))
        result = self._engine.format_number(number)
        forms: dict[str, str] = result.text_by_ruleset
        said: str = forms.get(f"spellout-{form}") or forms.get("spellout-numbering") or result.text
        if self.code == "zh":
            said = said.replace("〇", "零")
        elif self.code == "ja" and number == 0:
            said = "ゼロ"
        elif self.code == "ru":
            said = said.removeprefix("одна ") if said.startswith("одна тысяча") else said
        return said.replace("\u00ad", "")

    def is_gendered(self, number: int) -> bool:
        """The number takes the gender of what it counts, which is not known here."""
        return number < MAX_CARDINAL and self.cardinal(
            number, "cardinal-masculine"
        ) != self.cardinal(number, "cardinal-feminine")

    def counted(self, number: int) -> str:
        """Return a number before the thing it counts."""
        if self.code == "ko" and 0 < number < _NATIVE_KOREAN:
            return self.cardinal(number, "cardinal-native-attributive")
        if self.code == "zh" and number == 2:
            return "两"
        return self.cardinal(number, "cardinal-masculine")

    def ordinal(self, number: int, form: str = "") -> str:
        """Return a place in order; `form` is CLDR's ending of the rule, such as `-feminine`."""
        from unicode_rbnf import FormatPurpose

        result = self._engine.format_number(number, FormatPurpose.ORDINAL)
        forms: dict[str, str] = result.text_by_ruleset
        said: str = forms.get(f"spellout-ordinal{form}") or result.text
        if self.code == "ru":  # the rules form some cases of tens from the wrong stem
            said = _RUSSIAN_TENS.sub(lambda found: _RUSSIAN_STEMS[found[1]] + found[2], said)
        return said.replace("\u00ad", "").removeprefix("одна ")

    def digits(self, figures: str) -> str:
        """Return figures one by one."""
        return self.joined(*(self.cardinal(int(figure)) for figure in figures))

    def year(self, number: int) -> str:
        """Return a year as it is said alone or in a date."""
        if self.code == "zh":
            return self.digits(str(number))
        if self.code == "ru":
            return self.ordinal(number, "-masculine-genitive")
        if self.code == "de" and 1100 <= number <= 1999:
            hundreds = self.cardinal(number // 100)
            rest = self.cardinal(number % 100) if number % 100 else ""
            return f"{hundreds}hundert{rest}"
        return self.cardinal(number)

    def number(self, figures: str, form: str = "numbering") -> str:
        """Return '1.234,5' in the language's own marks."""
        words = self.words
        head, _, tail = self.plain(figures).partition(".")
        whole = (
            self.digits(head) if head[0] == "0" and head != "0" else self.cardinal(int(head), form)
        )
        return self.joined(whole, words.point, self.digits(tail)) if tail else whole

    def plain(self, figures: str) -> str:
        """Return a number's digits with a point before its decimals."""
        words = self.words
        thousands = re.fullmatch(
            rf"\d{{1,3}}(?:([{re.escape(words.group)}])\d{{3}}(?:\1\d{{3}})*)(?:[.,]\d+)?", figures
        )
        if thousands is not None:
            mark = thousands[1]
            rest = figures.replace(mark, "")
            return rest.replace(",", ".")
        rest = re.sub(r"[ \u00a0\u202f]", "", figures)
        marks = re.findall(r"[.,]", rest)
        if len(marks) < 2:
            return rest.replace(",", ".")
        if len(set(marks)) == 1:  # another language's thousands
            return rest.replace(marks[0], "")
        head, _, tail = rest.rpartition(marks[-1])
        return re.sub(r"[.,]", "", head) + "." + tail

    def unit(self, figures: str, sign: str) -> str:
        """Return a number with the unit behind it."""
        from babel.numbers import format_decimal
        from babel.units import format_unit

        unit = UNITS[sign]
        value = float(self.plain(figures))
        whole = int(value) if value.is_integer() else value
        if self.code in ("zh", "ko") and sign == "%":
            said = self.number(figures)
            return f"百分之{said}" if self.code == "zh" else f"{said} 퍼센트"
        if sign == "‰":
            return self.joined(self.number(figures), "‰")
        written = format_decimal(whole, locale=self._locale)
        text = format_unit(whole, unit, "long", locale=self._locale).replace("\u00a0", " ")
        feminine = unit in FEMININE_UNITS.get(self.code, "").split()
        form = "cardinal-feminine" if feminine else "cardinal-masculine"
        said = self.number(figures, form if value.is_integer() else "numbering")
        text = text.replace(written.replace("\u00a0", " "), said)
        return text if self._spaced else text.replace(" ", "")

    def money(self, sign: str, figures: str, scale: str) -> str:
        """Return an amount; `scale` is the word behind it, such as a million."""
        names = self.words.money[sign]
        if scale:
            of = "" if scale.startswith(("mil ", "tausend")) else self.words.of
            if self.code == "fr" and names[-1][0] in "aeo":
                return self.joined(self.number(figures), scale, f"d'{names[-1]}")
            return self.joined(self.number(figures), scale, of, names[-1])
        head, _, tail = self.plain(figures).partition(".")
        amount = int(head)
        form = "feminine" if FEMININE_MONEY.get(self.code) == sign else "masculine"
        said = self.joined(self.cardinal(amount, f"cardinal-{form}"), self._plural(names, amount))
        if not tail.strip("0"):
            return said
        if len(tail) != 2 or self.code == "zh":
            said = self.joined(
                self.cardinal(amount), self.words.point, self.digits(tail.rstrip("0"))
            )
            return self.joined(said, names[-1])
        cents = int(tail)
        alone = CENTS_ALONE.get(self.code, {}).get(sign)
        if amount == 0 and alone and cents > 1:
            return self.joined(self.cardinal(cents), alone)
        cent_names = CENT_WORDS.get(self.code, {}).get(sign)
        spelled = self.cardinal(cents, "cardinal-feminine" if sign == "₽" else "numbering")
        if cent_names:
            spelled = self.joined(spelled, self._plural(cent_names, cents))
        return self.words.cents.format(a=said, c=spelled)

    def scaled(self, figures: str, scale: str) -> str:
        """Return Russian thousands and more, written short or not, in the form they take."""
        names = _RUSSIAN_SCALES.get(scale)
        if names is None:
            return self.joined(self.number(figures), scale)
        plain = self.plain(figures)
        head, _, tail = plain.partition(".")
        if tail == "5" and head != "0":
            return self.joined(self.cardinal(int(head)), "с половиной", names[1])
        if tail:
            return self.joined(self.number(figures), names[1])
        form = "cardinal-feminine" if scale == "тыс" else "cardinal-masculine"
        return self.joined(self.number(figures, form), self._plural(names, int(plain)))

    def _plural(self, names: tuple[str, ...], number: int) -> str:
        if len(names) == 3:
            rule = self._locale.plural_form(number)
            return names[{"one": 0, "few": 1}.get(rule, 2)]
        return names[0] if number == 1 else names[-1]

    def date(self, year: int, month: int, day: int, form: str = "-r") -> str | None:
        """Return a date; None for a day that no calendar has. `form` is the day's."""
        try:
            datetime.date(year, month, day)
        except ValueError:
            return None
        return self.words.date.format(d=self.day(day, form), m=self.month(month), y=self.year(year))

    def day_month(self, day: int, month: int, form: str = "-r") -> str | None:
        """Return a date without its year; None for one that no year has."""
        if self.date(2024, month, day) is None:
            return None
        order = self.words.date
        if self.words.order == "dmy":
            order = order[: order.index("{m}") + 3]
        else:
            order = order[order.index("{m}") :]
        return order.format(d=self.day(day, form), m=self.month(month))

    def day(self, day: int, form: str = "-r") -> str:
        """Return the day of a month as it stands before the month."""
        if self.code == "de":
            return self.ordinal(day, form)
        if self.code == "ru":
            return self.ordinal(day, "-neuter-genitive")
        if day == 1 and self.code in _FIRST_OF_MONTH:
            return self.ordinal(1, "-masculine")
        return self.cardinal(day)

    def month(self, month: int) -> str:
        """Return a month's name, or its number where the language counts months."""
        if self.code in _NUMBERED_MONTHS:
            korean = _KOREAN_MONTHS.get(month) if self.code == "ko" else None
            return korean or self.cardinal(month)
        names: dict[int, str] = self._locale.months["format"]["wide"]
        return names[month]

    def months(self) -> dict[str, int]:
        """Return the names of the months."""
        names: dict[int, str] = self._locale.months["format"]["wide"]
        return {name: number for number, name in names.items()}

    def clock(self, hour: int, minute: int, second: int | None) -> str:
        """Return a time of day."""
        said = self._hour(hour)
        if minute == 0 and not second:
            return self._one_hour(self.words.full_hour.format(h=said), hour)
        low = self.cardinal(minute)
        if minute < 10 and self.code in ("zh", "ru"):
            low = self.joined(self.cardinal(0), low)
        text = self._one_hour(self.words.clock.format(h=said, m=low), hour)
        return self.joined(text, self.cardinal(second)) if second else text

    def _hour(self, hour: int) -> str:
        if self.code in ("zh", "ko") and 0 < hour <= 12:
            return self.counted(hour)
        if self.code in ("fr", "es", "pt") or (self.code, hour) == ("it", 1):
            return self.cardinal(hour, "cardinal-feminine")
        return self.cardinal(hour, "cardinal-masculine" if self.code == "de" else "numbering")

    def _one_hour(self, text: str, hour: int) -> str:
        return text.replace("heures", "heure").replace("horas", "hora") if hour == 1 else text


@functools.cache
def speller(code: str) -> Speller | None:
    """Return the speller of a language; None where its libraries are not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("babel", "unicode_rbnf")):
        return None
    return Speller(code)
