"""Loads of the simulator: who calls when, how long, how the text comes, who interrupts. Pure.

The same load and seed give every policy the same calls.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from playhead.engine.errors import ConfigError
from playhead.engine.replay_runner import Speech
from playhead.worker.bench.plan import Planned

Arrivals = Literal["poisson", "bursts", "diurnal"]
Lengths = Literal["speech", "heavy"]

FRAMES_PER_ROW = 3.6
"""Mean frames of speech for one text token."""
MEDIAN_FRAMES = 50
"""Of an utterance; the mean of `speech` is 54 frames, 4.3 s."""
LONGEST_FRAMES = 2250
"""Three minutes."""
DAY_S = 20.0
"""A day of diurnal arrivals, squeezed: from a fifth to nine fifths of the mean rate."""
BUSY_RATE, BUSY_S, QUIET_S = 3.0, 0.5, 2.0
"""Bursts: three times the mean rate for half a second, a fifth of the time."""
WORDS = "the and you that hello world this is a test of speech".split()


@dataclass(frozen=True, slots=True)
class Load:
    """What the calls of one engine, or of one router's engines, are drawn from."""

    rate_rps: float
    duration_s: float = 38.0
    warm_up_s: float = 8.0
    seed: int = 0
    arrivals: Arrivals = "poisson"
    lengths: Lengths = "speech"
    silent: tuple[float, ...] = (1.0,)
    """Shares of utterances whose first audible frame is the first, second, third."""
    paced: float = 0.0
    """Share of calls whose text comes from a language model, 4 to 80 tokens/s, with stalls."""
    interrupted: float = 0.0
    """Share of listeners that interrupt at a random moment of the utterance."""
    remote: float = 0.0
    """Share of listeners with a player and clock of their own; the others are in rooms."""
    network_gaps: float = 0.0
    """Share of remote listeners whose network stands still for 200 ms, once in three seconds."""

    def __post_init__(self) -> None:
        """Refuse what makes no load."""
        if self.rate_rps <= 0 or self.duration_s <= self.warm_up_s or self.warm_up_s < 0:
            raise ConfigError(
                f"load of {self.rate_rps} requests/s for {self.duration_s} s after "
                f"{self.warm_up_s} s of warm-up; rates and windows must be above 0"
            )


@dataclass(frozen=True, slots=True)
class Call:
    """One utterance asked for, and what will happen to it."""

    number: int
    at_s: float
    pieces: tuple[tuple[float, str], ...]
    """(seconds after `at_s`, text); the text is complete with the last."""
    num_rows: int
    num_frames: int
    silent_frames: int = 0
    hang_up_s: float | None = None
    """The listener interrupts so long after the first audio."""
    remote: bool = False
    drift_ppm: float = 0.0
    network_gap_s: tuple[float, ...] = ()
    """When its network begins to stand still, in seconds after `at_s`."""
    measured: bool = True
    speculative: bool = False

    @property
    def speech(self) -> Speech:
        """What the replay engine speaks."""
        return Speech(
            silent_frames=self.silent_frames, frames_per_row=self.num_frames / self.num_rows
        )


def calls(load: Load) -> list[Call]:
    """Return the calls of a load in order of arrival."""
    draw = random.Random(f"{load}")
    return [_call(load, number, at_s, draw) for number, at_s in enumerate(_arrivals(load, draw))]


def of_plan(planned: Sequence[Planned]) -> list[Call]:
    """Return the calls of a benchmark's plan: complete text, a set number of frames."""
    out = []
    for each in planned:
        num_rows = max(round(each.max_frames / FRAMES_PER_ROW), 1)
        out.append(
            Call(each.number, each.at_s, ((0.0, text_of(num_rows)),), num_rows, each.max_frames,
                 hang_up_s=each.hang_up_s, measured=each.measured)
        )  # fmt: skip
    return out


def text_of(num_rows: int) -> str:
    """Return a text that the synthetic checkpoint's vocabulary reads as about so many rows."""
    words = [f" {WORDS[i % len(WORDS)]}" for i in range(num_rows)]
    return "".join(f"{w}." if i % 12 == 11 else w for i, w in enumerate(words))


def _arrivals(load: Load, draw: random.Random) -> Iterator[float]:
    """Draw arrival times by thinning a Poisson process of the highest rate."""
    peak = {"poisson": 1.0, "bursts": BUSY_RATE, "diurnal": 1.8}[load.arrivals]
    at_s, change_s, busy = 0.0, 0.0, True
    while True:
        at_s += draw.expovariate(load.rate_rps * peak)
        if at_s >= load.duration_s:
            return
        while load.arrivals == "bursts" and at_s >= change_s:
            busy = not busy
            change_s += draw.expovariate(1 / (BUSY_S if busy else QUIET_S))
        share = 1.0
        if load.arrivals == "bursts":
            share = 1.0 if busy else 0.5 / BUSY_RATE
        elif load.arrivals == "diurnal":
            share = (1 + 0.8 * math.sin(2 * math.pi * at_s / DAY_S)) / peak
        if draw.random() < share:
            yield at_s


def _call(load: Load, number: int, at_s: float, draw: random.Random) -> Call:
    num_frames = _frames(load.lengths, draw)
    num_rows = max(round(num_frames / FRAMES_PER_ROW), 1)
    audible = draw.choices(range(len(load.silent)), load.silent)[0]
    paced, remote = draw.random() < load.paced, draw.random() < load.remote
    hang_up_s = draw.uniform(0.05, 0.95) * num_frames * 0.08
    hangs_up = draw.random() < load.interrupted
    drift_ppm = draw.uniform(-500, 500)
    gaps = draw.random() < load.network_gaps
    gap_s = tuple(3.0 * i + draw.uniform(0, 3) for i in range(1, 1 + num_frames // 38))
    return Call(
        number=number,
        at_s=at_s,
        pieces=_paced(num_rows, draw) if paced else ((0.0, text_of(num_rows)),),
        num_rows=num_rows,
        num_frames=num_frames,
        silent_frames=min(audible, num_frames - 1),
        hang_up_s=hang_up_s if hangs_up else None,
        remote=remote,
        drift_ppm=drift_ppm if remote else 0.0,
        network_gap_s=gap_s if remote and gaps else (),
        measured=at_s >= load.warm_up_s,
    )


def _frames(lengths: Lengths, draw: random.Random) -> int:
    if lengths == "speech":
        return min(max(int(draw.lognormvariate(math.log(MEDIAN_FRAMES), 0.4)), 8), 400)
    num = draw.lognormvariate(math.log(MEDIAN_FRAMES) - 0.5, 1.0)
    if draw.random() < 0.02:
        num = 200 * draw.paretovariate(1.5)
    return min(max(int(num), 6), LONGEST_FRAMES)


def _paced(num_rows: int, draw: random.Random) -> tuple[tuple[float, str], ...]:
    """Draw a language model's pieces: one word each, a stall of 0.2 to 3 s in one of fifty."""
    rate = math.exp(draw.uniform(math.log(4), math.log(80)))
    at_s, pieces = 0.0, []
    for i in range(num_rows):
        pieces.append((at_s, f" {WORDS[i % len(WORDS)]}{'.' if i % 12 == 11 else ''}"))
        at_s += draw.expovariate(rate)
        if draw.random() < 0.02:
            at_s += draw.uniform(0.2, 3.0)
    return tuple(pieces)
