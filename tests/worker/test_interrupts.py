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
from tests.engine.flying import LOUDNESS, ToneRunner
from tests.worker.rig import Rig

NUM = 500


class ToneRig(Rig):
    """The real engine, whose speeches are told apart by their loudness."""

    def _make(self, on_results: Any) -> Any:
        self.runner = ToneRunner()
        return Engine(EMBEDDED_VOICE, Profile(), on_results, make_runner=lambda *_: self.runner)

    def speeches(self) -> list[int]:
        """Return which speech each frame is of that the sender was given.

        Silence is left out, and the frame in which a cut speech fades away.
        """
        loud = [int(np.abs(np.frombuffer(data, "<i2")).max()) for _, data in self.source.frames]
        return [peak - LOUDNESS for peak in loud if peak > LOUDNESS]


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
