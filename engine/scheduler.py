"""schedule(columns, now) -> Plan: who gets the next step; pure numpy, no clock of its own.

A batch costs about the same for one row or many, so the rule is: wait as long as slack allows,
then serve everyone it pays to serve. The same code runs in the engine and in the simulator.

Classes, first to last, when rows run short:
  0  no audible audio yet, within its budget: oldest first
  1  about to run dry: least audio ahead first
  2  no audible audio yet, past its budget: oldest first
  3  other live streams below target: least audio ahead first
  4  speculative (turn not confirmed), 5 offline: oldest first, spare rows only
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from playhead.engine.profile import Profile
from playhead.engine.units import FRAME_S

LIVE, SPECULATIVE, OFFLINE = 0, 1, 2
OFFLINE_AHEAD_S = 0.64
"""Undecoded audio at which an offline request waits for the codec: bounds memory."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Columns:
    """The requests as arrays [N], in order of arrival; one row a request that holds a slot."""

    kind: Ints
    """LIVE, SPECULATIVE or OFFLINE."""
    arrival_s: Floats
    audible: Bools
    """Audible audio was published."""
    needs_prefill: Bools
    """Prompt rows are known and not yet run."""
    can_frame: Bools
    """The next frame can be made: prompt run, next text row known, end not reached."""
    undecoded: Ints
    """Frames made and not yet through the codec."""
    slack_s: Floats
    """Published audio ahead of the listener: time to the soft deadline of the next sample."""
    frozen: Bools
    """Playback stands still (no listener yet, or paused): slack does not fall with time."""

    @property
    def ahead_s(self) -> Floats:
        """Audio ahead of the listener, frames waiting for the codec included."""
        return self.slack_s + self.undecoded * FRAME_S


@dataclass(frozen=True, slots=True)
class CodecRow:
    """Decode the oldest `num_frames` undecoded frames of one request."""

    row: int
    num_frames: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to launch now, as row numbers of the columns; `wake_s`: when to look again if idle."""

    prefill: tuple[int, ...]
    frame: tuple[int, ...]
    codec: tuple[CodecRow, ...]
    wake_s: float

    @property
    def idle(self) -> bool:
        """Nothing to launch."""
        return not (self.prefill or self.frame or self.codec)


def schedule(columns: Columns, now_s: float, profile: Profile, margin_s: float) -> Plan:
    """Choose the next prefill, frame and codec batches.

    `margin_s` is the measured p99 of step + codec + publish: the guard is never below it.
    """
    guard_s = max(profile.guard_s, margin_s)
    low_s = max(profile.low_s, guard_s + margin_s)
    starting = (columns.kind == LIVE) & ~columns.audible
    frame = _frame_rows(columns, now_s, profile, low_s, starting)
    prefill = tuple(int(i) for i in np.flatnonzero(columns.needs_prefill)[: profile.max_rows])
    codec = _codec_rows(columns, profile, guard_s, starting)
    idle = not (prefill or frame or codec)
    wake_s = _wake_s(columns, now_s, low_s, guard_s) if idle else now_s
    return Plan(prefill, frame, codec, wake_s)


def _frame_rows(
    columns: Columns, now_s: float, profile: Profile, low_s: float, starting: Bools
) -> tuple[int, ...]:
    ahead_s = columns.ahead_s
    live = columns.can_frame & (columns.kind == LIVE)
    steady = live & ~starting & (ahead_s < profile.target_s)
    begins = live & starting & (columns.undecoded * FRAME_S < profile.target_s)
    building = (columns.undecoded > 0) & (columns.undecoded < _held_frames(columns, profile))
    urgent = steady & ((ahead_s < low_s) | building)  # a chunk once begun is completed
    spare = columns.can_frame & (columns.kind != LIVE)
    spare &= np.where(columns.kind == OFFLINE, columns.undecoded * FRAME_S, ahead_s) < np.where(
        columns.kind == OFFLINE, OFFLINE_AHEAD_S, profile.target_s
    )
    must_run = bool(begins.any() or urgent.any())
    if not must_run and not spare.any():
        return ()
    in_budget = now_s - columns.arrival_s <= profile.first_audio_budget_s
    rank = np.full(len(ahead_s), 9)
    rank[steady] = 3
    rank[steady & (ahead_s < low_s / 2)] = 1
    rank[begins] = np.where(in_budget[begins], 0, 2)
    rank[spare] = np.where(columns.kind[spare] == SPECULATIVE, 4, 5)
    key = np.where((rank == 1) | (rank == 3), ahead_s, columns.arrival_s)
    chosen = np.lexsort((key, rank))[: int((rank < 9).sum())]
    must = begins | urgent
    rows: list[int] = []
    for i in chosen.tolist():
        rides_free = len(rows) < profile.flat_rows
        fills = bool(urgent.any()) and rank[i] == 3
        if len(rows) < profile.max_rows and (must[i] or rides_free or fills or not must_run):
            rows.append(i)
    return tuple(rows)


def _codec_rows(
    columns: Columns, profile: Profile, guard_s: float, starting: Bools
) -> tuple[CodecRow, ...]:
    """First audio at once; a live stream when its slack is short or its next chunk is complete.

    A chunk is never longer than the slack that is held, so chunks grow with the buffer and fall
    back to one frame after a stall; while somebody waits for first audio, others decode only
    what lifts them to the guard.
    """
    slack_s = columns.slack_s
    held_frames = _held_frames(columns, profile)
    waiting = bool((starting & (columns.can_frame | (columns.undecoded > 0))).any())
    rows: list[tuple[float, CodecRow]] = []
    for i in np.flatnonzero(columns.undecoded > 0).tolist():
        held = int(held_frames[i])
        available = int(columns.undecoded[i])
        if columns.kind[i] == OFFLINE:
            size = min(available, profile.max_chunk_frames)
            if waiting or (columns.can_frame[i] and available < profile.max_chunk_frames):
                continue
            rows.append((np.inf, CodecRow(i, size)))
        elif not columns.audible[i]:
            rows.append((-np.inf, CodecRow(i, min(available, 1))))
        elif slack_s[i] < guard_s:
            lift = int(np.ceil((guard_s - slack_s[i]) / FRAME_S))
            size = min(held, max(lift, 1)) if waiting else held
            rows.append((float(slack_s[i]), CodecRow(i, min(available, size))))
        elif not waiting and available >= held:
            rows.append((float(slack_s[i]), CodecRow(i, held)))
    rows.sort(key=lambda entry: entry[0])
    return tuple(row for _, row in rows[: profile.max_rows])


def _held_frames(columns: Columns, profile: Profile) -> Ints:
    """The longest chunk a listener's slack covers: 1 to max_chunk_frames."""
    held: Ints = np.clip(columns.slack_s / FRAME_S, 1, profile.max_chunk_frames).astype(np.int64)
    return held


def _wake_s(columns: Columns, now_s: float, low_s: float, guard_s: float) -> float:
    """When the first stream's slack calls for a frame or a decode, if nothing else happens."""
    running = ~columns.frozen & (columns.kind != OFFLINE)
    waits_s = [np.inf]
    frames = running & columns.can_frame
    if frames.any():
        waits_s.append(float((columns.ahead_s[frames] - low_s).min()))
    decodes = running & (columns.undecoded > 0)
    if decodes.any():
        complete_s = (columns.undecoded[decodes] + 1) * FRAME_S
        due_s = columns.slack_s[decodes] - np.maximum(complete_s, guard_s)
        waits_s.append(float(due_s.min()))
    return now_s + max(min(waits_s), 0.001)
