"""Reader: says numbers, abbreviations, signs and the caller's own pronunciations; pure.

One instance a request. Numbers are read in the language asked for; with `auto` in the one the
text so far is clearly in, else they stay as written.
"""

import functools
import re
from collections.abc import Sequence

from playhead.engine.text.spoken import english
from playhead.engine.text.spoken.figures import Figures
from playhead.engine.text.spoken.fractions import VULGAR
from playhead.engine.text.spoken.guess import LanguageGuess
from playhead.engine.text.spoken.phrases import WAIT, PhraseBook
from playhead.engine.text.spoken.speller import speller
from playhead.engine.text.spoken.transducer import Transducer
from playhead.engine.text.spoken.window import starts_figure, window_end
from playhead.engine.text.spoken.words import WORDS
from playhead.engine.text.staged import Span

AUTO = "auto"
_LETTERS = re.compile(r"[^\W\d_]+")
_SPACED_LETTERS = re.compile(rf"[^\W\d_{VULGAR}\u2e80-\uffff]+|[\uac00-\ud7af]+")
_GUESSED = re.compile(rf"{_SPACED_LETTERS.pattern}|[^\W\d_]")
_SPACES = re.compile(r"\s+")
MAX_TAIL_CHARS = 80
_SIGNS = "+=×÷&@/_#№§"


class Pronouncer(Transducer):
    """The stage that says words as the caller asked for."""

    def __init__(self, pronunciations: Sequence[tuple[str, str]]) -> None:
        """Take (word or phrase, what to say for it); upper and lower case are the same."""
        super().__init__()
        self._book = PhraseBook(pronunciations, fold_case=True)
        self._before = ""

    def _next(self, text: str, at: int, closed: bool) -> Span | None:
        found = None
        if not (self._before.isalnum() and text[at].isalnum() and self._before < "\u2e80"):
            found = self._book.find_start(text, at, closed)
        if found is WAIT:
            return None
        span = Span(text[at : at + found.num_chars], found.value) if found else _letters(text, at)
        self._before = span.source[-1]
        return span


class Reader(Transducer):
    """The stage that reads what is not written as words."""

    def __init__(self, language: str | None) -> None:
        """Take an ISO 639 code; None guesses from the text."""
        super().__init__()
        self._language = language
        self._guess = LanguageGuess()
        self._tail = ""
        """The last characters as written."""

    def _next(self, text: str, at: int, closed: bool) -> Span | None:
        code = self._language or self._guess.code
        end = at
        if code is None:
            end = self._end_of_guess(text, at, closed)
            if end == at:
                return None
        elif code == "en":
            end = self._end_of_plain(text, at)
        if end > at:
            span: Span | None = Span(text[at:end], text[at:end])
        elif code == "en":
            span = self._guessed(self._read_english(text, at, closed), text, at, closed)
        elif code in WORDS:
            span = self._guessed(self._read(text, at, closed, code), text, at, closed)
        else:
            span = _letters(text, at)
        if span is not None:
            self._tail = (self._tail + span.source)[-MAX_TAIL_CHARS:]
        return span

    def _end_of_guess(self, text: str, at: int, closed: bool) -> int:
        """Return where the word ends that tells the language, or all words whose end is known."""
        for found in _GUESSED.finditer(text, at):
            word = found.group()
            if not word[0].isalpha():
                continue
            if found.end() == len(text) and not closed:
                return found.start()  # half a word would mislead the guess
            self._guess.add(word)
            if self._guess.code is not None:
                return found.end()
        return len(text)

    def _end_of_plain(self, text: str, at: int) -> int:
        """Return where English words end that are said as they are written; `at`: none are."""
        if not (text[at].isspace() or self._before.isspace() or not self._before):
            return at
        if self._tail.rstrip()[-1:].isdigit():
            return at  # a unit may follow
        end = english.plain_end(text, at)
        if self._language is None:
            for found in _LETTERS.finditer(text, at, end):
                self._guess.add(found.group())
                if self._guess.code != "en":
                    rest = english.PIECE.match(text, found.end(), end)
                    end = rest.end() if rest else found.end()
                    self._guess_by(text[found.end() : end])
                    return end
        return end

    def _guessed(self, span: Span | None, text: str, at: int, closed: bool) -> Span | None:
        """Let the guess know what is read as it is written; None while its end is not known."""
        if span is None or self._language or not (span.source[0].isalpha() and span.plain):
            return span
        if at + len(span.source) == len(text) and not closed:
            return None
        self._guess_by(span.source)
        return span

    def _guess_by(self, text: str) -> None:
        for word in _LETTERS.findall(text):
            self._guess.add(word)

    @property
    def _before(self) -> str:
        return self._tail[-1:]

    def _last_word(self) -> str:
        words = self._tail.split()
        return words[-1] if words else ""

    def _read_english(self, text: str, at: int, closed: bool) -> Span | None:
        if text[at].isspace() or not (self._before.isspace() or not self._before):
            return _letters(text, at)
        piece = english.piece_at(text, at, closed)
        if piece is None:
            return None
        before = english.last_piece(self._tail)
        if not english.is_written(piece, before):
            return Span(piece, piece)
        after = ""
        if english.depends_on_next(piece):
            behind = _SPACES.match(text, at + len(piece))
            end = behind.end() if behind else at + len(piece)
            if end < len(text):
                following = english.piece_at(text, end, closed)
                if following is None:
                    return None
                after = following
            elif not closed:
                return None
        return Span(piece, english.said(piece, before, after))

    def _read(self, text: str, at: int, closed: bool, code: str) -> Span | None:
        figures = _figures(code)
        if figures is None:
            return _letters(text, at)
        if not self._before.isalnum() or self._before >= "\u2e80":
            found = _abbreviations(code).find_start(text, at, closed)
            if found is WAIT:
                return None
            if found is not None:
                return self._abbreviated(text, at, closed, found.num_chars, found.value, code)
        inside = self._before.isalnum() and (text[at].isalpha() or text[at] in "+-−")
        starts = not inside and starts_figure(text, at, closed)
        if starts is None:
            return None
        if starts:
            return self._figure(text, at, closed, code, figures)
        if text[at] in _SIGNS:
            return self._sign(text, at, closed, code)
        if text[at] in "<>^":  # no table has words for them
            return Span(text[at], "" if self._before in ("", " ") else " ")
        return _letters(text, at)

    def _figure(self, text: str, at: int, closed: bool, code: str, figures: Figures) -> Span | None:
        end = window_end(text, at, closed, spaced_groups=code in ("fr", "ru"))
        if end is None:
            return None
        window = text[at:end].removesuffix("\n") or text[at:end]
        glued = not self._before.isspace()
        reading = figures.read(window, self._last_word(), glued)
        source = text[at : at + reading.num_chars]
        return Span(source, self._apart(source, reading.said, text[at + len(source) : end]))

    def _apart(self, source: str, said: str, behind: str) -> str:
        """Keep words of alphabets apart from what was glued to the figures."""
        if said == source:
            return said
        left = " " if self._before.isalpha() and self._before < "\u2e80" else ""
        right = " " if behind[:1].isalpha() and behind[0] < "\u2e80" else ""
        return left + said + right

    def _abbreviated(
        self, text: str, at: int, closed: bool, num_chars: int, value: str, code: str
    ) -> Span | None:
        source = text[at : at + num_chars]
        ahead = text[at + num_chars : at + num_chars + 2]
        if source not in _closing(code):
            return Span(source, value)
        if len(ahead) < 2 and not closed:
            return None
        ends = not ahead.strip() or (ahead[0].isspace() and ahead[-1].isupper()) or ahead[0] == "\n"
        return Span(source, value + "." if ends else value)

    def _sign(self, text: str, at: int, closed: bool, code: str) -> Span | None:
        if at + 1 == len(text) and not closed:
            return None
        words = _speller_words(code)
        sign, behind = text[at], text[at + 1 : at + 2]
        between = self._before.isalnum() and behind.isalnum()
        if sign in "/_" and between and not self._before.isdigit():
            return Span(sign, " ")
        alone = self._before in ("", " ") and behind.isspace()
        figure_behind = behind.isdigit() and sign in "#№§+×÷="
        if alone or figure_behind or (sign in "@×÷=+&№§" and between):
            left = "" if self._before in ("", " ") else " "
            right = "" if behind.isspace() else " "
            return Span(sign, left + words[sign] + right)
        return Span(sign, "" if sign == "_" else sign)


def _letters(text: str, at: int) -> Span:
    """Take a word as it is written; one character of scripts that don't part words."""
    found = _SPACED_LETTERS.match(text, at)
    letters = found.group() if found is not None else text[at]
    return Span(letters, letters)


def load_languages() -> None:
    """Load the tables of all languages (about half a second), so that no first number waits."""
    for code in WORDS:
        if _figures(code) is not None:
            _abbreviations(code)


@functools.cache
def _figures(code: str) -> Figures | None:
    spell = speller(code)
    return None if spell is None else Figures(spell)


def _speller_words(code: str) -> dict[str, str]:
    spell = speller(code)
    assert spell is not None, "signs are read where figures are"
    return spell.words.symbols


@functools.cache
def _abbreviations(code: str) -> PhraseBook:
    spell = speller(code)
    assert spell is not None, "abbreviations are read where figures are"
    return PhraseBook(spell.words.abbreviations.items(), fold_case=False)


def _closing(code: str) -> frozenset[str]:
    spell = speller(code)
    return frozenset() if spell is None else spell.words.closing
