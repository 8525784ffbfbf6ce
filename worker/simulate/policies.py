"""Policies for comparison, each of the shape of the engine's own `schedule`.

ours            schedule(): hold-back, chunks by slack
no_margin       ours, but what receivers can hide is never spent
greedy          every stream in every step, decoded at once
static_chunks   ours, but codec chunks from a fixed table
deadline_aware  a published policy: one stage at a time, startup first, a table of chunks
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from playhead.engine.admission import StepCosts
from playhead.engine.profile import Profile
from playhead.engine.replay_runner import ReplayRunner
from playhead.engine.scheduler import Bools, CodecRow, Columns, Ints, Plan, Policy, schedule

CHUNK_TABLE = (1, 2, 4, 8, 12)
"""Frames of the first, second, ... chunk; the last repeats."""
MOST_UNDECODED = 48
"""The engine keeps room for 64 undecoded frames of a stream."""
LOOK_S = 0.001
"""When a table that waits for frames looks again."""
CODEC_RESERVE_S = 0.025
PRESSING_LEAD_S = 1.0
COHORT_ROWS = 64
"""Of the published policy: the reserve of its incremental codec, its lead, its rows in flight."""
PREFILL, FRAME, CODEC = 0, 1, 2


def no_margin(
    columns: Columns, now_s: float, profile: Profile, margin_s: float, costs: StepCosts
) -> Plan:
    """Schedule as the engine does, as if receivers could hide nothing."""
    bare = replace(columns, bridge_s=np.zeros_like(columns.bridge_s))
    return schedule(bare, now_s, profile, margin_s, costs)


def greedy(
    columns: Columns, now_s: float, profile: Profile, margin_s: float, costs: StepCosts
) -> Plan:
    """Step every stream that can be stepped, those without audio first; decode what there is."""
    prefill = np.flatnonzero(columns.needs_prefill)[: profile.max_rows]
    ready = _ready(columns, prefill) & (columns.undecoded < MOST_UNDECODED)
    rows = np.flatnonzero(ready)
    rows = rows[np.lexsort((columns.slack_s[rows], columns.audible[rows]))][: profile.max_rows]
    waiting = np.flatnonzero(columns.undecoded > 0)
    waiting = waiting[np.lexsort((columns.slack_s[waiting], columns.audible[waiting]))]
    codec = waiting[: profile.max_rows]
    sizes = np.minimum(columns.undecoded[codec], profile.chunk_frames[-1])
    return Plan(
        tuple(prefill.tolist()), tuple(rows.tolist()), tuple(codec.tolist()), tuple(sizes.tolist()),
        float("inf"),
    )  # fmt: skip


def _ready(columns: Columns, prefill: Ints) -> Bools:
    ready = columns.can_frame & ~columns.needs_prefill
    ready[prefill] = columns.can_frame[prefill]
    return ready


class _Chunks:
    """Which chunk of the table each stream is at; a stream is known by its moment of arrival."""

    def __init__(self, runner: ReplayRunner) -> None:
        self._runner = runner
        self._taken: dict[float, int] = {}

    def due(self, columns: Columns) -> list[CodecRow]:
        """Return streams whose next chunk is complete, or whose speech is; none while one flies."""
        rows: list[CodecRow] = []
        if not self._runner.codec_free:
            return rows
        for i in np.flatnonzero(columns.undecoded > 0).tolist():
            index = self._taken.get(float(columns.arrival_s[i]), 0)
            size = CHUNK_TABLE[min(index, len(CHUNK_TABLE) - 1)]
            ended = not columns.can_frame[i] and columns.flying[i] == 0
            if columns.undecoded[i] >= size or ended:
                rows.append(CodecRow(i, int(min(columns.undecoded[i], size))))
        return rows

    def take(self, columns: Columns, rows: list[CodecRow]) -> None:
        """Count chunks that are launched now."""
        for row in rows:
            arrival_s = float(columns.arrival_s[row.row])
            self._taken[arrival_s] = self._taken.get(arrival_s, 0) + 1


class StaticChunks:
    """The engine's policy with codec chunks from a table that knows no slack."""

    def __init__(self, runner: ReplayRunner) -> None:
        """Start with no stream."""
        self._chunks = _Chunks(runner)

    def __call__(
        self, columns: Columns, now_s: float, profile: Profile, margin_s: float, costs: StepCosts
    ) -> Plan:
        """Plan frames as the engine does, the codec by the table."""
        plan = schedule(columns, now_s, profile, margin_s, costs)
        rows = self._chunks.due(columns)[: profile.max_rows]
        self._chunks.take(columns, rows)
        # The engine's policy would have decoded where the table waits for frames.
        wake_s = max(plan.wake_s, now_s + LOOK_S)
        return Plan(plan.prefill, plan.frame, *_columns(rows), wake_s)


class DeadlineAware:
    """One stage at a time for every row that is ready for it (facts of the published engine).

    Urgent codec work first, then whatever a stream without audio needs (codec, prefill, frame),
    then the stage of the smallest deadline within the lead, else the stage served longest ago.
    Nothing waits to form a larger batch, and no stream is held back.
    """

    def __init__(self, runner: ReplayRunner) -> None:
        """Start with no stream."""
        self._chunks = _Chunks(runner)
        self._served_s = [0.0, 0.0, 0.0]

    def __call__(
        self, columns: Columns, now_s: float, profile: Profile, margin_s: float, costs: StepCosts
    ) -> Plan:
        """Choose the stage, then every row of it."""
        codec = self._chunks.due(columns)
        frames = columns.can_frame & ~columns.needs_prefill & (columns.undecoded < MOST_UNDECODED)
        work = (columns.needs_prefill & columns.can_frame, frames, _mask(codec, len(frames)))
        stage = self._stage(columns, work)
        if stage is None:
            return Plan((), (), (), (), float("inf"))
        self._served_s[stage] = now_s
        rows = np.flatnonzero(work[stage])
        order = np.lexsort((columns.slack_s[rows], columns.audible[rows]))
        chosen = rows[order][: min(profile.max_rows, COHORT_ROWS)].tolist()
        if stage == PREFILL:
            return Plan(tuple(chosen), (), (), (), now_s)
        if stage == FRAME:
            return Plan((), tuple(chosen), (), (), now_s)
        sizes = {row.row: row for row in codec}
        lead = sizes[chosen[0]].num_frames
        same = [sizes[i] for i in chosen if sizes[i].num_frames == lead]
        self._chunks.take(columns, same)
        return Plan((), (), *_columns(same), now_s)

    def _stage(self, columns: Columns, work: tuple[Bools, ...]) -> int | None:
        live = [stage for stage in (PREFILL, FRAME, CODEC) if work[stage].any()]
        if not live:
            return None
        if (work[CODEC] & columns.audible & (columns.slack_s <= CODEC_RESERVE_S)).any():
            return CODEC
        starting = [s for s in (CODEC, PREFILL, FRAME) if (work[s] & ~columns.audible).any()]
        if starting:
            return starting[0]
        least = {s: float(columns.slack_s[work[s]].min()) for s in live}
        pressing = [s for s in live if least[s] <= PRESSING_LEAD_S]
        if pressing:
            return min(pressing, key=lambda s: (least[s], s))
        return min(live, key=lambda s: (self._served_s[s], s))


def _columns(rows: list[CodecRow]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the rows and their frames, as a plan has them."""
    return tuple(row.row for row in rows), tuple(row.num_frames for row in rows)


def _mask(rows: list[CodecRow], count: int) -> Bools:
    mask = np.zeros(count, np.bool_)
    mask[[row.row for row in rows]] = True
    return mask


POLICIES: dict[str, Callable[[ReplayRunner], Policy]] = {
    "ours": lambda runner: schedule,
    "no_margin": lambda runner: no_margin,
    "greedy": lambda runner: greedy,
    "static_chunks": StaticChunks,
    "deadline_aware": DeadlineAware,
}
"""Name to what makes a policy for one engine; some keep state."""
SERIAL = ("deadline_aware",)
"""Policies of engines with one stream: frame and codec share the device's time."""
