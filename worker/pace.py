"""Pace: what the speeches of this process had to hold lately to wait for their engine; any thread.

Only waits of listeners who held little count: the engine lets the others wait on purpose. What
lies between the engine and the room (sockets, threads, a busy machine) is part of a wait.
"""

from collections import deque

LITTLE_S = 0.2
"""Who holds less is served next; that is two to three chunks of one frame."""
NUM_WAITS = 64
"""A speech has three to six waits that count, so the last dozen speeches are looked at."""
MOST_S = 1.0
"""No speech is held up by more: an engine that is slower than speech is no help to anybody."""


class Pace:
    """What the newest waits of all rooms asked for."""

    def __init__(self) -> None:
        """Begin without any."""
        self._waits_s: deque[float] = deque(maxlen=NUM_WAITS)

    def waited(self, needed_s: float) -> None:
        """Note what had to be held before a wait, and before those in a row with it, so that
        nothing of them was heard."""
        self._waits_s.append(needed_s)

    def longest_s(self) -> float:
        """Return the most of the last waits: what a speech should hold when it begins."""
        return min(max(tuple(self._waits_s), default=0.0), MOST_S)
