"""RequestTable: what the scheduler reads of every request, as arrays by slot; torch-free.

A request writes its own row when something of it changed; a step reads and writes whole batches
at once, so its cost hardly grows with the number of live requests. Codes wait here for the codec,
and rows of text that are already known wait for their frames.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from playhead.engine.messages import PlaybackSnapshot
from playhead.engine.request import Request
from playhead.engine.scheduler import LIVE, Columns
from playhead.engine.text.feed import NEVER, RUN_ROWS, Run
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
        self._by_slot: list[Request | None] = [None] * n
        self._order = np.zeros(n, np.intp)
        """Their slots; what is behind them is of no meaning."""
        # What the scheduler reads lies side by side: one gather for all of a type.
        self._ints = np.zeros((n, 5), np.int64)
        self._kind, self._prompt_rows, self._made, self._decoded, self._flying = self._ints.T
        self._times_s = np.zeros((n, 4))
        self._arrival_s, self._dry_s, self._bridge_s, self._lands_s = self._times_s.T
        self._flags = np.zeros((n, 4), np.bool_)
        self._audible, self._needs_prefill, self._can_frame, self._frozen = self._flags.T
        self._names = np.zeros(n, np.object_)
        self._held = np.zeros(n, np.bool_)
        """Slots that have a row."""
        self._starved, self._special, self._new = np.zeros((3, n), np.bool_)
        self._published, self._words_from = np.zeros((2, n), np.int64)
        self._codes = np.zeros((n * CODES_HELD, CODEBOOKS), np.int16)
        # Frames launched of the request, and the run of text that they take their rows from.
        self._frames, self._segment_start, self._run_start, self._run_end, self._tail = np.zeros(
            (5, n), np.int64
        )
        self._run_ids = np.zeros((n, RUN_ROWS), np.int32)
        self._may_end, self._more = np.zeros((2, n), np.bool_)

    def add(self, request: Request) -> None:
        """Give an admitted request its row."""
        slot = request.slot
        self.requests.append(request)
        self._by_slot[slot] = request
        self._order[len(self.requests) - 1] = slot
        self._held[slot], self._names[slot] = True, request.id
        self._made[slot] = self._decoded[slot] = self._published[slot] = 0
        self._bridge_s[slot] = 0.0
        self._dry_s[slot] = request.arrival_s
        self._frozen[slot] = False
        self._starved[slot] = self._special[slot] = self._audible[slot] = False
        self._new[slot] = True
        self._frames[slot] = self._segment_start[slot] = self._run_end[slot] = 0
        self._tail[slot] = NEVER
        self.update(request)

    def remove(self, request: Request) -> None:
        """Take a request out; its row is free once nothing of it flies."""
        row, end = int((self._slots() == request.slot).argmax()), len(self.requests)
        del self.requests[row]
        self._order[row : end - 1] = self._order[row + 1 : end]
        self._held[request.slot] = False

    def update(self, request: Request) -> None:
        """Write what a request knows of itself."""
        slot = request.slot
        self._kind[slot] = request.kind
        self._arrival_s[slot] = request.first_text_s or request.arrival_s
        self._needs_prefill[slot] = request.needs_prefill and request.prompt_known
        self._can_frame[slot] = request.can_frame
        self._prompt_rows[slot] = request.prompt_rows
        self._words_from[slot] = request.words_from

    def columns(self, now_s: float) -> Columns:
        """Lay all rows out for the scheduler, in the order of `requests`."""
        at = self._slots()
        kind, prompt_rows, made, decoded, flying = self._ints.take(at, 0).T
        arrival_s, dry_s, bridge_s, lands_s = self._times_s.take(at, 0).T
        audible, needs_prefill, can_frame, frozen = self._flags.take(at, 0).T
        stopped = np.count_nonzero(frozen) > 0
        return Columns(
            kind=kind,
            arrival_s=arrival_s,
            audible=audible,
            needs_prefill=needs_prefill,
            can_frame=can_frame,
            undecoded=made - decoded,
            flying=flying,
            lands_s=lands_s - now_s,
            slack_s=dry_s - (np.where(frozen, 0.0, now_s) if stopped else now_s),
            bridge_s=bridge_s,
            frozen=frozen,
            prompt_rows=prompt_rows,
        )

    def quiet(self) -> list[Request]:
        """Return requests with nothing in flight, nothing to decode and no frame to make."""
        idle = self._held > self._can_frame
        if not np.count_nonzero(idle):
            return []
        idle &= (self._made == self._decoded) & (self._flying == 0)
        return [self.requests[i] for i in idle[self._slots()].nonzero()[0].tolist()]

    def slots(self, rows: Sequence[int]) -> Slots:
        """Return the slots of rows of the columns."""
        return self._slots()[np.array(rows, np.intp)]

    def request(self, slot: int) -> Request:
        """Return who holds a slot, or held it last."""
        request = self._by_slot[slot]
        assert request is not None
        return request

    def _slots(self) -> Slots:
        return self._order[: len(self.requests)]

    # -- playback

    def played(self, by_slot: dict[int, PlaybackSnapshot]) -> None:
        """Take a snapshot of the playback of each of some slots.

        While playback stands still, `dry_s` holds how much audio is left instead of when it ends.
        """
        slots, snapshots = np.array([*by_slot], np.intp), by_slot.values()
        at_s = np.array([snapshot.at_s for snapshot in snapshots], np.float64)
        pushed = np.array([snapshot.pushed_samples for snapshot in snapshots])
        dry_s = np.array([snapshot.dry_at_s for snapshot in snapshots], np.float64)
        dry_s += (self._published[slots] - pushed) / SAMPLE_RATE_HZ
        states = [snapshot.state for snapshot in snapshots]
        frozen: Bools | bool = False
        if states.count("playing") < len(states):
            frozen = np.array([state != "playing" for state in states])
        # Who ran dry before it was looked at: the next sample is late since then.
        unseen = dry_s <= at_s
        if np.count_nonzero(unseen):
            unseen &= self._audible[slots] > self._starved[slots]
            unseen &= ~(frozen | self._frozen[slots])
            dry_s = np.where(unseen, np.minimum(dry_s, self._dry_s[slots]), dry_s)
        self._dry_s[slots] = dry_s if frozen is False else dry_s - at_s * frozen
        self._bridge_s[slots] = [snapshot.bridge_s for snapshot in snapshots]
        self._frozen[slots] = frozen

    def published(self, slots: Slots, num_samples: int | NDArray[np.int64], now_s: float) -> None:
        """Count published samples: a listener that ran dry plays from the first of them on."""
        dry_s, frozen = self._dry_s[slots], self._frozen[slots]
        from_s = np.maximum(dry_s, now_s)
        if np.count_nonzero(frozen):
            from_s = np.where(frozen, dry_s, from_s)
        self._dry_s[slots] = from_s + num_samples / SAMPLE_RATE_HZ
        self._published[slots] += num_samples
        self._audible[slots] = True
        self._starved[slots] = False

    def num_published(self, slot: int) -> int:
        """Return how many samples of a slot were published."""
        return int(self._published[slot])

    def names(self, slots: Slots) -> list[str]:
        """Return the ids of the requests that hold slots, or held them last."""
        names: list[str] = self._names[slots].tolist()
        return names

    def starts(self, slots: Slots) -> list[int]:
        """Return the number of each slot's next sample."""
        starts: list[int] = self._published[slots].tolist()
        return starts

    def speaking(self, slots: Slots) -> Bools:
        """Return whose next samples go out as they are: its silence is over."""
        return self._held[slots] & self._audible[slots]

    def words_wait(self, slots: Slots) -> Bools:
        """Return for whose next samples words wait."""
        return self._frames[slots] >= self._words_from[slots]

    def await_words(self, slots: Slots | int, words_from: list[int] | int) -> None:
        """Write when the next words wait (`Request.words_from`): those so far are out."""
        self._words_from[slots] = words_from

    def starve(self, slot: int) -> None:
        """All text of a request so far is spoken: the next sample has no deadline."""
        self._starved[slot] = True

    def starved(self, slot: int) -> bool:
        """Return whether that is so, and no sample came since."""
        return bool(self._starved[slot])

    def left_s(self, slots: Slots, now_s: float) -> Floats:
        """Return the audio that the live listener of each slot still holds; below 0 its next
        sample is late, inf: it has no deadline."""
        due = self._audible[slots] > (self._starved[slots] | self._frozen[slots])
        due &= self._kind[slots] == LIVE
        return np.where(due, self._dry_s[slots] - now_s, np.inf)

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

    # -- rows of text

    def frames(self, slots: Slots) -> list[int]:
        """Return how many frames of each request were launched."""
        frames: list[int] = self._frames[slots].tolist()
        return frames

    def position(self, slot: int) -> tuple[int, int]:
        """Return how many frames of the request were launched, and of its segment."""
        frames = int(self._frames[slot])
        return frames, frames - int(self._segment_start[slot])

    def end_segment(self, slot: int) -> None:
        """Nothing of a segment is left for a guard to end."""
        self._tail[slot] = NEVER

    def begin_segment(self, slot: int) -> None:
        """Count the segment's frames from here."""
        self._segment_start[slot] = self._frames[slot]

    def begin_run(self, slot: int, run: Run, more: bool) -> None:
        """Let the next frames take their rows from a run; `more`: another one can follow it."""
        start = self._run_start[slot] = self._frames[slot]
        self._run_end[slot] = start + run.num_frames
        self._run_ids[slot] = run.ids + run.ids[-1:] * (RUN_ROWS - len(run.ids))
        self._may_end[slot], self._more[slot], self._tail[slot] = run.may_end, more, run.tail

    def end_run(self, slot: int) -> int:
        """Use no more of a run; return how many of its frames were not launched."""
        left = int(self._run_end[slot] - self._frames[slot])
        self._run_end[slot] = 0
        return max(left, 0)

    def without_run(self, slots: Slots) -> Bools:
        """Return whose run is used up."""
        return self._frames[slots] >= self._run_end[slots]

    def next_rows(self, slots: Slots) -> tuple[list[int], list[bool]]:
        """Launch the next frame of each slot: return text ids, and whether it may be the end."""
        frames = self._frames[slots]
        which = np.minimum(frames - self._run_start[slots], RUN_ROWS - 1)
        ids = self._run_ids[slots, which]
        frames += 1
        self._frames[slots] = frames
        self._can_frame[slots] = (frames < self._run_end[slots]) | self._more[slots]
        return ids.tolist(), self._may_end[slots].tolist()

    def count_frames(self, slot: int, num_frames: int) -> None:
        """Count frames of a recording, or take back (-) those at the end of a segment or behind."""
        self._frames[slot] += num_frames

    def in_tail(self, slots: Slots) -> Bools:
        """Return for whom a guard may find that its segment is over (`Run.tail`)."""
        return self._frames[slots] >= self._tail[slots]

    # -- frames on their way: their landing

    def mark(self, request: Request, special: bool) -> None:
        """Have the next landing of a request looked at by itself, or no longer."""
        self._special[request.slot] = special

    def special(self, slots: Slots) -> Bools:
        """Return whose landing has to be looked at."""
        return self._special[slots]

    def store(self, slots: Slots, codes: NDArray[np.int16]) -> None:
        """Keep one new frame of codes [B, 16] for each slot until the codec takes it."""
        made = self._made[slots]
        self._codes[slots * CODES_HELD + made % CODES_HELD] = codes
        self._made[slots] = made + 1

    def take(self, slots: Slots, num_frames: int) -> NDArray[np.int16]:
        """Remove the oldest `num_frames` frames of each slot; return codes [B, n, 16]."""
        decoded = self._decoded[slots]
        self._decoded[slots] = decoded + num_frames
        which = (decoded[:, None] + np.arange(num_frames)) % CODES_HELD
        which += (slots * CODES_HELD)[:, None]
        return self._codes.take(which, 0)

    def new_to_codec(self, slots: Slots) -> list[int]:
        """Return slots that were never decoded before; counts them as known."""
        new = slots[self._new[slots]]
        self._new[new] = False
        found: list[int] = new.tolist()
        return found

    def busy(self, slot: int) -> bool:
        """Return whether some frame of a slot is in flight or waits for the codec."""
        return bool(self._flying[slot] or self._made[slot] != self._decoded[slot])

    def flying(self, slot: int) -> int:
        """Return how many frames of a slot are in flight."""
        return int(self._flying[slot])


assert CODES_HELD * FRAME_S > 4.0
