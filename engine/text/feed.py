"""TextFeed: the text rows of one request, in talker segments, with the times of its words.

The talker takes one text row a frame. A feed knows whether the next row exists yet, when a
segment's text is over, and in which frame each word's rows went in. It hands out rows in runs, so
that a steady stream asks every other second; what was not used of a run goes back when anything
changes. Where a segment's text is laid out in its prompt, it knows when that text is there.
Torch-free, engine thread.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

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
RUN_ROWS = 32
"""Most rows of text in one run."""
MOST_VOID = 2
"""Frames whose rows may be taken back: one that ended the segment and one behind it."""
NEVER = 1 << 62
"""A frame no request reaches."""
Overdue = Guard | Literal["full"]
"""Why a segment stops before the model ends it; `full`: its frames are used up, text is left."""


@dataclass(frozen=True, slots=True)
class RowIds:
    """Text ids that are not text: the row at the end of the text, and after it."""

    end: int
    pad: int


class Run(NamedTuple):
    """Rows of the next frames of a request: all known now, and alike but for their ids."""

    ids: list[int]
    """Text ids; the last one is that of all further frames too."""
    num_frames: int
    may_end: bool
    more: bool
    """The row behind the run is known."""
    overdue: Overdue
    """Why the segment stops with the run, which is one frame then."""
    tail: int
    """Frame of the request from which on a guard may find that the segment is over: all of its
    text went in, and at least half of its speech should be spoken."""


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
        self.over = False
        """No more text comes."""
        self.closed = False
        """So it is, and all of it was read."""
        self.num_chars = 0
        self._unread: deque[str] = deque()
        self._words: list[Word] = []
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
        self._taken: deque[int | None] = deque(maxlen=RUN_ROWS + MOST_VOID)
        """The newest rows handed out; None for those that are no text."""
        self._text_taken = False
        """The newest run was of text."""
        self._ahead: deque[tuple[int, TextUnit]] = deque()
        """Units of that run, and the frame of the request at which each begins."""
        self._trailing: deque[int] = deque()
        """Rows of a prompt's text that found no place in it."""

    def push(self, text: str) -> None:
        """Add text, to be read."""
        self.num_chars += len(text)
        self._unread.append(text)

    def read(self, most: int) -> bool:
        """Let the front end read up to `most` characters; return whether more wait.

        Units that later text can no longer change become rows.
        """
        while self._unread and most > 0:
            text = self._unread.popleft()
            if len(text) > most:
                self._unread.appendleft(text[most:])
            self._units.extend(self._stream.push(text[:most]))
            most -= len(text)
        if self.over and not self._unread and not self.closed:
            self.closed = True
            self._units.extend(self._stream.close())
        return self.unread

    @property
    def unread(self) -> bool:
        """Text came that the front end has not read."""
        return bool(self._unread)

    def linger(self) -> bool:
        """Text is late and the listener about to run dry: let the last sound end, if it must."""
        unit = self._stream.linger()
        if unit is None:
            return False
        self._units.append(unit)
        return True

    def close(self) -> None:
        """No more text comes."""
        self.over = True

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
            words = words or unit.has_words
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

    def run(self, frame: int, segment_frame: int, most: int) -> Run:
        """Take the rows of up to `most` frames from `frame` of the request, `segment_frame` of its
        segment; at least one, and no more than are known and alike.
        """
        self._reach(frame)
        if not self._rows and not self.in_prompt:
            self._fill_rows(frame, segment_frame)
        if self._rows:
            return self._text_run(frame, segment_frame, most)
        self._text_taken = False
        num_frames, text_id = 1, self._ids.pad
        if self._trailing:
            text_id = self._trailing.popleft()
        elif not (self.in_prompt or self._end_fed):
            assert self._closing, "asked for a row that is not known yet"
            self._end_fed, text_id = True, self._ids.end
        elif not self._stopped:
            num_frames = max(min(most, ceil(self._longest) - 1 - segment_frame), 1)
        if not self.in_prompt:
            self._taken.extend((None,) * min(num_frames, MOST_VOID))
        overdue = self.overdue(segment_frame + num_frames)
        tail = frame - segment_frame + self._tail_frames if self._closing else NEVER
        return Run([text_id], num_frames, self.may_end, self.has_row, overdue, tail)

    def _text_run(self, frame: int, segment_frame: int, most: int) -> Run:
        """Take rows of the unit at hand and of units behind it, as long as the segment goes on."""
        most = min(most, RUN_ROWS, max(self._segment_limit - 1 - segment_frame, 1))
        num_rows = len(self._rows)
        if self._closing and self._traits.in_step:
            num_rows = max(num_rows - 1, 1)  # behind the last one the model may end the segment
        num_rows = min(num_rows, most)
        ids = [self._rows.popleft() for _ in range(num_rows)]
        rows = self._segment_rows + num_rows
        # The last unit known stays: whether the segment ends behind it depends on what comes.
        far = self._filled(segment_frame + most, rows + most) > SEGMENT_FILL
        units = self._units
        goes_on = not (self._rows or self._closing)
        while goes_on and len(units) > 1:
            unit, at = units[0], len(ids)
            num = len(unit.token_ids)
            fits = num and at + num <= most
            if not fits or (far and self._closes(unit, segment_frame + at, rows + num)):
                break
            self._ahead.append((frame + at, units.popleft()))
            rows += num
            ids += unit.token_ids
        self._segment_rows = rows
        self._taken.extend(ids)
        self._text_taken = True
        tail, num_rows = NEVER, len(ids)
        if self._closing and not self._rows:
            tail = frame + max(num_rows, self._tail_frames - segment_frame)
        overdue = self.overdue(segment_frame + num_rows)
        return Run(ids, num_rows, self.may_end, self.has_row, overdue, tail)

    def give_back(self, frame: int, num_frames: int) -> None:
        """End the newest run before `frame`: nothing is made of its last `num_frames`."""
        self._reach(frame)
        if not self._text_taken:
            return
        self._segment_rows -= num_frames
        while self._ahead:
            _, unit = self._ahead.pop()
            self._units.appendleft(unit)
            for _ in unit.token_ids:
                self._taken.pop()
            num_frames -= len(unit.token_ids)
        self.take_back(num_frames)

    def _reach(self, frame: int) -> None:
        """Let units begin whose first frame was launched: it is before `frame`."""
        while self._ahead and self._ahead[0][0] < frame:
            at, unit = self._ahead.popleft()
            self._time_word(unit, at)

    def take_back(self, num_rows: int) -> None:
        """Undo the last rows handed out, at most MOST_VOID that were used: they are unspoken."""
        for _ in range(min(num_rows, len(self._taken))):
            row = self._taken.pop()
            if row is not None:
                self._rows.appendleft(row)

    def stop(self, guard: Guard) -> None:
        """End the segment with its next frame: it goes on behind its text."""
        self._stopped = guard

    def overdue(self, segment_frame: int) -> Overdue:
        """Say why the segment has to stop at this frame; empty: it goes on."""
        if not self._closing or self._rows:
            return "full" if segment_frame >= self._segment_limit else ""
        if self._stopped:
            return self._stopped
        return "duration" if segment_frame >= self._longest else ""

    @property
    def _longest(self) -> float:
        """Return how many frames the segment may take, its text being complete."""
        if self._traits.in_step:
            allowed = self._segment_rows * IN_STEP_FACTOR
        else:
            expected = self._segment_rows * self._traits.frames_per_row
            allowed = expected * LENGTH_FACTOR + LENGTH_EXTRA_FRAMES
        return min(allowed, self._segment_limit)

    @property
    def _tail_frames(self) -> int:
        return ceil(TAIL_SHARE * self._segment_rows * self._traits.frames_per_row)

    @property
    def more_segments(self) -> bool:
        """Text is left, or may still come, after the segment that just ended."""
        return bool(self._rows) or self._words_left or not self.closed

    @property
    def _words_left(self) -> bool:
        return any(unit.has_words for unit in self._units)

    @property
    def words_from(self) -> int:
        """How many frames have to be launched for words to wait; NEVER: none are known ahead."""
        if self._words:
            return 0
        return self._ahead[0][0] + 1 if self._ahead else NEVER

    def take_words(self, frame: int) -> list[Word]:
        """Return and forget the words begun before a frame, in frames' time of the request."""
        self._reach(frame)
        words, self._words = self._words, []
        return words

    def take_rest(self) -> list[Word]:
        """Time what was never spoken (trailing marks, emoji) at the end, so no text is lost."""
        while self._units:
            self._time_word(self._units.popleft(), 0)
        return self.take_words(0)

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
            self._closing = self._closes(unit, segment_frame, rows)

    def _closes(self, unit: TextUnit, segment_frame: int, num_rows: int) -> bool:
        """Return whether the segment closes behind a unit that fills it to `num_rows`."""
        full = SEGMENT_FILL if unit.sentence_end else HARD_FILL
        return self._filled(segment_frame, num_rows) > full

    def _filled(self, segment_frame: int, num_rows: int) -> float:
        """Return the share of a segment's frames that its frames so far or its text take."""
        return max(segment_frame, num_rows * self._traits.frames_per_row) / self._segment_limit

    def _time_word(self, unit: TextUnit, frame: float) -> None:
        """Set a unit's times: exact rows where the front end tells them, else rows' mean pace."""
        traits, num_rows, last_s = self._traits, len(unit.token_ids), self._last_end_s
        if not num_rows:
            start_s = end_s = last_s
        elif unit.word_rows is not None:
            start_s = (frame + unit.word_rows[0]) * FRAME_S
            end_s = (frame + unit.word_rows[1]) * FRAME_S
        elif traits.in_step:
            start_s = frame * FRAME_S
            end_s = start_s + num_rows * FRAME_S
        else:
            start_s = frame * FRAME_S
            start_s = start_s if start_s > last_s else last_s
            end_s = start_s + num_rows * traits.frames_per_row * FRAME_S
        # A call of max() costs as much as all of these comparisons, once a word.
        start_s = start_s if start_s > last_s else last_s
        end_s = self._last_end_s = end_s if end_s > start_s else start_s
        if unit.text:
            self._words.append(Word(unit.text, start_s, end_s))
