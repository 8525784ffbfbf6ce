"""TextFeed: the text rows of one request, in talker segments, with the times of its words.

The talker takes one text row a frame. A feed knows whether the next row exists yet, when a
segment's text is over, and in which frame each word's rows went in. Where a segment's text is laid
out in its prompt, it knows when that text is there. Torch-free, engine thread.
"""

import unicodedata
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from playhead.engine.messages import Guard, Word
from playhead.engine.text.front_end import TextStream, Traits
from playhead.engine.text.unit import TextUnit
from playhead.engine.units import FRAME_S

FeedMode = Literal["streaming", "full", "sentences"]
"""Text goes in row by row; or into the prompt, once all of it is there; or so, by sentence."""
SEGMENT_FILL = 0.6
"""Share of a segment's frames after which it closes at the next sentence end."""
HARD_FILL = 0.75
"""Share after which it closes at the next word end: a third of the mean pace to spare, so that
slow speech is not cut before its last words."""
LENGTH_FACTOR = 3.0
LENGTH_EXTRA_FRAMES = 40
"""Frames a segment may take: rows x frames per row x factor + extra; more is a runaway."""
IN_STEP_FACTOR = 1.5
"""The same where a row is a frame: nothing but the end of its last sound may follow its rows."""
TAIL_SHARE = 0.5
"""Share of a segment's expected frames behind which a guard may find that it is over."""
_SPOKEN_MARKS = "&%@#§"
"""Marks that are read as words."""
Overdue = Guard | Literal["full"]
"""Why a segment stops before the model ends it; `full`: its frames are used up, text is left."""


@dataclass(frozen=True, slots=True)
class RowIds:
    """Text ids that are not text: the row at the end of the text, and after it."""

    end: int
    pad: int


class TextFeed:
    """Rows of one request's text; one segment is open at a time."""

    def __init__(
        self,
        stream: TextStream,
        traits: Traits,
        row_ids: RowIds,
        mode: FeedMode,
        segment_frames: int,
    ) -> None:
        """Take a front-end stream that nothing was pushed into yet."""
        self.closed = False
        self.num_chars = 0
        self.words: list[Word] = []
        """Words timed since the last `take_words`, in frames' time of the request."""
        self._stream = stream
        self._traits = traits
        self._ids = row_ids
        self._mode = mode
        self._segment_limit = segment_frames
        self._units: deque[TextUnit] = deque()
        self._rows: deque[int] = deque()
        self._segment_rows = 0
        self._closing = False
        self._end_fed = False
        self._stopped: Guard = ""
        self._last_end_s = 0.0
        self._taken: deque[int | None] = deque(maxlen=2)
        """The newest rows handed out; None for those that are no text."""
        self._trailing: deque[int] = deque()
        """Rows of a prompt's text that found no place in it."""

    def push(self, text: str) -> None:
        """Add text; units that later text can no longer change become rows."""
        self.num_chars += len(text)
        self._units.extend(self._stream.push(text))

    def linger(self) -> bool:
        """Text is late and the listener about to run dry: let the last sound end, if it must."""
        unit = self._stream.linger()
        if unit is None:
            return False
        self._units.append(unit)
        return True

    def close(self) -> None:
        """No more text comes."""
        if not self.closed:
            self.closed = True
            self._units.extend(self._stream.close())

    @property
    def speakable(self) -> bool:
        """Any row waits to be spoken. Marks alone begin no segment, they end one."""
        if self._rows or (self._segment_rows and any(unit.token_ids for unit in self._units)):
            return True
        return self._words_left

    @property
    def exhausted(self) -> bool:
        """The segment has no text and none will come: there is nothing to speak."""
        return self.closed and self._segment_rows == 0 and not self.speakable

    @property
    def has_row(self) -> bool:
        """The row of the next frame is known."""
        if self._rows or self._closing or self.closed or self._mode == "full":
            return True
        return self.speakable if self._mode == "streaming" else self.segment_known

    @property
    def may_end(self) -> bool:
        """The model may end the segment: its text is complete (and, in step, all of it went in)."""
        if self._traits.in_step:
            return self._closing and not self._rows
        return self._closing or (self.closed and not self._units)

    @property
    def in_prompt(self) -> bool:
        """A segment's text goes into its prompt, not row by row."""
        return self._mode != "streaming"

    @property
    def segment_known(self) -> bool:
        """The next segment's prompt can be laid out."""
        if self._mode == "sentences":
            return self._num_units() is not None
        return self._mode == "streaming" or self.closed

    def segment_body(self, frame: int) -> list[int]:
        """Take the next segment's text: one sentence, or those up to the segment's fill."""
        body: list[int] = []
        for _ in range(self._num_units() or 0):
            unit = self._units.popleft()
            self._time_word(unit, frame + len(body) * self._traits.frames_per_row)
            body.extend(unit.token_ids)
        self._segment_rows = len(body)
        self._closing = True
        return body

    def trail(self, text_ids: Iterable[int]) -> None:
        """Take the rows that the segment's first frames get beside its prompt."""
        self._trailing = deque(text_ids)

    def _num_units(self) -> int | None:
        """Return how many units the next segment takes; None while its end is not known."""
        num_rows, words = 0, False
        for number, unit in enumerate(self._units, start=1):
            num_rows += len(unit.token_ids)
            words = words or (bool(unit.token_ids) and _has_words(unit.text))
            filled = num_rows * self._traits.frames_per_row / self._segment_limit
            full = filled > SEGMENT_FILL or self._mode == "sentences"
            if words and ((unit.sentence_end and full) or filled > HARD_FILL):
                return number
        if not self.closed:
            return None
        return len(self._units) if words else 0

    def begin_segment(self) -> None:
        """Start the next segment's rows."""
        self._segment_rows = 0
        self._closing = False
        self._end_fed = False
        self._stopped = ""

    def next_row(self, frame: int, segment_frame: int) -> int:
        """Return the text id of frame `frame` of the request, `segment_frame` of its segment."""
        if not self._rows:
            if self.in_prompt:
                return self._trailing.popleft() if self._trailing else self._ids.pad
            self._fill_rows(frame, segment_frame)
        if self._rows:
            self._segment_rows += 1
            row = self._rows.popleft()
            self._taken.append(row)
            return row
        self._taken.append(None)
        assert self._closing, "asked for a row that is not known yet"
        if self._end_fed:
            return self._ids.pad
        self._end_fed = True
        return self._ids.end

    def after(self, segment_frame: int) -> tuple[bool, Overdue, bool]:
        """Return `may_end`, `overdue` at that frame and `has_row`, once its row was taken."""
        if not self._rows:
            return self.may_end, self.overdue(segment_frame), self.has_row
        known = self._closing or (self.closed and not self._units)
        full: Overdue = "full" if segment_frame >= self._segment_limit else ""
        return known and not self._traits.in_step, full, True

    def take_back(self, num_rows: int) -> None:
        """Undo the last `num_rows` (at most 2) `next_row`: their text is still unspoken."""
        for _ in range(min(num_rows, len(self._taken))):
            row = self._taken.pop()
            if row is not None:
                self._rows.appendleft(row)

    def in_tail(self, segment_frame: int) -> bool:
        """All text of the segment went in, and at least half of its speech should be over."""
        if self._rows or not self._closing:
            return False
        return segment_frame >= TAIL_SHARE * self._segment_rows * self._traits.frames_per_row

    def stop(self, guard: Guard) -> None:
        """End the segment with its next frame: it goes on behind its text."""
        self._stopped = guard

    def overdue(self, segment_frame: int) -> Overdue:
        """Say why the segment has to stop at this frame; empty: it goes on."""
        if not self._closing or self._rows:
            return "full" if segment_frame >= self._segment_limit else ""
        if self._stopped:
            return self._stopped
        if self._traits.in_step:
            allowed = self._segment_rows * IN_STEP_FACTOR
        else:
            expected = self._segment_rows * self._traits.frames_per_row
            allowed = expected * LENGTH_FACTOR + LENGTH_EXTRA_FRAMES
        return "duration" if segment_frame >= min(allowed, self._segment_limit) else ""

    @property
    def more_segments(self) -> bool:
        """Text is left, or may still come, after the segment that just ended."""
        return bool(self._rows) or self._words_left or not self.closed

    @property
    def _words_left(self) -> bool:
        return any(unit.token_ids and _has_words(unit.text) for unit in self._units)

    def take_words(self) -> list[Word]:
        """Return and forget the words timed so far."""
        words, self.words = self.words, []
        return words

    def take_rest(self) -> list[Word]:
        """Time what was never spoken (trailing marks, emoji) at the end, so no text is lost."""
        while self._units:
            self._time_word(self._units.popleft(), 0)
        return self.take_words()

    def _fill_rows(self, frame: int, segment_frame: int) -> None:
        """Move the next unit's rows in; decide whether the segment closes behind it."""
        while not self._rows and not self._closing:
            if not self._units:
                self._closing = self.closed
                return
            unit = self._units.popleft()
            self._time_word(unit, frame)
            self._rows.extend(unit.token_ids)
            rows = self._segment_rows + len(unit.token_ids)
            filled = max(segment_frame, rows * self._traits.frames_per_row) / self._segment_limit
            if (unit.sentence_end and filled > SEGMENT_FILL) or filled > HARD_FILL:
                self._closing = True

    def _time_word(self, unit: TextUnit, frame: float) -> None:
        """Set a unit's times: exact rows where the front end tells them, else rows' mean pace."""
        traits = self._traits
        if not unit.token_ids:
            start_s = end_s = self._last_end_s
        elif unit.word_rows is not None:
            start_s = (frame + unit.word_rows[0]) * FRAME_S
            end_s = (frame + unit.word_rows[1]) * FRAME_S
        elif traits.in_step:
            start_s = frame * FRAME_S
            end_s = start_s + len(unit.token_ids) * FRAME_S
        else:
            start_s = max(frame * FRAME_S, self._last_end_s)
            end_s = start_s + len(unit.token_ids) * traits.frames_per_row * FRAME_S
        start_s = max(start_s, self._last_end_s)
        self._last_end_s = max(end_s, start_s)
        if unit.text:
            self.words.append(Word(unit.text, start_s, self._last_end_s))


def _has_words(text: str) -> bool:
    """Say whether anything but white space, control characters and marks is written."""
    return any(unicodedata.category(char)[0] not in "PZC" or char in _SPOKEN_MARKS for char in text)
