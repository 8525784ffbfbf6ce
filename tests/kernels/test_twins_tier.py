"""The embedded voice spoken by the whole engine over the twins tier's runner, word for word."""

from dataclasses import replace

import numpy as np
import pytest

from playhead.engine.backend import captured_runner, folded_weights
from playhead.engine.device import Tier
from playhead.engine.models.loader import Model
from playhead.engine.profile import Profile
from playhead.engine.runner import Runner
from tests.engine.driver import Driver, spoken

TIER = Tier("twins", "cpu", "float32", triton=False, graphs=True, why="assumed")
PROFILE = Profile(max_streams=3, max_rows=8, segment_frames=128, chunk_frames=(1, 2, 4))


def twins_runner(model: Model, profile: Profile) -> Runner:
    return captured_runner(*folded_weights(model, profile, TIER, "cpu"), profile, TIER)


@pytest.mark.slow
def test_two_callers_hear_the_same_samples_as_from_the_eager_runner() -> None:
    heard = []
    for driver in (Driver(PROFILE), Driver(PROFILE, twins_runner)):
        for name, seed in (("a", 5), ("b", 6)):
            driver.submit(replace(spoken("Good morning.", name), seed=seed))
            driver.run(0.05)  # the second one's prompt is copied from the store
        driver.finish("a", "b")
        assert {driver.done(name).reason for name in "ab"} == {"stop"}
        heard.append([driver.pcm(name) for name in "ab"])
    for eager, twins in zip(*heard, strict=True):
        assert len(eager) > 12_000 and len(twins) == len(eager)
        difference = np.abs(eager.astype(np.int32) - twins)
        assert np.abs(eager.astype(np.int32)).max() > 1_000 and difference.max() <= 2
