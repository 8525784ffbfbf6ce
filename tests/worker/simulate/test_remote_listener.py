"""The simulator's remote player: what a network gap, a late engine and a wrong clock make of it."""

from dataclasses import replace

import numpy as np
import pytest

from playhead.engine.profile import load_profile
from playhead.engine.replay_times import load_times
from playhead.worker.simulate.listeners import REMOTE_PATH_S, RemoteListener
from playhead.worker.simulate.load import Call, text_of
from playhead.worker.simulate.world import Setup, World

BEGIN_S = 1000.0
CHUNK, CHUNK_S = 1920, 0.08
GAP_S = 0.2
NUM = 60
END_S = BEGIN_S + REMOTE_PATH_S + NUM * CHUNK_S
"""When a player has played all that `speak` publishes, if nothing held it up."""
LATE = 20
"""The chunk to which something happens."""


def speak(
    listener: RemoteListener, lead_s: float, late_s: float = 0.0, starves: bool = False
) -> float:
    """Publish in real time, each chunk so long before the player needs it; return how long the
    player has sounded nothing in between."""
    for number in range(NUM):
        at_s = max(number * CHUNK_S - lead_s, 0.0)
        if number >= LATE:
            at_s += late_s
        if number == LATE and starves:
            listener.starve()
        listener.push(CHUNK, BEGIN_S + at_s)
    return (NUM * CHUNK - listener.heard_samples(END_S)) / 24_000


def stuck_s(lead_s: float, before_s: float = 0.01) -> float:
    """Return when the network begins to stand still: just before the late chunk arrives."""
    return BEGIN_S + REMOTE_PATH_S + LATE * CHUNK_S - lead_s - before_s


@pytest.mark.parametrize("lead_s", [0.0, 0.05, 0.15, 0.2, 1.0])
def test_a_network_gap_is_heard_for_as_long_as_the_lead_does_not_reach(lead_s: float) -> None:
    listener = RemoteListener("r", 0.0, (stuck_s(lead_s),))
    silent_s = speak(listener, lead_s)
    expected_s = max(GAP_S - 0.01 - lead_s, 0.0)
    assert silent_s == pytest.approx(expected_s, abs=1e-4)
    assert listener.network_gaps == (expected_s > 0)
    assert listener.gaps_s == [], "the engine was in time"


def test_after_a_gap_the_player_is_later_and_the_next_one_is_covered() -> None:
    first_s = stuck_s(0.15)
    listener = RemoteListener("r", 0.0, (first_s, first_s + 16 * CHUNK_S))
    assert speak(listener, 0.15) == pytest.approx(0.04, abs=1e-4)
    assert listener.network_gaps == 1
    listener = RemoteListener("r", 0.0, (first_s, first_s + 16 * CHUNK_S - 0.05))
    assert speak(listener, 0.15) == pytest.approx(0.04, abs=1e-4)
    assert listener.network_gaps == 1
    listener = RemoteListener("r", 0.0, (first_s, first_s + 16 * CHUNK_S + 0.005))
    assert speak(listener, 0.15) == pytest.approx(0.045, abs=1e-4)
    assert listener.network_gaps == 2, "5 ms longer than what the first one left"


def test_a_late_engine_makes_gaps_of_its_own_and_awaited_text_makes_none() -> None:
    for lead_s, gaps_s in ((0.0, [0.1]), (0.06, [0.04]), (0.1, [])):
        listener = RemoteListener("r", 0.0, ())
        assert speak(listener, lead_s, 0.1) == pytest.approx(sum(gaps_s), abs=1e-4)
        assert listener.gaps_s == pytest.approx(gaps_s)
        assert listener.network_gaps == 0
    listener = RemoteListener("r", 0.0, ())
    assert speak(listener, 0.0, 0.1, starves=True) == pytest.approx(0.1, abs=1e-4)
    assert listener.gaps_s == []
    listener = RemoteListener("r", 0.0, (stuck_s(-0.1),))
    speak(listener, 0.0, 0.1)
    assert listener.gaps_s == pytest.approx([0.1 + GAP_S - 0.01])
    assert listener.network_gaps == 0, "only the network's are counted apart"


@pytest.mark.parametrize("drift_ppm", [-500.0, 0.0, 500.0])
def test_a_clock_that_is_off_is_played_at_its_rate_and_known_to_the_engine(
    drift_ppm: float,
) -> None:
    """A minute at 500 ppm is 720 samples; between two reports there are three."""
    listener = RemoteListener("r", drift_ppm, ())
    wrong: list[int] = []
    truly: list[int] = []
    for tick in range(3000):
        now_s = BEGIN_S + tick * 0.02
        told = listener.snapshot(now_s)
        if told.dry_at_s - now_s < 0.3:
            listener.push(CHUNK, now_s)
        truly.append(listener.heard_samples(now_s))
        wrong.append(told.heard_samples - truly[-1])
    settled = 50
    lasted_s = 0.02 * (len(truly) - 1 - settled)
    rate_hz = 24_000 * (1 + drift_ppm / 1e6)
    assert truly[-1] - truly[settled] == pytest.approx(lasted_s * rate_hz, abs=2)
    assert max(abs(samples) for samples in wrong[settled:]) <= 6
    assert drift_ppm == 0 or np.mean(wrong[settled:]) * drift_ppm < 0
    assert listener.gaps_s == [] and listener.network_gaps == 0


@pytest.mark.parametrize("drift_ppm", [-500.0, 500.0])
@pytest.mark.parametrize(("low_s", "target_s", "gaps"), [(0.4, 0.8, 0), (0.1, 0.3, 1)])
def test_the_real_engines_lead_covers_a_network_gap_if_it_is_long_enough(
    low_s: float, target_s: float, gaps: int, drift_ppm: float
) -> None:
    profile = replace(load_profile("balanced"), low_s=low_s, target_s=target_s)
    for begins_s in (3.0, 3.23, 3.46):  # wherever between refills
        world = World(Setup(load_times("h200"), profile))
        told = world.offer(
            Call(0, 0.0, ((0.0, text_of(17)),), 17, 60, remote=True, drift_ppm=drift_ppm,
                 network_gap_s=(begins_s,))
        )  # fmt: skip
        world.finish()
        assert told.done == "stop" and told.gaps_s == []
        assert told.network_gaps == gaps, begins_s
