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

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
from playhead.engine.profile import Profile
from playhead.engine.units import FRAME_S

LIVE, SPECULATIVE, OFFLINE = 0, 1, 2
OFFLINE_AHEAD_S = 0.64
"""Undecoded audio at which an offline request waits for the codec: bounds memory."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_count = np.count_nonzero  # of a few hundred rows in a quarter of the time that `any` takes


@dataclass(slots=True)
class Columns:
    """The requests as arrays [N], in order of arrival; one row a request that holds a slot.

    Nobody changes one once it is made; to enforce that costs more than to make it.
    """

    kind: Ints
    """LIVE, SPECULATIVE or OFFLINE."""
    arrival_s: Floats
    audible: Bools
    """Audible audio was published."""
    needs_prefill: Bools
    """Prompt rows are known and not yet run."""
    can_frame: Bools
    """The next frame can be made once the prompt was run: text row known, end not reached."""
    undecoded: Ints
    """Frames made that wait for the codec."""
    flying: Ints
    """Frames in flight: launched and not yet in hand, or in the codec and not yet published."""
    lands_s: Floats
    """Time until the newest frame in flight should be in hand; of no meaning where none flies."""
    slack_s: Floats
    """Published audio ahead of the listener: time to the soft deadline of the next sample."""
    bridge_s: Floats
    """From the soft to the hard deadline: what the receiver hides of a sender that withholds."""
    frozen: Bools
    """Playback stands still (no listener yet, or paused): slack does not fall with time."""
    prompt_rows: Ints
    """Prompt rows that the prefill has to run; 0 where all are stored."""

    all_live: bool = field(init=False)
    """Everybody has a listener: what is only for others can be left out."""
    starting: Bools = field(init=False)
    """Who waits for first audio."""
    heard: Bools = field(init=False)
    """Whose audio is listened to."""
    coming_s: Floats = field(init=False)
    """Audio made and not yet published."""
    ahead_s: Floats = field(init=False)
    """Audio ahead of the listener, what is not yet published included."""

    def __post_init__(self) -> None:
        """Work out what every plan asks for."""
        self.all_live = not _count(self.kind)
        live = self.kind == LIVE
        self.starting, self.heard = live > self.audible, live & self.audible
        self.coming_s = np.multiply(self.undecoded + self.flying, FRAME_S)
        self.ahead_s = self.slack_s + self.coming_s

    @property
    def playing(self) -> Bools:
        """Whose listener runs dry unless more is published."""
        found: Bools = (self.can_frame | (self.coming_s > 0.0)) & (self.heard > self.frozen)
        return found


class CodecRow(NamedTuple):
    """Decode the oldest `num_frames` undecoded frames of one request."""

    row: int
    num_frames: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to launch now, as rows of the columns, and the codec's frames of each of its rows."""

    prefill: tuple[int, ...]
    frame: tuple[int, ...]
    codec_rows: tuple[int, ...]
    codec_frames: tuple[int, ...]
    wake_s: float
    """When to look again, if idle."""

    @property
    def codec(self) -> tuple[CodecRow, ...]:
        """The codec's rows with their frames."""
        return tuple(map(CodecRow, self.codec_rows, self.codec_frames))

    @property
    def idle(self) -> bool:
        """Nothing to launch."""
        return not (self.prefill or self.frame or self.codec_rows)


NO_PLAN = Plan((), (), (), (), np.inf)
"""Of a moment at which nothing can be launched."""

Policy = Callable[[Columns, float, Profile, float, StepCosts], Plan]
"""What `schedule` is: other policies exist for comparison in the simulator."""


def schedule(
    columns: Columns, now_s: float, profile: Profile, margin_s: float, costs: StepCosts
) -> Plan:
    """Choose the next prefill, frame and codec batches.

    `margin_s` is the measured p99 of step + codec + publish: the guard is never below it. `costs`
    predict how long a batch keeps the others waiting. A row of `frame` whose prompt was not run
    is in `prefill` too: prompts run first.
    """
    guard_s = max(profile.guard_s, margin_s)
    low_s = max(profile.low_s, guard_s + margin_s)
    starting = columns.starting
    waiting = bool((starting & (columns.can_frame | (columns.coming_s > 0))).any())
    # What receivers can hide is spent only on somebody else's first audio.
    slack_s = columns.slack_s + columns.bridge_s if waiting else columns.slack_s
    prefill, needed_s, ready = _NO_ROWS, 0.0, columns.can_frame
    if _count(columns.needs_prefill):
        prefill, needed_s = _prefill_rows(columns, profile, margin_s, costs.prompt_row_s)
        ready = columns.can_frame & ~columns.needs_prefill
        ready[prefill] = columns.can_frame[prefill]
    frame = _frame_rows(columns, slack_s, ready, waiting, now_s, max(low_s, needed_s), profile)
    codec = _codec_rows(columns, slack_s, profile, max(guard_s, needed_s), waiting, costs)
    idle = not (len(prefill) or frame or codec[0])
    wake_s = _wake_s(columns, now_s, profile, low_s, guard_s) if idle else now_s
    return Plan(tuple(prefill.tolist()), frame, *codec, wake_s)


_NO_ROWS: Ints = np.zeros(0, np.int64)


def _prefill_rows(
    columns: Columns, profile: Profile, margin_s: float, prompt_row_s: float
) -> tuple[Ints, float]:
    """Choose whose prompts run now, and the slack others need before a long one may.

    Prompts run in order of arrival as long as no listener is made late by their sum.
    """
    rows = columns.needs_prefill.nonzero()[0][: profile.max_rows]
    costs_s = columns.prompt_rows[rows] * prompt_row_s
    if not costs_s.any():
        return rows, 0.0
    # Who needs the prompt that waits does not hold it up.
    playing = columns.playing & ~columns.needs_prefill
    least_s = float(columns.slack_s[playing].min(initial=np.inf))
    most_s = profile.target_s - FRAME_S
    needed_s = np.minimum(np.cumsum(costs_s) + margin_s, most_s)
    allowed = (needed_s <= least_s) | (costs_s == 0.0)
    return rows[allowed], 0.0 if allowed.all() else float(needed_s[~allowed][0])


def _frame_rows(
    columns: Columns,
    slack_s: Floats,
    ready: Bools,
    waiting: bool,
    now_s: float,
    low_s: float,
    profile: Profile,
) -> tuple[int, ...]:
    coming_s = columns.coming_s
    below = columns.ahead_s < profile.target_s
    ahead_s = slack_s + coming_s if waiting else columns.ahead_s
    begins = ready & columns.starting
    num_begin = 0
    if waiting:
        begins &= coming_s < profile.target_s
        num_begin = int(_count(begins))
    steady = ready & below
    steady &= columns.heard
    urgent = bool(_count(steady & (ahead_s < low_s)))
    if not urgent:
        # A chunk once begun is completed where it is needed soon; else it waits for others' steps.
        building = (steady & (coming_s > 0) & (slack_s < low_s)).nonzero()[0]
        if len(building):
            held_s = _held_frames(columns.slack_s[building], profile) * FRAME_S
            urgent = bool(_count(coming_s[building] < held_s))
    any_spare = False
    if not columns.all_live:
        spare = ready & (columns.kind != LIVE)
        spare &= np.where(columns.kind == OFFLINE, coming_s < OFFLINE_AHEAD_S, below)
        any_spare = bool(_count(spare))
    num_rows = profile.max_rows
    if num_begin or urgent:
        # Below low, all below target come along; beside starters, others fill the flat part only.
        num_full = num_begin + (int(_count(steady)) if urgent else 0)
        num_rows = min(num_rows, max(num_full, profile.flat_rows))
    elif not any_spare:
        return ()
    if not (num_begin or any_spare):  # the dry ones hold the least in any case
        rows = steady.nonzero()[0]
        return tuple(_least(rows, ahead_s[rows], num_rows).tolist())

    def classes() -> Iterable[tuple[Bools, Floats]]:
        in_budget = now_s - columns.arrival_s <= profile.first_audio_budget_s
        dry = ahead_s < low_s / 2
        yield begins & in_budget, columns.arrival_s
        yield steady & dry, ahead_s
        yield begins > in_budget, columns.arrival_s
        yield steady > dry, ahead_s
        if any_spare:
            yield spare & (columns.kind == SPECULATIVE), columns.arrival_s
            yield spare & (columns.kind == OFFLINE), columns.arrival_s

    return _first_rows(classes(), num_rows)


def _first_rows(classes: Iterable[tuple[Bools, Floats]], num_rows: int) -> tuple[int, ...]:
    """Return the first rows class by class: least key first, equal ones in order of arrival."""
    chosen: list[int] = []
    for members, key in classes:
        rows = members.nonzero()[0]
        chosen += _least(rows, key[rows], num_rows - len(chosen)).tolist()
        if len(chosen) >= num_rows:
            break
    return tuple(chosen)


def _least(rows: Ints, keys: Floats, num_rows: int) -> Ints:
    """Return the rows of the least keys in their order, equal ones as they came."""
    if len(rows) > 4 * num_rows:  # of so many a threshold costs less than to sort them
        near = keys <= np.partition(keys, num_rows - 1)[num_rows - 1]
        rows, keys = rows[near], keys[near]
    return rows[keys.argsort(kind="stable")[:num_rows]]


def _codec_rows(
    columns: Columns,
    slack_s: Floats,
    profile: Profile,
    guard_s: float,
    waiting: bool,
    costs: StepCosts,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """First audio at once; a live stream when its slack is short or its next chunk is complete.

    A chunk is never longer than the slack that is held, so chunks grow with the buffer and fall
    back to one frame after a stall; while somebody waits for first audio, others decode only
    what lifts them to the guard. `slack_s` counts what receivers may hide for those who wait.
    """
    rows = columns.undecoded.nonzero()[0]
    if not len(rows):
        return (), ()
    left_s, undecoded = columns.slack_s[rows], columns.undecoded[rows]
    first, needed = ~columns.audible[rows], left_s < guard_s
    offline = None if columns.all_live else columns.kind[rows] == OFFLINE
    if offline is not None:
        first, needed = first > offline, needed > offline
    any_first = bool(_count(first))
    chosen = first | needed
    needed &= ~first
    longest, held = profile.chunk_frames[-1], left_s / FRAME_S + 1e-9
    if not waiting:
        # A chunk is complete where slack does not cover the next longer one.
        longer = _longer_chunks(profile.chunk_frames)[np.minimum(undecoded, longest)]
        complete = held < longer
        if offline is not None:
            all_made = (undecoded >= longest) | ~columns.can_frame[rows]
            complete = np.where(offline, all_made, complete)
        chosen |= complete
    elif not (any_first or _pressing(columns, slack_s, rows[needed], costs)):
        return (), ()
    picked = chosen.nonzero()[0]
    if not len(picked):
        return (), ()
    key = left_s
    if any_first:
        key, held = np.where(first, -np.inf, key), np.where(first, 1.0, held)
    if offline is not None:
        key, held = np.where(offline, np.inf, key), np.where(offline, longest, held)
    picked = _least(picked, key[picked], profile.max_rows)
    rows, needed = rows[picked], needed[picked]
    size = np.floor(held[picked])
    if waiting:
        lift = np.maximum(np.ceil((guard_s - left_s[picked]) / FRAME_S), 1)
        size = np.where(needed, np.minimum(size, lift), size)
    sizes = _chunk(np.minimum(size, undecoded[picked]), profile)
    fits = _fitting(columns, slack_s, rows, sizes, needed, costs)
    if fits is not None:
        rows, sizes = rows[fits], sizes[fits]
    return tuple(rows.tolist()), tuple(sizes.tolist())


def _pressing(columns: Columns, slack_s: Floats, rows: Ints, costs: StepCosts) -> bool:
    """Return whether rows have to be decoded before the first frame of a starter has landed.

    A codec launch now would still be in flight then; a little later both go together.
    """
    coming = columns.starting & (columns.undecoded == 0) & (columns.flying > 0)
    if not (len(rows) and coming.any()):
        return True
    took_s = costs.codec_spread * costs.codec_s(len(rows) + 1)
    return float(slack_s[rows].min()) < max(float(columns.lands_s[coming].min()), 0.0) + took_s


def _fitting(
    columns: Columns, slack_s: Floats, rows: Ints, sizes: Ints, needed: Bools, costs: StepCosts
) -> Bools | None:
    """Return which rows of a codec launch go together (None: all): nobody runs dry meanwhile.

    A launch cannot be interrupted, so it has to be over before those who are `needed` in it run
    dry, and early enough that one frame each of the others, emptiest first, can still be decoded
    after it. Whoever is late whatever happens holds up nobody.
    """
    spread = costs.codec_spread
    fixed_s, frame_s = spread * costs.codec_fixed_s, spread * costs.codec_frame_s
    took_s = fixed_s * _count(np.bincount(sizes)) + frame_s * float(sizes.sum())
    due_s = np.where(slack_s >= fixed_s + frame_s, slack_s, np.inf)
    if took_s <= float(due_s[due_s.argmin()]) - fixed_s - frame_s * len(due_s):
        return None  # nobody runs dry, whether playing or not
    due_s = np.where(columns.playing, due_s, np.inf)
    own, own_s = rows[needed], np.inf
    if len(own):
        own_s = float(due_s[own].min())
        due_s[own] += FRAME_S * sizes[needed]
    if took_s <= min(own_s, float(due_s[due_s.argmin()]) - fixed_s - frame_s * len(due_s)):
        return None
    due_s.sort()
    limit_s = min(own_s, float((due_s - frame_s * np.arange(1, len(due_s) + 1)).min()) - fixed_s)
    # Those who are needed first, then the others, each in order of urgency.
    order = np.argsort(~needed, kind="stable")
    new_size = np.zeros(len(rows), np.bool_)
    new_size[np.unique(sizes[order], return_index=True)[1]] = True
    frames_s = frame_s * np.cumsum(sizes[order])
    fits = np.zeros(len(rows), np.bool_)
    fits[order] = frames_s + fixed_s * np.cumsum(new_size) <= limit_s
    # One that is needed goes in any case, and with it those that cost less than another launch.
    fits[order] |= needed[order] & (frames_s <= max(fixed_s, frames_s[0]))
    return fits


def _held_frames(slack_s: Floats, profile: Profile) -> Ints:
    """The longest chunk a listener's slack covers, one frame at least."""
    return _chunk(np.floor(slack_s / FRAME_S + 1e-9), profile)


def _chunk(frames: NDArray[Any], profile: Profile) -> Ints:
    """The largest chunk size not above a number of frames; the smallest if there is none."""
    sizes = _sizes(profile.chunk_frames)
    found: Ints = sizes[np.maximum(sizes.searchsorted(frames, side="right") - 1, 0)]
    return found


@lru_cache
def _sizes(chunk_frames: tuple[int, ...]) -> Ints:
    return np.array(chunk_frames)


@lru_cache
def _longer_chunks(chunk_frames: tuple[int, ...]) -> Floats:
    """The chunk size above each number of frames up to the longest; none of no frames at all."""
    sizes = np.array([*chunk_frames, np.inf])
    longer = sizes[sizes.searchsorted(np.arange(chunk_frames[-1] + 1), side="right")]
    longer[0] = -np.inf
    return longer


def _wake_s(
    columns: Columns, now_s: float, profile: Profile, low_s: float, guard_s: float
) -> float:
    """When the first stream's slack calls for a frame or a decode, if nothing else happens."""
    running = ~columns.frozen & (columns.kind != OFFLINE)
    waits_s = [np.inf]
    frames = running & columns.can_frame
    if frames.any():
        waits_s.append(float((columns.ahead_s[frames] - low_s).min()))
    decodes = running & (columns.undecoded > 0)
    if decodes.any():
        undecoded = np.minimum(columns.undecoded[decodes], profile.chunk_frames[-1])
        larger = _longer_chunks(profile.chunk_frames)[undecoded]
        due_s = columns.slack_s[decodes] - np.maximum(larger * FRAME_S, guard_s)
        waits_s.append(float(due_s.min()))
    return now_s + max(min(waits_s), 0.001)
