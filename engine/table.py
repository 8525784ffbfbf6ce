"""RequestTable: what the scheduler reads of every request, as arrays by slot; torch-free.

A request writes its own row when something of it changed; a step reads and writes whole batches
at once, so its cost hardly grows with the number of live requests. Codes wait here for the codec.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from playhead.engine.messages import PlaybackSnapshot
from playhead.engine.request import Request
from playhead.engine.scheduler import LIVE, Columns
from playhead.engine.units import CODEBOOKS, FRAME_S, SAMPLE_RATE_HZ

CODES_HELD = 64
"""Frames of one request that may wait for the codec: above any target."""

Slots = NDArray[np.intp]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class RequestTable:
    """Rows of the requests that hold a slot; engine thread only."""

    def __init__(self, max_streams: int) -> None:
        """Reserve a row for each slot 1..max_streams."""
        n = max_streams + 1
        self.requests: list[Request] = []
        """In order of arrival, one for each row of `columns`."""
        self._order: Slots | None = None
        self._kind, self._prompt_rows, self._made, self._decoded, self._flying = np.zeros(
            (5, n), np.int64
        )
        self._arrival_s, self._dry_s, self._bridge_s, self._lands_s = np.zeros((4, n))
        self._audible, self._needs_prefill, self._can_frame = np.zeros((3, n), np.bool_)
        self._held = np.zeros(n, np.bool_)
        """Slots that have a row."""
        self._frozen, self._starved, self._special = np.zeros((3, n), np.bool_)
        self._codes = np.zeros((n, CODES_HELD, CODEBOOKS), np.int16)

    def add(self, request: Request) -> None:
        """Give an admitted request its row."""
        slot = request.slot
        self.requests.append(request)
        self._order = None
        self._held[slot] = True
        self._made[slot] = self._decoded[slot] = 0
        self._bridge_s[slot] = 0.0
        self._dry_s[slot] = request.arrival_s
        self._frozen[slot] = False
        self._starved[slot] = self._special[slot] = self._audible[slot] = False
        self.update(request)

    def remove(self, request: Request) -> None:
        """Take a request out; its row is free once nothing of it flies."""
        self.requests.remove(request)
        self._order = None
        self._held[request.slot] = False

    def update(self, request: Request) -> None:
        """Write what a request knows of itself."""
        slot = request.slot
        self._kind[slot] = request.kind
        self._arrival_s[slot] = request.first_text_s or request.arrival_s
        self._needs_prefill[slot] = request.needs_prefill and request.prompt_known
        self._can_frame[slot] = request.can_frame
        self._prompt_rows[slot] = request.prompt_rows

    def columns(self, now_s: float) -> Columns:
        """Lay all rows out for the scheduler, in the order of `requests`."""
        at = self._slots()
        frozen = self._frozen[at]
        stopped = bool(frozen.any())
        return Columns(
            kind=self._kind[at],
            arrival_s=self._arrival_s[at],
            audible=self._audible[at],
            needs_prefill=self._needs_prefill[at],
            can_frame=self._can_frame[at],
            undecoded=self._made[at] - self._decoded[at],
            flying=self._flying[at],
            lands_s=self._lands_s[at] - now_s,
            slack_s=self._dry_s[at] - (np.where(frozen, 0.0, now_s) if stopped else now_s),
            bridge_s=self._bridge_s[at],
            frozen=frozen,
            prompt_rows=self._prompt_rows[at],
        )

    def quiet(self) -> list[Request]:
        """Return requests with nothing in flight, nothing to decode and no frame to make."""
        idle = (self._made == self._decoded) & (self._flying == 0)
        idle &= self._held > self._can_frame
        if not idle.any():
            return []
        return [self.requests[i] for i in idle[self._slots()].nonzero()[0].tolist()]

    def _slots(self) -> Slots:
        if self._order is None:
            self._order = np.array([r.slot for r in self.requests], np.intp)
        return self._order

    # -- playback

    def played(self, requests: Sequence[Request], snapshots: Sequence[PlaybackSnapshot]) -> None:
        """Take a snapshot of the playback of each of some different requests.

        While playback stands still, `dry_s` holds how much audio is left instead of when it ends.
        """
        slots = np.array([request.slot for request in requests], np.intp)
        at_s = np.array([snapshot.at_s for snapshot in snapshots], np.float64)
        frozen = np.array([snapshot.state != "playing" for snapshot in snapshots])
        published = np.array([request.published_samples for request in requests])
        pushed = np.array([snapshot.pushed_samples for snapshot in snapshots])
        dry_s = np.array([snapshot.dry_at_s for snapshot in snapshots], np.float64)
        dry_s += (published - pushed) / SAMPLE_RATE_HZ
        # Who ran dry before it was looked at: the next sample is late since then.
        unseen = (dry_s <= at_s) & (self._audible[slots] > self._starved[slots])
        if unseen.any():
            unseen &= ~(frozen | self._frozen[slots])
            dry_s = np.where(unseen, np.minimum(dry_s, self._dry_s[slots]), dry_s)
        self._dry_s[slots] = dry_s - at_s * frozen if frozen.any() else dry_s
        self._bridge_s[slots] = [snapshot.bridge_s for snapshot in snapshots]
        self._frozen[slots] = frozen

    def published(self, slots: Slots, num_samples: NDArray[np.int64], now_s: float) -> None:
        """Count published samples: a listener that ran dry plays from the first of them on."""
        dry_s = self._dry_s[slots]
        dry_s = np.where(self._frozen[slots], dry_s, np.maximum(dry_s, now_s))
        self._dry_s[slots] = dry_s + num_samples / SAMPLE_RATE_HZ
        self._audible[slots] = True
        self._starved[slots] = False

    def starve(self, slot: int) -> None:
        """All text of a request so far is spoken: the next sample has no deadline."""
        self._starved[slot] = True

    def lateness(self, slots: Slots, now_s: float) -> tuple[Floats, float]:
        """Return by how much the next sample of each slot is late (0: no deadline, or in time),
        and the least audio a live listener of them still holds (inf: none counts)."""
        due = self._audible[slots] > (self._starved[slots] | self._frozen[slots])
        left_s = np.where(due, self._dry_s[slots] - now_s, np.inf)
        least_s = left_s[self._kind[slots] == LIVE].min(initial=np.inf)
        return np.maximum(-left_s, 0.0), float(least_s)

    def slack_s(self, slot: int, now_s: float) -> float:
        """Return the time to the soft deadline of the next sample."""
        return float(self._dry_s[slot]) - (0.0 if self._frozen[slot] else now_s)

    # -- frames on their way

    def launched(self, slots: Slots, num_frames: int, due_s: float) -> None:
        """Count frames in flight: not yet in hand, or in the codec and not yet published."""
        self._flying[slots] += num_frames
        self._lands_s[slots] = due_s

    def landed(self, slots: Slots, num_frames: int) -> None:
        """Count them back."""
        self._flying[slots] -= num_frames

    def set_can_frame(self, slots: Slots, can_frame: Sequence[bool]) -> None:
        """Write who can make a frame after the one just launched."""
        self._can_frame[slots] = can_frame

    def mark(self, request: Request, special: bool) -> None:
        """Have the next landing of a request looked at by itself, or no longer."""
        self._special[request.slot] = special

    def special(self, slots: Slots) -> Bools:
        """Return whose landing has to be looked at."""
        return self._special[slots]

    def store(self, slots: Slots, codes: NDArray[np.int16]) -> None:
        """Keep one new frame of codes [B, 16] for each slot until the codec takes it."""
        self._codes[slots, self._made[slots] % CODES_HELD] = codes
        self._made[slots] += 1

    def take(self, slots: Slots, num_frames: int) -> NDArray[np.int16]:
        """Remove the oldest `num_frames` frames of each slot; return codes [B, n, 16]."""
        which = self._decoded[slots][:, None] + np.arange(num_frames)
        self._decoded[slots] += num_frames
        codes: NDArray[np.int16] = self._codes[slots[:, None], which % CODES_HELD]
        return codes

    def busy(self, slot: int) -> bool:
        """Return whether some frame of a slot is in flight or waits for the codec."""
        return bool(self._flying[slot] or self._made[slot] != self._decoded[slot])

    def flying(self, slot: int) -> int:
        """Return how many frames of a slot are in flight."""
        return int(self._flying[slot])


assert CODES_HELD * FRAME_S > 4.0
