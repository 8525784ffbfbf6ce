"""Pace: how long the rooms of this process lately waited for their engine's next chunk; any thread.

Only waits of listeners who held little count: the engine lets the others wait on purpose. What
lies between the engine and the room (sockets, threads, a busy machine) is part of a wait.
"""

from collections import deque

LITTLE_S = 0.2
"""Who holds less is served next; that is two to three chunks of one frame."""
NUM_WAITS = 64
"""A speech has three to six waits that count, so the last dozen speeches are looked at."""
MOST_S = 0.2
"""No speech is held up by more: a longer wait was a fault of its own."""


class Pace:
    """The newest waits of all rooms."""

    def __init__(self) -> None:
        """Begin without any."""
        self._waits_s: deque[float] = deque(maxlen=NUM_WAITS)

    def waited(self, wait_s: float, held_s: float) -> None:
        """Note that a chunk came `wait_s` after the one before, which left `held_s` to play."""
        if held_s < LITTLE_S:
            self._waits_s.append(wait_s)

    def longest_s(self) -> float:
        """Return the longest of the last waits: what a speech should hold when it begins."""
        return min(max(tuple(self._waits_s), default=0.0), MOST_S)
