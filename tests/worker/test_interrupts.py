"""Interruptions in a room: what its sender gets of an old speech ends before the next begins."""

import asyncio
import random
from typing import Any

import numpy as np
import pytest

from playhead.engine.engine import Engine
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.profile import Profile
from playhead.worker.events import Finished, Interrupted
from playhead.worker.pcm_queue import FADE_SAMPLES, fade_end
from tests.engine.flying import LOUDNESS, ToneRunner
from tests.worker.rig import Rig

NUM = 500


class ToneRig(Rig):
    """The real engine, whose speeches are told apart by their loudness."""

    def _make(self, on_results: Any) -> Any:
        self.runner = ToneRunner()
        return Engine(EMBEDDED_VOICE, Profile(), on_results, make_runner=lambda *_: self.runner)

    def speeches(self) -> list[int]:
        """Return which speech each frame is of that the sender was given, silence left out."""
        return numbers([data for _, data in self.source.frames])


def numbers(frames: list[bytes]) -> list[int]:
    """Return the speech of each frame that is not silent; the rest of a fade is its speech's.

    A fade that ends in a frame of its own goes on from the sample before, one step lower.
    """
    found: list[int] = []
    before = 0
    for data in frames:
        levels = np.abs(np.frombuffer(data, "<i2").astype(int))
        peak = int(levels.max(initial=0))
        if peak:
            goes_on = 0 < before - levels[0] <= (LOUDNESS + NUM) / (FADE_SAMPLES - 1) + 1
            found.append(found[-1] if found and goes_on else peak - LOUDNESS)
        before = int(levels[-1]) if peak else 0
    return found


def test_rest_of_a_fade_is_told_from_a_cut_speech_that_comes_late() -> None:
    whole = np.full(480, LOUDNESS + 7, np.int16).tobytes()
    faded = fade_end(np.full(480, LOUDNESS + 7, np.int16).tobytes())
    newer = np.full(480, LOUDNESS + 8, np.int16).tobytes()
    assert numbers([whole, faded[:-40], faded[-40:], newer]) == [7, 7, 7, 8]
    late = numbers([whole, newer, faded[-40:]])
    assert late != sorted(late)


@pytest.mark.slow
async def test_no_sample_of_a_cut_speech_follows_the_start_of_the_next() -> None:
    chance = random.Random(9)
    async with ToneRig() as rig:
        rig.speaker.listen()
        for number in range(NUM):
            if number % 2:
                rig.speaker.interrupt()
            rig.say("This is said until somebody cuts it. " * 4, f"r{number}", cut=True)
            await asyncio.sleep(chance.choice((0.0, 0.01, 0.03, 0.06)))
        rig.say("Hello.", "last", cut=True)
        await rig.until(Finished, "last")
        given = rig.speeches()
        assert given == sorted(given), "an old speech after a newer one"
        assert len(set(given)) > NUM // 4
        cut = [event for event in rig.events if isinstance(event, Interrupted)]
        assert len({event.request_id for event in cut}) == len(cut) == NUM
        assert rig.client.num_live == 0 and rig.runner.serials == {}
