"""Load plans: who asks when, for what. Pure; the same seed gives every target the same load."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from playhead.engine.errors import ConfigError

Arrivals = Literal["poisson", "bursts"]

BURST = 8
"""Requests of one burst; bursts themselves are Poisson, so the mean rate is the same."""
SHORTEST, LONGEST = 60, 100
"""Characters of a prompt."""
_SUBJECTS = (
    "the agent", "your order", "our driver", "the second half", "a new appointment",
    "the last invoice", "this reservation", "my colleague", "the evening train", "every message",
)  # fmt: skip
_VERBS = ("arrives", "was moved", "can be changed", "is ready", "will be sent", "leaves", "starts")
_WHERE = (
    "before noon", "after the weekend", "without any fee", "from the main station",
    "near the river", "on the third floor", "as you asked", "in about an hour",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planned:
    """One request of a plan."""

    number: int
    at_s: float
    """When it is sent, from the start of the load."""
    text: str
    seed: int
    max_frames: int
    measured: bool
    """False for the warm-up: sent and counted, but not in the percentiles."""
    hang_up_s: float | None = None
    """When its listener interrupts, from the first audio; None: never."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a plan is made from."""

    rate_rps: float
    seed: int = 0
    warm_up_s: float = 8.0
    window_s: float = 30.0
    max_frames: int = 63
    arrivals: Arrivals = "poisson"
    interrupted: float = 0.0
    """Share of listeners that hang up at a random moment."""

    def __post_init__(self) -> None:
        """Refuse what makes no load."""
        if self.rate_rps <= 0 or self.window_s <= 0 or self.warm_up_s < 0 or self.max_frames < 1:
            raise ConfigError(
                f"load {self}: rate and window must be above 0 s, the warm-up not below, "
                "max_frames at least 1"
            )


def plan(load: Load) -> list[Planned]:
    """Return the requests of a load in order of arrival.

    Open loop: times are drawn before anything runs and depend on no answer.
    """
    draw = random.Random(f"{load.arrivals}/{load.rate_rps}/{load.seed}")
    size = BURST if load.arrivals == "bursts" else 1
    end_s = load.warm_up_s + load.window_s
    at_s, requests = 0.0, list[Planned]()
    while True:
        at_s += draw.expovariate(load.rate_rps / size)
        if at_s >= end_s:
            return requests
        for _ in range(size):
            number = len(requests)
            hang_up_s = None
            if draw.random() < load.interrupted:
                hang_up_s = draw.uniform(0.3, 0.9) * load.max_frames * 0.08
            requests.append(
                Planned(
                    number=number,
                    at_s=at_s,
                    text=prompt(draw),
                    seed=draw.randrange(2**31),
                    max_frames=load.max_frames,
                    measured=at_s >= load.warm_up_s,
                    hang_up_s=hang_up_s,
                )
            )


def prompt(draw: random.Random) -> str:
    """Return a sentence of 60 to 100 characters."""
    while True:
        first = f"{draw.choice(_SUBJECTS)} {draw.choice(_VERBS)} {draw.choice(_WHERE)}"
        second = f"{draw.choice(_SUBJECTS)} {draw.choice(_VERBS)} {draw.choice(_WHERE)}"
        text = f"{first[0].upper()}{first[1:]}, and {second}."
        if SHORTEST <= len(text) <= LONGEST:
            return text


def split(requests: Sequence[Planned], num_parts: int) -> list[list[Planned]]:
    """Deal a plan out to several load generators, in turn."""
    return [list(requests[part::num_parts]) for part in range(num_parts)]
