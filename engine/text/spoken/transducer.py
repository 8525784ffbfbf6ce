"""Transducer: rewrites text from left to right while it arrives; subclasses say how.

Its result does not depend on how the text was cut: a step either takes a piece that later text
can't change, or asks for more.
"""

from abc import ABC, abstractmethod

from playhead.engine.text.staged import Span


class Transducer(ABC):
    """The stage that repeats one step.

    It holds no method of its own as a value: streams come and go by the hundred, and one that
    refers to itself stays until the collector stops everything to find it.
    """

    def __init__(self) -> None:
        """Start with no text."""
        self._text = ""

    @abstractmethod
    def _next(self, text: str, at: int, closed: bool) -> Span | None:
        """Return what is spoken for the text from `at` on, None while that is open.

        Closed text ends with a line end of our own, so that nothing is open any more.
        """

    def push(self, text: str) -> list[Span]:
        """Add text; return the spans that later text can no longer change."""
        self._text += text
        return self._run(len(self._text), closed=False)

    def close(self) -> list[Span]:
        """Return the rest; the joined sources of all spans equal the pushed text."""
        end = len(self._text)
        self._text += "\n"
        return self._run(end, closed=True)

    def _run(self, end: int, closed: bool) -> list[Span]:
        text, at, plain = self._text, 0, 0
        spans: list[Span] = []
        while at < end:
            span = self._next(text, at, closed)
            if span is None:
                assert not closed, "closed text is decided to its end"
                break
            if not span.plain:
                spans += _unchanged(text[plain:at])
                spans.append(span)
                plain = at + len(span.source)
            at += len(span.source)
        if plain > end:  # our own line end was taken with the last span
            last = spans.pop()
            spans.append(Span(last.source[:-1], last.spoken.removesuffix("\n")))
        at = min(at, end)
        spans += _unchanged(text[plain:at])
        self._text = text[at:]
        return spans


def _unchanged(text: str) -> list[Span]:
    """Return one span for all that is said as it is written: what reads them pays for each."""
    return [Span(text, text)] if text else []
