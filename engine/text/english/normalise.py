"""From a written piece of text to spoken words and pause marks.

A piece is what stands between white space. `spoken` reads one piece with its neighbours, so the
result for a piece is final once the next piece is known. Spoken words are lower case; a single
capital is a letter's name; the pause marks are `,` `.` `?` `!`.
"""

import re
import unicodedata

from playhead.engine.text.english import numbers
from playhead.engine.text.english.abbreviations import (
    ADDRESS_MARKS,
    CLIPPED,
    CODE_WORDS,
    FIXED_UNITS,
    MONTHS,
    SCALE_WORDS,
    SCALES,
    SHORT_MONTHS,
    SYMBOLS,
    TITLES,
    UNITS,
)
from playhead.engine.text.english.phonemes import SOUNDS_CLOSE
from playhead.engine.text.english.piece import PHONE_START, merge_pauses
from playhead.engine.text.english.roman import roman
from playhead.engine.text.english.scan import SCAN, WHOLE

_DRESSING = re.compile(r"[*_`|\[\]{}\"“”„«»]+|~{2,}|[<>~]+(?![\d.$€£¥₹₩])")
_MAIL_DRESSING = re.compile(r"[*`|\[\]{}\"“”„«»<>]+")
_TILDE_RANGE = re.compile(r"(?<=\d)~(?=\d)")
_MIXED = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_KEPT_SIGNS = "²³≠"  # what they decompose into would be said as something else
_TIMELIKE = re.compile(r"\d(?::\d\d)?$")
_NOW = re.compile(r"(?:19|20)\d\d")
_GROUP = re.compile(r"\d{3,4}(?:\D?$)")
_LONE_DASH = re.compile(r"[-–—•]+$")


def plain(piece: str) -> str:
    """Strip white space, quotes, brackets of markup, accents; typographic apostrophes to plain."""
    text = piece.strip().replace("’", "'").replace("‘", "'")
    text = _TILDE_RANGE.sub("-", text).replace("−", "-")
    text = (_MAIL_DRESSING if "@" in text else _DRESSING).sub("", text)
    if text.isascii():
        return text.strip("'")
    text = _MIXED.sub("&", text)  # 2½ is two and one half
    kept = "".join(
        char if char in _KEPT_SIGNS else unicodedata.normalize("NFKD", char) for char in text
    ).replace("⁄", "/")
    return "".join(char for char in kept if not unicodedata.combining(char)).strip("'")


def spoken(core: str, before: str, after: str) -> list[str]:
    """Return the words and pause marks of a piece; all three are pieces after `plain`."""
    if _LONE_DASH.fullmatch(core):
        return [","] if before else []
    reader = _Reader(before, after)
    for match in SCAN.finditer(core):
        reader.read(match, core)
    return merge_pauses(reader.out)


class _Reader:
    """Reads the matches of one piece into spoken words."""

    def __init__(self, before: str, after: str) -> None:
        self.out: list[str] = []
        self._before = before
        self._after = after

    def read(self, match: re.Match[str], core: str) -> None:
        kind = match.lastgroup or ""
        getattr(self, f"_read_{WHOLE.get(kind, kind)}")(match, core)

    def _say(self, words: str) -> None:
        self.out.extend(words.split())

    def _read_sounds(self, match: re.Match[str], core: str) -> None:
        phonemes = match.group("sounds").removesuffix("'s")
        ending = "z" if phonemes != match.group("sounds") else ""
        self.out.append(phonemes.removesuffix(SOUNDS_CLOSE) + ending)

    def _read_mail(self, match: re.Match[str], core: str) -> None:
        address = re.sub(r"^(?:https?://)?(?:www\.)?", "", match.group("mail"), flags=re.I)
        for part in re.findall(r"[A-Za-z]+|\d+|[@./_+-]", address):
            if part.isdigit():
                self._say(numbers.digits(part))
            elif part.isalpha():
                self._word(part.lower())
            else:
                self._say(ADDRESS_MARKS[part])

    def _read_money(self, match: re.Match[str], core: str) -> None:
        amount = match.group("money").replace(" ", "")
        if "-" in amount:
            self._say("minus")
        sign, figures = amount.lstrip("-")[0], amount.lstrip("-")[1:].lstrip("-").rstrip(",")
        if match.group("most"):
            self._say(f"{numbers.decimal(figures)} to")
            figures = match.group("most").lstrip("-–" + sign).rstrip(",")
        scale = SCALES.get((match.group("scale") or "").lower())
        following = self._after.lower().strip(".,;:!?") if match.end() == len(core) else ""
        if scale:
            self._say(f"{numbers.decimal(figures)} {scale} {numbers.COINS[sign][1]}")
        elif following in SCALE_WORDS:
            self._say(numbers.decimal(figures))
        else:
            self._say(numbers.money(sign, figures))
        self._trailing_comma(match.group("most") or amount)

    def _trailing_comma(self, figures: str) -> None:
        if figures.endswith(","):
            self.out.append(",")

    def _date(self, year: int, month: int, day: int) -> None:
        if not 1 <= month <= 12:
            self._say(f"{numbers.cardinal(month)} {numbers.cardinal(day)} {numbers.year(year)}")
            return
        full = year if year > 99 else 2000 + year
        self._say(f"{MONTHS[month - 1]} {numbers.ordinal(day)}")
        self.out.append(",")
        self._say(numbers.year(full))

    def _read_iso(self, match: re.Match[str], core: str) -> None:
        parts = [int(part) for part in re.findall(r"\d+", match.group())]
        year, month, day = parts if match.group("iso") else reversed(parts)
        self._date(year, month, day)

    def _read_slash_date(self, match: re.Match[str], core: str) -> None:
        month, day, year = (int(part) for part in match.group("slash_date").split("/"))
        self._date(year, month, day)

    def _read_phone(self, match: re.Match[str], core: str) -> None:
        self._groups(match.group("phone"))
        if match.group("phone").endswith(")"):
            self.out.append(",")

    def _half(self, half: str | None) -> None:
        if half is None:
            return
        self._say(f"{half[0].upper()} M")
        dotted = "." in half[:-1]
        if half[-1] == "." and (not dotted or self._at_sentence_end()):
            self.out.append(".")

    def _at_sentence_end(self) -> bool:
        """What follows an abbreviation's point looks like a new sentence."""
        return not self._after or self._after[0].isupper()

    def _read_time(self, match: re.Match[str], core: str) -> None:
        parts = [int(part) for part in match.group("time").split(":")]
        self._say(numbers.clock(parts[0], parts[1]))
        if len(parts) > 2:
            self._say(f"and {numbers.cardinal(parts[2])} seconds")
        if parts[1] == 0 and not match.group("half") and not self._half_follows():
            self._say("o'clock" if parts[0] <= 12 else "hundred")
        self._half(match.group("half"))

    def _half_follows(self) -> bool:
        return re.match(r"[ap]\.?m\b", self._after, re.I) is not None

    def _read_hour(self, match: re.Match[str], core: str) -> None:
        self._say(numbers.cardinal(int(match.group("hour"))))
        self._half(match.group("hour_half"))

    def _read_ordinal(self, match: re.Match[str], core: str) -> None:
        self._say(numbers.ordinal(int(match.group("ordinal").replace(",", ""))))

    def _read_fraction(self, match: re.Match[str], core: str) -> None:
        top, bottom = (int(part) for part in match.group("fraction").split("/"))
        if match.start() == 0 and re.fullmatch(r"\d{1,3}", self._before):
            self._say("and")  # one and a half cups
        self._say(numbers.fraction(top, bottom))

    def _read_ratio(self, match: re.Match[str], core: str) -> None:
        first, second = match.group("ratio").split(":")
        self._say(f"{numbers.whole(first)} to {numbers.whole(second)}")

    def _read_chain(self, match: re.Match[str], core: str) -> None:
        self._groups(match.group("chain"))

    def _groups(self, figures: str) -> None:
        """Say groups of figures one by one, a pause between."""
        for index, group in enumerate(re.findall(r"\d+", figures)):
            if index:
                self.out.append(",")
            self._say(numbers.digits(group))

    def _read_span(self, match: re.Match[str], core: str) -> None:
        if match.group("span"):
            self._figures(match.group("span"))
        self._say("to")

    def _read_version(self, match: re.Match[str], core: str) -> None:
        figures = match.group("version")
        if re.fullmatch(r"\d{1,3}(?:\.\d{3})+", figures):  # thousands of other languages
            self._say(numbers.whole(figures.replace(".", "")))
        else:
            parts = figures.split(".")
            mark = " dot " if len(parts) == 4 else " point "  # an address, a version
            self._say(mark.join(map(numbers.whole, parts)))

    def _figures(self, figures: str) -> None:
        """Say a bare number as the words before it suggest: date, year, code or count."""
        before = self._before.lower().strip(".,;:!?#")
        bare = figures.rstrip(",.")
        is_plain = bare.isdigit()
        if is_plain and self._in_a_row(bare):
            self._say(numbers.digits(bare))
            if self._after[:1].isdigit():
                self.out.append(",")
        elif is_plain and int(bare) <= 31 and self._after_month(before):
            self._say(numbers.ordinal(int(bare)))
        elif is_plain and before in CODE_WORDS and len(bare) >= 3:
            self._say(numbers.digits(bare))
        elif is_plain and len(bare) == 4 and ("1100" <= bare <= "1999" or "2000" <= bare <= "2099"):
            self._say(numbers.year(int(bare)))
        elif is_plain and int(bare) <= 31 and self._before_month():
            self._say(f"{numbers.ordinal(int(bare))} of")
        elif is_plain and len(bare) > 4 and (bare[0] == "0" or not bare.endswith("000")):
            self._say(numbers.digits(bare))
        else:
            self._say(numbers.decimal(bare))

    def _in_a_row(self, bare: str) -> bool:
        """The figures are a group of a number written apart: of a telephone or a card."""
        if PHONE_START.match(self._before):
            return " " in self._before or self._after[:1].isdigit()
        if len(bare) == 3:
            return _GROUP.match(self._after) is not None
        if len(bare) != 4 or re.fullmatch(r"\d{3}", self._before):
            return len(bare) == 4
        return not _NOW.fullmatch(bare) and any(
            re.fullmatch(r"\d{4}", each) and not _NOW.fullmatch(each)
            for each in (self._before, self._after)
        )

    def _after_month(self, before: str) -> bool:
        """The word before is a month, and not a verb that looks like one."""
        if before in ("may", "march", "mar"):
            return self._before[:1] == "M"
        return before in MONTHS or before in SHORT_MONTHS

    def _before_month(self) -> bool:
        following = self._after.strip(".,;:!?")
        return following[:1].isupper() and (
            following.lower() in MONTHS or following.lower() in SHORT_MONTHS
        )

    def _read_number(self, match: re.Match[str], core: str) -> None:
        figures, unit = match.group("number"), match.group("unit") or ""
        start = match.start()
        if figures.startswith("-") and start == 0:
            self._say("minus")
        bound = figures.startswith("-")
        figures = figures.removeprefix("-")
        if unit in numbers.COINS:
            self._say(numbers.money(unit, figures))
            return
        if start and core[start - 1] == "#":
            self._say("number")
        glued = start > 0 and core[start - 1].isalpha() and not bound
        if glued and len(figures) > 2 and figures.isdigit():
            self._say(numbers.digits(figures))
        else:
            self._figures(figures)
        self._trailing_comma(figures)
        if unit:
            self._unit(unit, figures)

    def _unit(self, unit: str, figures: str) -> None:
        bare = unit.lstrip("°")
        low = bare.lower()
        if unit.startswith("°"):
            self._say("degrees")
        if low in UNITS and bare not in ("s", "G"):
            self._say(UNITS[low] + ("" if figures == "1" else "s"))
        elif low in FIXED_UNITS:
            self._say(FIXED_UNITS[low])
        elif (bare, figures) in (("K", "4"), ("K", "8")):  # of a picture
            self.out.append("K")
        elif bare in ("k", "K"):
            self._say(SCALES[low])
        elif unit == "¢":
            self._say("cent" if figures == "1" else "cents")
        elif bare == "s" or low == "th":
            self._plural()
        elif low == "x":
            self._say("times")
        elif bare:
            self._word(bare)

    def _plural(self) -> None:
        """Make the number just said a plural: 'nineteen nineties'."""
        last = self.out[-1]
        self.out[-1] = last[:-1] + "ies" if last.endswith("y") else last + "s"

    def _read_dotted(self, match: re.Match[str], core: str) -> None:
        letters = match.group("dotted").replace(".", "")
        known = {"eg": "for example", "ie": "that is"}.get(letters.lower())
        self._say(known or " ".join(letters.upper()))
        at_end = match.end() == len(core) and core.endswith(".")
        if at_end and not known and self._at_sentence_end():
            self.out.append(".")

    def _read_word(self, match: re.Match[str], core: str) -> None:
        word = match.group("word").rstrip("'")
        low = word.lower()
        dotted = core[match.end() : match.end() + 1] == "."
        before = self._before.strip(",.;:")
        after_figure = _TIMELIKE.search(before) is not None and match.start() == 0
        if low in ("am", "pm") and (after_figure or word == "PM"):
            self._say(f"{low[0].upper()} M")
        elif low in ("c", "f") and core[: match.start()].endswith("°"):
            self._say(FIXED_UNITS[low])
        elif after_figure and (low in UNITS or low in FIXED_UNITS) and low not in ("m", "s", "c"):
            self._unit(word, before)
        elif dotted and low in TITLES and (low != "no" or self._after[:1].isdigit()):
            self._say(TITLES[low])
        elif dotted and low in CLIPPED:
            self._clipped(low)
        elif number := roman(word, self._before):
            self._say(number)
        elif low in ("mr", "mrs", "dr", "vs", "etc"):
            self._say((TITLES | CLIPPED)[low])
        else:
            self._word(word)
            if low in SCALE_WORDS and before[:1] in numbers.COINS:
                self._say(numbers.COINS[before[0]][1])

    def _read_rate(self, match: re.Match[str], core: str) -> None:
        rate = match.group("rate").lower()
        self._say(FIXED_UNITS[rate] if self._before[-1:].isdigit() else rate.replace("/", " "))

    def _clipped(self, low: str) -> None:
        named = self._before[:1].isupper() or self._before[:1].isdigit()
        if low == "st" and self._after[:1].isupper() and not named:
            self._say("saint")
        else:
            self._say(CLIPPED[low])

    def _word(self, word: str) -> None:
        """Say a word, or its letters where it is an acronym or a lone capital."""
        if len(word) == 1:
            self.out.append(
                word.upper() if word not in "aIA" or self._spelled(word) else word.lower()
            )
        elif word.isupper() and len(word) <= 5 and not word.isalpha():
            self.out.append(word.lower())
        else:
            self.out.append(word if word.isupper() and len(word) <= 5 else word.lower())

    def _spelled(self, word: str) -> bool:
        """A capital A is a letter among letters and figures, and inside a sentence."""
        if word != "A":
            return False
        if re.match(r"[A-Z]([,.]|$)|\d[\d,.]*$", self._after) or not self._after:
            return True
        return bool(self._before) and self._before[-1] not in ".?!:"

    def _read_stop(self, match: re.Match[str], core: str) -> None:
        marks = match.group("stop")
        if marks == "." and self._is_abbreviation_dot(match.start(), core):
            return
        self.out.append("?" if "?" in marks else "!" if "!" in marks else ".")

    def _is_abbreviation_dot(self, at: int, core: str) -> bool:
        word = re.search(r"([A-Za-z]+)$", core[:at])
        if word is None or at != len(core) - 1:
            return False
        low = word.group(1).lower()
        if low in TITLES and (low != "no" or self._after[:1].isdigit()):
            return bool(self._after)
        if low not in CLIPPED or not self._after:
            return False
        return not self._after[0].isupper() or low in SHORT_MONTHS or low == "st"

    def _read_comma(self, match: re.Match[str], core: str) -> None:
        if match.group("comma") == "(" and not self.out and not self._before:
            return
        self.out.append(",")

    def _read_symbol(self, match: re.Match[str], core: str) -> None:
        symbol = match.group("symbol")
        if symbol == "#":
            if core[: match.start()][-1:].isalpha() and not core[match.end() :][:1].isalnum():
                self._say("sharp")
            return
        if symbol in numbers.COINS:
            if self._before[-1:].isdigit():
                self._say(numbers.COINS[symbol][self._before != "1"])
            return
        self._say(SYMBOLS[symbol])
