"""Stages in front of a front end: they rewrite text for speech, units keep it as written.

    text ─▶ stage ─▶ spans ─▶ front end ─▶ units of what is spoken ─▶ units of what was written

Stages nest: each is a TextStream around another. Torch-free, pure; one instance a request.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from playhead.engine.text.front_end import TextStream
from playhead.engine.text.unit import TextUnit


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a stage's input and what is spoken for it; equal texts may be cut anywhere."""

    source: str
    spoken: str

    @property
    def plain(self) -> bool:
        """It is said as it is written."""
        return self.source == self.spoken


class Stage(Protocol):
    """Rewrites text as it arrives; what it says does not depend on how the text was cut."""

    def push(self, text: str) -> list[Span]:
        """Add text; return the spans that later text can no longer change."""

    def close(self) -> list[Span]:
        """Return the rest; the joined sources of all spans equal the pushed text."""


class StagedStream:
    """A TextStream whose front end reads what a stage made of the text."""

    def __init__(self, stage: Stage, inner: TextStream) -> None:
        """Take a stage and a stream that nothing was pushed into yet."""
        self._stage = stage
        self._inner = inner
        self._spans: deque[Span] = deque()
        """What the front end was given and has made no unit of yet."""
        self._taken = 0
        """Spoken characters of the first span that units hold already."""
        self._open: list[TextUnit] = []
        """Units of a span that is not spoken to its end: its text is one word."""

    def push(self, text: str) -> list[TextUnit]:
        """Add text; return the units that later text can no longer change."""
        return self._speak(self._stage.push(text))

    def linger(self) -> TextUnit | None:
        """Text is late: return what is known of an open word, and the rows behind it."""
        unit = self._inner.linger()
        if unit is None:
            return None
        units = [*self._open, unit._replace(text=self._take(len(unit.text)))]
        self._open = []
        if self._inside:
            span = self._spans[0]
            self._spans[0] = Span("", span.spoken)
            units.append(TextUnit(span.source, (), False))
        return _joined(units)

    def close(self) -> list[TextUnit]:
        """Return the rest; the joined texts of all units equal the pushed text."""
        units = self._speak(self._stage.close())
        units += self._written(self._inner.close())
        rest = "".join(span.source for span in self._spans)
        self._spans.clear()
        if not rest:
            return units
        if not units:
            return [TextUnit(rest, (), False)]
        return [*units[:-1], units[-1]._replace(text=units[-1].text + rest)]

    def _speak(self, spans: Sequence[Span]) -> list[TextUnit]:
        spoken = "".join(span.spoken for span in spans)
        held = self._spans
        if spans and spans[0].plain and held and held[-1].plain:
            if len(held) == 1:
                joined = held.pop().source[self._taken :] + spans[0].source
                self._taken = 0
            else:
                joined = held.pop().source + spans[0].source
            held.append(Span(joined, joined))
            spans = spans[1:]
        held.extend(spans)
        return self._written(self._inner.push(spoken)) if spoken else []

    def _written(self, units: list[TextUnit]) -> list[TextUnit]:
        """Give units the text that was written for them; join those of one rewritten span."""
        if self._spans and self._spans[0].plain and not self._open:
            end = self._taken + sum(len(unit.text) for unit in units)
            if end < len(self._spans[0].source):
                self._taken = end
                return units
        out: list[TextUnit] = []
        for unit in units:
            self._open.append(unit._replace(text=self._take(len(unit.text))))
            if not self._inside:
                out.append(_joined(self._open))
                self._open = []
        return out

    @property
    def _inside(self) -> bool:
        """Units hold a part of what is spoken for a rewritten span."""
        return self._taken > 0 and not self._spans[0].plain

    def _take(self, num_chars: int) -> str:
        """Remove spoken characters; return what was written for the spans they complete.

        Spans without sound go with what is spoken behind them.
        """
        source: list[str] = []
        while num_chars:
            span = self._spans[0]
            step = min(len(span.spoken) - self._taken, num_chars)
            end = self._taken + step
            if span.plain:
                source.append(span.source[self._taken : end])
            elif end == len(span.spoken):
                source.append(span.source)
            num_chars -= step
            self._taken = end
            if end == len(span.spoken):
                self._spans.popleft()
                self._taken = 0
        return "".join(source)


def _joined(units: Sequence[TextUnit]) -> TextUnit:
    """Return one unit with the text and rows of all; it sounds from the first to the last."""
    if len(units) == 1:
        return units[0]
    rows: list[int] = []
    start: float | None = None
    end = 0.0
    for unit in units:
        if unit.word_rows is not None:
            start = len(rows) + unit.word_rows[0] if start is None else start
            end = len(rows) + unit.word_rows[1]
        rows.extend(unit.token_ids)
    text = "".join(unit.text for unit in units)
    spoken = None if start is None else (start, end)
    return TextUnit(text, tuple(rows), any(unit.sentence_end for unit in units), spoken)
