"""EnglishFrontEnd: English text to text rows in step with the frames, while it arrives.

Each row is the pair of sounds of one 80 ms frame, one frame ahead of its sound. A piece of text
between white space becomes one TextUnit as soon as nothing behind it can change it: at its own
pause mark, or once the next piece is complete. Pure Python and NumPy; a stream belongs to one
request, a front end to all.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from playhead.engine.text.english import durations
from playhead.engine.text.english.abbreviations import PAUSES
from playhead.engine.text.english.lexicon import Lexicon, load_lexicon
from playhead.engine.text.english.normalise import plain, spoken
from playhead.engine.text.english.phonemes import (
    GAP_ID,
    PAUSE_IDS,
    SILENCE_ID,
    SOUND_IDS,
    VOWEL_IDS,
    row_id,
    sounds_of,
)
from playhead.engine.text.english.piece import needs_next, run_of
from playhead.engine.text.unit import TextUnit

LEAD_SLOTS = 2
"""A row names the sounds of the frame after its own."""
TAIL_SLOTS = 4
"""Pause behind the last sound of a text that ends without a pause mark."""
OPTIONAL = frozenset((GAP_ID,))
"""Sounds that may take no slot at all."""

_PIECE = re.compile(r"\s*\S{1,400}\s*")
"""A longer run without white space is cut, so that it can't grow without bound."""
_ARTICLE_VOWEL = "ði"
_SENTENCE_MARKS = frozenset(".?!")


@dataclass(frozen=True, slots=True)
class Reading:
    """The sounds of one piece, and what their durations depend on."""

    sounds: list[int]
    around: durations.Ints
    places: durations.Floats
    sentence_end: bool


def pieces_of(text: str) -> list[tuple[str, str]]:
    """Split a whole text into pieces, each with the core of the piece behind it."""
    pieces = _PIECE.findall(text) or ([text] if text else [])
    cores = [plain(piece) for piece in pieces[1:]]
    return list(zip(pieces, [*cores, ""], strict=False))


class EnglishFrontEnd:
    """The English front end of a checkpoint folder."""

    def __init__(self, folder: Path, rate: float = 1.0) -> None:
        """Load lexicon and durations; `rate` above 1 speaks faster.

        Raises CheckpointError when a file is missing.
        """
        self.lexicon = load_lexicon(folder)
        self.durations = durations.DurationModel.load(folder)
        self.rate = rate

    def open(self) -> "EnglishStream":
        """Start a request's text."""
        return EnglishStream(self.lexicon, self.durations, self.rate)


class Reader:
    """Reads pieces in order into sounds; knows what was said before."""

    def __init__(self, lexicon: Lexicon) -> None:
        """Start before the first word."""
        self._lexicon = lexicon
        self._before = ""
        self._in_phrase = False
        self._history = durations.History()

    @property
    def last_sound(self) -> int:
        """The last sound read; silence before the first."""
        return self._history.sounds[-1]

    def read(self, piece: str, following: str) -> Reading:
        """Read a piece and the one behind it (after `plain`; '' when there is none)."""
        core = plain(piece)
        if not needs_next(core):
            following = ""
        tokens = spoken(core, self._before, following)
        line_ends = "\n" in piece[len(piece.rstrip()) :]
        if line_ends and tokens and tokens[-1] not in PAUSES:
            tokens.append(".")
        behind = self._first_sound(following, core) if tokens else None
        sounds = self._sounds(tokens, behind)
        ahead: list[int] = []
        if behind is not None and sounds and sounds[-1] not in PAUSE_IDS:
            ahead = [behind] if behind in PAUSE_IDS else [GAP_ID, behind]
        reading = Reading(
            sounds,
            durations.neighbours(sounds, ahead, self._history),
            durations.traits(sounds, ahead, self._history),
            bool(tokens) and tokens[-1] in _SENTENCE_MARKS,
        )
        if sounds:
            self._before = run_of(self._before, core)
            self._in_phrase = sounds[-1] not in PAUSE_IDS
            self._history = durations.advance(sounds, self._history)
        return reading

    def _first_sound(self, following: str, core: str) -> int | None:
        """Return the first sound of the piece behind `core`, None when there is none."""
        if not following:
            return None
        tokens = spoken(following, core, "")
        if not tokens:
            return None
        if tokens[0] in PAUSES:
            return SOUND_IDS[tokens[0]]
        sounds = sounds_of(self._lexicon.pronounce(tokens[0], False)[0])
        return sounds[0] if sounds else None

    def _sounds(self, tokens: list[str], first_behind: int | None) -> list[int]:
        """Return the sounds of spoken words and pauses, gaps between words included."""
        words: list[list[int]] = []
        for index, token in enumerate(tokens):
            if token in PAUSES:
                words.append([SOUND_IDS[token]])
                continue
            pause_behind = tokens[index + 1] in PAUSES if index + 1 < len(tokens) else False
            words.extend(sounds_of(part) for part in self._lexicon.pronounce(token, pause_behind))
            if token == "the":
                self._mark_article(words, tokens[index + 1 :], first_behind)
        return self._joined(words)

    def _mark_article(self, words: list[list[int]], rest: list[str], behind: int | None) -> None:
        """Say 'thee' before a vowel."""
        if rest and rest[0] not in PAUSES:
            behind = sounds_of(self._lexicon.pronounce(rest[0], False)[0])[0]
        if behind is not None and behind in VOWEL_IDS:
            words[-1] = sounds_of(_ARTICLE_VOWEL)

    def _joined(self, words: list[list[int]]) -> list[int]:
        sounds: list[int] = []
        in_phrase = self._in_phrase
        for word in words:
            is_pause = len(word) == 1 and word[0] in PAUSE_IDS
            if is_pause and not in_phrase:
                continue
            if in_phrase and not is_pause and word:
                sounds.append(GAP_ID)
            sounds.extend(word)
            in_phrase = not is_pause
        return sounds


class Slots:
    """Lays sounds into 40 ms slots and slots into rows; keeps time across pieces."""

    def __init__(self) -> None:
        """Start at the slot behind the lead."""
        self._ideal = float(LEAD_SLOTS)
        self._filled = LEAD_SLOTS
        self._half: int | None = None
        self.num_rows = 0

    def lay(self, sounds: list[int], lengths: list[float]) -> tuple[list[int], list[int]]:
        """Return new rows, and the slot at which each sound begins, with the end behind it."""
        rows: list[int] = []
        starts: list[int] = []
        for sound, length in zip(sounds, lengths, strict=True):
            starts.append(self._filled)
            self._ideal += length
            least = 0 if sound in OPTIONAL else 1
            count = max(least, round(self._ideal - self._filled))
            if sound in PAUSE_IDS and (self._filled + count) % 2:
                count += 1
            self._put(sound, count, rows)
            if sound in PAUSE_IDS:
                self._ideal = float(self._filled)
        starts.append(self._filled)
        return rows, starts

    def finish(self, num_slots: int) -> list[int]:
        """Return the rows of a closing pause, whole frames."""
        rows: list[int] = []
        self._put(SOUND_IDS["."], num_slots + (self._filled + num_slots) % 2, rows)
        self._ideal = float(self._filled)
        return rows

    def _put(self, sound: int, count: int, rows: list[int]) -> None:
        for _ in range(count):
            self._filled += 1
            if self._half is None:
                self._half = sound
            else:
                rows.append(row_id(self._half, sound))
                self._half = None
                self.num_rows += 1


class EnglishStream:
    """One request's text on its way to units."""

    def __init__(self, lexicon: Lexicon, model: durations.DurationModel, rate: float) -> None:
        """Start with no text."""
        self._reader = Reader(lexicon)
        self._model = model
        self._rate = rate
        self._slots = Slots()
        self._text = ""
        self._lingered = False

    def push(self, text: str) -> list[TextUnit]:
        """Add text; return the units that later text can no longer change."""
        self._text += text
        units: list[TextUnit] = []
        while (unit := self._next_unit()) is not None:
            units.append(unit)
        return units

    def linger(self) -> TextUnit | None:
        """Text is late: return the rows behind the last sound's lead, as silence."""
        last = self._reader.last_sound
        if self._lingered or last == SILENCE_ID or last in PAUSE_IDS:
            return None
        self._lingered = True
        return TextUnit("", tuple(self._slots.finish(LEAD_SLOTS)), False)

    def close(self) -> list[TextUnit]:
        """Return the rest, and the silence behind the last word."""
        units = [self._unit(piece, following) for piece, following in pieces_of(self._text)]
        self._text = ""
        last = self._reader.last_sound
        if last != SILENCE_ID and last not in PAUSE_IDS:
            units = _with_tail(units, tuple(self._slots.finish(TAIL_SLOTS)))
        return units

    def _next_unit(self) -> TextUnit | None:
        match = _PIECE.match(self._text)
        if match is None:
            return None
        piece, rest = match.group(), self._text[match.end() :]
        if not rest:
            return None
        following = ""
        if needs_next(plain(piece)):
            behind = _PIECE.match(rest)
            assert behind is not None, "a piece takes all white space behind it"
            if behind.end() == len(rest) and not rest[-1].isspace():
                return None
            following = plain(behind.group())
        self._text = rest
        return self._unit(piece, following)

    def _unit(self, piece: str, following: str) -> TextUnit:
        """Read one piece, time its sounds and lay them into rows."""
        reading = self._reader.read(piece, following)
        if not reading.sounds:
            return TextUnit(piece, (), False)
        self._lingered = False
        lengths = self._model.slots(reading.around, reading.places) / self._rate
        first_row = self._slots.num_rows
        rows, starts = self._slots.lay(reading.sounds, lengths.tolist())
        word_rows = _word_rows(reading.sounds, starts, first_row)
        return TextUnit(piece, tuple(rows), reading.sentence_end, word_rows)


def _word_rows(sounds: list[int], starts: list[int], first_row: int) -> tuple[float, float] | None:
    """Return the frames from the first to the last speech sound, from the unit's first row."""
    speech = [at for at, sound in enumerate(sounds) if sound != GAP_ID and sound not in PAUSE_IDS]
    if not speech:
        return None
    start, end = (starts[at] for at in (speech[0], speech[-1] + 1))
    return start / 2 - first_row, end / 2 - first_row


def _with_tail(units: list[TextUnit], tail: tuple[int, ...]) -> list[TextUnit]:
    """Add the closing rows to the last unit that sounds, else as a unit without text."""
    for index in range(len(units) - 1, -1, -1):
        unit = units[index]
        if unit.token_ids:
            units[index] = TextUnit(unit.text, unit.token_ids + tail, True, unit.word_rows)
            return units
    return [*units, TextUnit("", tail, True)]
