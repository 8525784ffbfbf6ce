"""Cleaner: takes out of text what nobody says: markdown, emoji, tags, addresses' decoration.

Pure; one instance a request. Each rule is tried where a piece begins; a rule that matches so far
waits for more text, and no rule waits over more than its own bound.
"""

import html
import unicodedata
from collections.abc import Callable

import regex

from playhead.engine.text.spoken.transducer import Transducer
from playhead.engine.text.staged import Span

MAX_ADDRESS_CHARS = 2000
MAX_TAG_CHARS = 300

_WORD = regex.compile(r"(?:[\p{L}\p{N}'’]|(?![\uFE0E\uFE0F\u20E3])\p{M})+")
_PROSE = regex.compile(
    r"(?:(?![hH](?:[tT]|\Z)|[wW](?:[wW]|\Z)|[fF](?:[tT]|\Z))[\p{L}\p{N}'’]++|[ ,.?()\"“”–—…]"
    r"|(?<=[\p{L}\p{N}])(?:-(?=[\p{L}\p{N}])|[:;])|!(?=[^\[]))++"
)
"""Words and marks that no rule changes where they stand in a line, and that begin no address."""
_SPACE = regex.compile(r"[^\S\n]+")
_EMOJI = (
    r"[\p{Extended_Pictographic}\p{Regional_Indicator}\p{Emoji_Modifier}\uFE0E\uFE0F\u20E3"
    r"\U000E0020-\U000E007F]"
)
_SYMBOL = regex.compile(r"[\p{So}\p{Sk}\p{Co}\p{Cs}\p{Cc}\u200b\u2060\ufeff]")
"""Drawings, control characters and private ones; zero-width joiners belong to words."""
_KEPT_SYMBOLS = frozenset("°№℃℉\n\t\r")
_ARROWS = frozenset("→←↔⇒⇐⇔➔➜➡⟶")
_BLOCK_TAGS = frozenset(
    "br p div li ul ol tr td th h1 h2 h3 h4 h5 h6 hr break s pause think thinking".split()
)
_STOP_OF = (
    (regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]"), "。"),
    (regex.compile(r"[\p{Devanagari}\p{Bengali}]"), "।"),
)
_AFTER_WORD = regex.compile(r"[\p{L}\p{M}\p{N}%°\"'”’»)€$£¥]")

_FENCE = regex.compile(r"[ ]{0,3}(`{3,20}|~{3,20})[^\n`]{0,100}\n")
_LINE_RULES = (
    regex.compile(r"[ \t]{0,9}([-*_])[ \t]{0,3}(?:\1[ \t]{0,3}){2,80}\n"),
    regex.compile(r"[ \t]{0,9}={2,80}[ \t]{0,9}\n"),
    regex.compile(
        r"[ \t]{0,9}\|?[ \t]{0,9}:?-{1,80}:?[ \t]{0,9}(?:\|[ \t]{0,9}:?-{0,80}:?[ \t]{0,9})+\n"
    ),
)
"""Lines that are only drawn: rules, underlines, the second row of a table."""
_ITEM = regex.compile(r"[ \t]{0,40}(?:[-*+•‣◦▪·][ \t]+|#{1,6}[ \t]+|\|[ \t]*)(?=[^ \t])")
_CHECKBOX = regex.compile(r"\[[ xX]\][ \t]")
_NUMBERED = regex.compile(r"[ \t]{0,40}\d{1,3}[.)](?=[ \t])")
_QUOTE = regex.compile(r"[ \t]{0,3}>[ \t]?(?=[^ \t])")

_URL = regex.compile(
    rf"(?:https?://|ftp://|www\.)[^\s<>\[\]\"'`*|，。、；：？！（）「」『』)]{{1,{MAX_ADDRESS_CHARS}}}",
    regex.IGNORECASE,
)
_TAG = regex.compile(
    r"</?([A-Za-z][\w:-]{0,40})(?:\s{1,9}[\w:-]{1,40}(?:\s?=\s?(?:\"[^\"<>]{0,200}\"|'[^'<>]{0,200}'))?)"
    r"{0,9}\s{0,9}/?>"
)
_HIDDEN = (
    regex.compile(r"<!--(?:[^-]|-[^-]|--[^>]){0,500}-->"),
    regex.compile(r"<\|\w{1,40}\|>"),
    regex.compile(r"<[?!][^<>]{0,200}>"),
    regex.compile(r"\[\^[^\]\s]{1,40}\]"),
    regex.compile(rf"\]\([^\s()]{{0,{MAX_ADDRESS_CHARS}}}\)"),
    regex.compile(rf"\]\([^\s()]{{0,{MAX_ADDRESS_CHARS}}}[ \t]{{1,9}}\"[^\"\n]{{0,200}}\"\)"),
    regex.compile(r"\]\([^\s()]{0,400}\([^\s()]{0,400}\)[^\s()]{0,400}\)"),
    regex.compile(r"\]\[[^\]\n]{0,80}\]"),
    regex.compile(r"!(?=\[)"),
)
"""Comments, control tokens, declarations, footnotes, the targets of links."""
_CITATION = regex.compile(r"\[\d{1,3}\](?=[^(])")
_ENTITY = regex.compile(r"&(?:#\d{1,6}|#x[0-9a-fA-F]{1,6}|[A-Za-z]{2,8}\d?);")
_TIMES = regex.compile(r"\*[ ]?(?=\d)")
_COMPARES = regex.compile(r"<(?=[0-24-9]|3[\d.,%])|>(?=\d)")
"""Less and more than a figure; `<3` is a heart."""
_MAIL_TAIL = regex.compile(r"_[\w.+-]{1,64}@")
_EMOTICON = regex.compile(r"[:;=][-o']?[)(DPp/|\\](?=\s)")
_RUN = regex.compile(r"([*_~=^`|#-])\1*")


class Cleaner(Transducer):
    """The stage that takes markup, drawings and decoration out."""

    def __init__(self) -> None:
        """Start at the beginning of a line."""
        super().__init__()
        self._line_start = True
        self._fence: str | None = None
        """The mark that ends the code block; None outside of one."""
        self._in_code = False
        self._in_row = False
        self._needs_stop = False
        """The line is a heading, an item or a row: its end ends a sentence."""
        self._before = ""
        """The last character as written."""
        self._said = ""
        """The last character that is spoken."""
        self._gap = False
        """Something was taken out since; white space there must not double."""
        self._waits = False

    def _next(self, text: str, at: int, closed: bool) -> Span | None:
        self._waits = False
        span = self._prose(text, at) or self._decide(text, at, closed)
        if span is None or self._waits:
            return None
        self._before = span.source[-1]
        if span.spoken:
            self._said = span.spoken[-1]
            self._gap = self._gap and self._said.isspace()
        else:
            self._gap = True
        return span

    def _prose(self, text: str, at: int) -> Span | None:
        """Take ordinary words at once; None where other rules have to be asked."""
        if self._fence or self._in_code or self._in_row or self._gap:
            return None
        if self._line_start and not text[at].isalpha():
            return None
        found = _PROSE.match(text, at)
        if found is None:
            return None
        self._line_start = False
        return Span(found.group(), found.group())

    def _match(
        self, pattern: "regex.Pattern[str]", text: str, at: int, closed: bool
    ) -> "regex.Match[str] | None":
        """Match; wait where more text could still make it match or longer."""
        found = pattern.match(text, at, partial=not closed)
        if found is None or closed:
            return found
        # A match that ends with the text may grow, unless its own end mark closed it.
        if found.partial or (found.end() == len(text) and text[-1] not in "\n)>"):
            self._waits = True
            return None
        return found

    def _decide(self, text: str, at: int, closed: bool) -> Span | None:
        if self._fence is not None:
            return self._inside_fence(text, at, closed)
        if text[at] == "\n":
            return self._line_end()
        if self._line_start:
            span = self._line_begin(text, at, closed)
            if span is not None or self._waits:
                return span
        space = _SPACE.match(text, at)
        if space is not None:
            return self._space(text, at, space.group(), closed)
        self._line_start = False
        for rule in _RULES:
            span = rule(self, text, at, closed)
            if span is not None or self._waits:
                return span
        return Span(text[at], text[at])

    def _inside_fence(self, text: str, at: int, closed: bool) -> Span | None:
        if self._line_start:
            found = self._match(_FENCE, text, at, closed)
            if self._waits:
                return None
            if found is not None and found[1].startswith(self._fence or ""):
                self._fence = None
                return Span(found.group(), "")
        end = text.find("\n", at)
        self._line_start = end == at
        taken = text[at:] if end < 0 else text[at : max(end, at + 1)]
        return Span(taken, "")

    def _line_begin(self, text: str, at: int, closed: bool) -> Span | None:
        found = self._match(_FENCE, text, at, closed)
        if self._waits:
            return None
        if found is not None:
            self._fence = found[1]
            return Span(found.group(), "")
        for pattern in _LINE_RULES:
            found = self._match(pattern, text, at, closed)
            if found is not None or self._waits:
                return found and Span(found.group(), "")
        found = self._match(_QUOTE, text, at, closed)
        if found is not None or self._waits:
            return found and Span(found.group(), "")
        found = self._match(_ITEM, text, at, closed)
        if found is not None or self._waits:
            self._begin_item(row=found is not None and "|" in found.group())
            return found and Span(found.group(), "")
        if self._needs_stop:
            found = self._match(_CHECKBOX, text, at, closed)
            if found is not None or self._waits:
                return found and Span(found.group(), "")
        found = self._match(_NUMBERED, text, at, closed)
        if found is not None:
            self._begin_item(row=False)
            self._line_start = False
            return Span(found.group(), found.group())
        return None

    def _begin_item(self, row: bool) -> None:
        if not self._waits:
            self._needs_stop = True
            self._in_row = row

    def _line_end(self) -> Span:
        stop = self._stop() if self._needs_stop and _AFTER_WORD.match(self._said) else ""
        self._line_start, self._needs_stop = True, False
        self._in_code = self._in_row = False
        return Span("\n", stop + "\n")

    def _stop(self) -> str:
        return next((stop for script, stop in _STOP_OF if script.match(self._said)), ".")

    def _space(self, text: str, at: int, space: str, closed: bool) -> Span | None:
        if self._in_row:
            if at + len(space) == len(text):
                return None
            if text[at + len(space)] == "|":
                return Span(space, "")
        if not self._gap:
            return Span(space, space)
        doubled = not self._said or self._said.isspace()
        return Span(space, "" if doubled else space[0])

    def _plain(self, text: str, at: int, closed: bool) -> Span | None:
        """Take a word; one that may be an address is left to its rule."""
        if text[at] in "hHwWfF" and not _WORD.match(self._before):
            found = self._match(_URL, text, at, closed)
            if found is not None or self._waits:
                return None
        word = _WORD.match(text, at)
        if word is None:
            return None
        return Span(word.group(), word.group())

    def _address(self, text: str, at: int, closed: bool) -> Span | None:
        if text[at] not in "hHwWfF" or _WORD.match(self._before):
            return None
        found = self._match(_URL, text, at, closed)
        if found is None:
            return None
        written = found.group().rstrip(".,;:!?")
        return Span(written, _bare_address(written))

    def _angle(self, text: str, at: int, closed: bool) -> Span | None:
        if text[at] != "<":
            return None
        found = self._match(_TAG, text, at, closed)
        if found is None:
            return None
        apart = found[1].lower() in _BLOCK_TAGS and self._said and not self._said.isspace()
        return Span(found.group(), " " if apart else "")

    def _hidden(self, text: str, at: int, closed: bool) -> Span | None:
        if text[at] in "<[]!":
            for pattern in _HIDDEN:
                found = self._match(pattern, text, at, closed)
                if found is not None or self._waits:
                    return found and Span(found.group(), "")
        if text[at] == "[" and not self._before.isspace():
            found = self._match(_CITATION, text, at, closed)
            if found is not None or self._waits:
                return found and Span(found.group(), "")
        if text[at] == "&":
            found = self._match(_ENTITY, text, at, closed)
            if found is not None:
                said = html.unescape(found.group())
                return Span(found.group(), said if said in "&\"'%$€£°©" else " ")
        if text[at] in ":;=" and (self._before.isspace() or not self._before):
            found = self._match(_EMOTICON, text, at, closed)
            if found is not None or self._waits:
                return found and Span(found.group(), "")
        return None

    def _code(self, text: str, at: int, closed: bool) -> Span | None:
        if text[at] == "`":
            self._in_code = not self._in_code
            return Span("`", "")
        if self._in_code and not (text[at].isalnum() or text[at] in ".,%'’"):
            return Span(text[at], self._apart())
        return None

    def _apart(self) -> str:
        """Return the space that keeps the words around a dropped mark apart."""
        return " " if self._said.isalnum() else ""

    def _mark(self, text: str, at: int, closed: bool) -> Span | None:
        mark = text[at]
        if mark == "\\":
            return Span(mark, self._apart())
        if mark in "*_~=^|#-":
            return self._marks(text, at, closed)
        if mark in "<>":
            found = self._match(_COMPARES, text, at, closed)
            if found is not None or self._waits:
                return found and Span(mark, mark)
        if mark in "[]{}<>":
            return Span(mark, "" if mark == "]" else self._apart())
        if mark in _ARROWS:
            return Span(mark, ",")
        if "\u3371" <= mark <= "\u33df":  # a unit drawn as one character
            return Span(mark, unicodedata.normalize("NFKC", mark))
        if mark == "\u200d" and _is_emoji(self._before):
            return Span(mark, "")
        if mark not in _KEPT_SYMBOLS and (_is_emoji(mark) or _SYMBOL.match(mark)):
            return Span(mark, "")
        return Span(mark, mark)

    def _marks(self, text: str, at: int, closed: bool) -> Span | None:
        run = self._match(_RUN, text, at, closed)
        if run is None:
            return None
        marks, mark = run.group(), text[at]
        following = text[run.end()]
        if mark in "-=" and following == ">":
            return Span(marks + following, ",")
        between = self._before.isalnum() and following.isalnum()
        if mark == "*" and len(marks) == 1:
            found = self._match(_TIMES, text, at, closed)
            if self._waits:
                return None
            if found is not None and self._said_figure():
                return Span(found.group(), "×" + found.group()[1:])
        if mark == "_" and len(marks) == 1 and between:
            found = self._match(_MAIL_TAIL, text, at, closed)
            if self._waits:
                return None
            return Span("_", " " if found is None else "_")
        return Span(marks, self._reading(marks, between, following))

    def _said_figure(self) -> bool:
        return self._said.isdigit() or (self._said == " " and self._before == " ")

    def _reading(self, marks: str, between: bool, following: str) -> str:
        mark = marks[0]
        if mark == "|":
            return "" if following == "\n" or not _AFTER_WORD.match(self._said) else ", "
        if mark == "#":
            sharp = self._before.isalpha() and self._before.isascii()
            return marks if len(marks) == 1 and (sharp or following.isdigit()) else ""
        if mark == "-":
            return "," if len(marks) > 3 else marks
        if mark == "=":
            return "=" if len(marks) == 1 else ""
        if mark == "^":
            return "^" if len(marks) == 1 and between and following.isdigit() else ""
        if mark == "~":
            return "~" if len(marks) == 1 and following.isdigit() else ""
        return " " if between and mark == "_" else ""


def _is_emoji(char: str) -> bool:
    return bool(char) and _EMOJI_CHAR.match(char) is not None


_EMOJI_CHAR = regex.compile(_EMOJI)


def _bare_address(address: str) -> str:
    """Return an address without scheme, query and fragment: what one would say."""
    bare = regex.sub(r"^(?:https?://|ftp://)?(?:www\.)?", "", address, flags=regex.IGNORECASE)
    return regex.split(r"[?#]", bare)[0].rstrip("/")


_RULES: tuple[Callable[[Cleaner, str, int, bool], Span | None], ...] = (
    Cleaner._plain,
    Cleaner._address,
    Cleaner._angle,
    Cleaner._hidden,
    Cleaner._code,
    Cleaner._mark,
)
