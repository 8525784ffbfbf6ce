"""What a listener without any buffer would hear of each request, and how a whole load is counted.

Pure: chunk times in, figures out. Every planned request is in exactly one of `done`, `refused`,
`failed`, `short` or `lost`; percentiles are nearest rank over all planned requests of the window,
one that brought no audio counting as infinitely late.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from playhead.engine.units import FRAME_SAMPLES, SAMPLE_RATE_HZ, samples_to_s
from playhead.worker.bench.plan import Planned

State = Literal["done", "hung_up", "refused", "failed", "lost"]

MS = 1000.0


@dataclass(slots=True)
class Outcome:
    """What became of one request, on the clock of the process that asked."""

    number: int
    state: State = "lost"
    late_s: float = 0.0
    """How much later than planned it was sent: a tired load generator."""
    sent_s: float = 0.0
    chunks: list[tuple[float, int]] = field(default_factory=list)
    """(when it came, samples)"""
    ended_s: float = 0.0
    error: str = ""

    @property
    def num_samples(self) -> int:
        """Samples that came."""
        return sum(count for _, count in self.chunks)

    @property
    def first_pcm_s(self) -> float:
        """From the first byte of the request to the first sample; infinite without one."""
        return self.chunks[0][0] - self.sent_s if self.chunks else math.inf


@dataclass(frozen=True, slots=True)
class Played:
    """A zero-buffer player: it begins with the first chunk and stands still when it is dry."""

    gaps: int
    gap_s: float
    longest_s: float
    unheard_s: float
    """Audio that had come and not been played when the listener hung up."""


def play(outcome: Outcome) -> Played:
    """Play one request; the media clock is re-anchored after each gap."""
    gaps, gap_s, longest_s, dry_s = 0, 0.0, 0.0, -math.inf
    for at_s, count in outcome.chunks:
        if dry_s > -math.inf and at_s > dry_s:
            gaps, gap_s = gaps + 1, gap_s + at_s - dry_s
            longest_s = max(longest_s, at_s - dry_s)
        dry_s = max(dry_s, at_s) + samples_to_s(count)
    left_s = max(dry_s - outcome.ended_s, 0.0) if outcome.state == "hung_up" else 0.0
    return Played(gaps, gap_s, longest_s, left_s)


def nearest_rank(values: Iterable[float], share: float) -> float:
    """Return the nearest-rank percentile (0 < share <= 1); infinite for no values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else math.inf


@dataclass(frozen=True, slots=True)
class Account:
    """One load, counted. Counts cover warm-up and window, percentiles the window alone."""

    planned: int
    done: int
    refused: int
    failed: int
    short: int
    """Ended without error and with fewer samples than a request of the plan has."""
    lost: int
    """Planned and never told of again."""
    first_pcm_s: tuple[float, ...]
    """Of every planned request of the window, infinite where none came."""
    gaps: int
    gap_s: float
    gapped: int
    """Requests with a gap, however short."""
    gapped_5ms: int
    """Requests with a gap of more than 5 ms."""
    unheard_s: float
    hung_up: int
    audio_s: float
    """Audio that came for all requests, per second of `span_s` the throughput."""
    span_s: float
    most_live: int
    """Most streams between their first sample and their end at one moment."""
    late_p99_s: float
    errors: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Nothing was lost, failed, cut short or refused, and no player ran dry."""
        bad = self.lost + self.failed + self.short + self.refused + self.gaps
        return bad == 0 and self.planned > 0


def account(plans: Sequence[Planned], outcomes: Iterable[Outcome], least_frames: int) -> Account:
    """Count the outcomes of a plan; `least_frames` is the fewest frames of a whole answer."""
    by_number = {outcome.number: outcome for outcome in outcomes}
    found = [by_number.get(each.number, Outcome(each.number)) for each in plans]
    measured = {each.number for each in plans if each.measured}
    states = [outcome.state for outcome in found]
    short = [o for o in found if o.state == "done" and o.num_samples < least_frames * FRAME_SAMPLES]
    played = [play(outcome) for outcome in found]
    chunk_times = [at_s for o in found for at_s, _ in o.chunks]
    span_s = max(chunk_times) - min(chunk_times) if chunk_times else 0.0
    return Account(
        planned=len(found),
        done=states.count("done") + states.count("hung_up") - len(short),
        refused=states.count("refused"),
        failed=states.count("failed"),
        short=len(short),
        lost=states.count("lost"),
        first_pcm_s=tuple(o.first_pcm_s for o in found if o.number in measured),
        gaps=sum(p.gaps for p in played),
        gap_s=sum(p.gap_s for p in played),
        gapped=sum(p.gaps > 0 for p in played),
        gapped_5ms=sum(p.longest_s > 0.005 for p in played),
        unheard_s=sum(p.unheard_s for p in played),
        hung_up=states.count("hung_up"),
        audio_s=sum(o.num_samples for o in found) / SAMPLE_RATE_HZ,
        span_s=span_s,
        most_live=most_live(found),
        late_p99_s=nearest_rank([o.late_s for o in found if o.state != "lost"] or [0.0], 0.99),
        errors=tuple(sorted({o.error for o in found if o.error}))[:5],
    )


def most_live(outcomes: Iterable[Outcome]) -> int:
    """Return the most requests between their first sample and their end at one moment."""
    edges = [(o.chunks[0][0], 1) for o in outcomes if o.chunks]
    edges += [(max(o.ended_s, o.chunks[-1][0]), -1) for o in outcomes if o.chunks]
    live, most = 0, 0
    for _, change in sorted(edges):
        live += change
        most = max(most, live)
    return most


def figures_of(accounts: Sequence[Account], suffix: str) -> dict[str, float]:
    """Return the figures of one load over several seeds, each name ended by `suffix`.

    A percentile that is infinite is left out: it is no number, and the counts say why.
    """
    first_s = [value for each in accounts for value in each.first_pcm_s]
    told = {
        f"first_pcm_p{round(share * 100)}_ms": nearest_rank(first_s, share) * MS
        for share in (0.5, 0.95, 0.99)
    }
    told["first_pcm_max_ms"] = max(first_s, default=math.inf) * MS
    span_s = sum(each.span_s for each in accounts)
    told |= {
        "planned": sum(each.planned for each in accounts),
        "refused": sum(each.refused for each in accounts),
        "failed": sum(each.failed for each in accounts),
        "short": sum(each.short for each in accounts),
        "lost": sum(each.lost for each in accounts),
        "underruns": sum(each.gapped for each in accounts),
        "underruns_over_5ms": sum(each.gapped_5ms for each in accounts),
        "gap_ms_total": sum(each.gap_s for each in accounts) * MS,
        "audio_s_per_s": sum(each.audio_s for each in accounts) / span_s if span_s else 0.0,
        "send_late_p99_ms": max((each.late_p99_s for each in accounts), default=0.0) * MS,
    }
    hung_up = sum(each.hung_up for each in accounts)
    if hung_up:
        told["unheard_s_per_interruption"] = sum(each.unheard_s for each in accounts) / hung_up
    return {
        f"{name}_{suffix}": round(value, 3) for name, value in told.items() if math.isfinite(value)
    }
