"""A benchmark's engine on its thread, on a device of its own that needs real time."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from playhead.engine.flight import Flight
from playhead.engine.messages import Submit
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt
from playhead.engine.profile import Profile
from playhead.engine.runner import CodecResult, FrameResult, Runner
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.engine_thread import EngineThread
from playhead.worker.bench.host import FreeRunner

T = TypeVar("T")
FRAME_S, CODEC_S = 0.02, 0.005


class _Landing:
    """The event of a batch that is done at a moment of real time."""

    def __init__(self, due_s: float) -> None:
        self.due_s = due_s

    def query(self) -> bool:
        return time.monotonic() >= self.due_s

    def synchronize(self) -> None:
        time.sleep(max(self.due_s - time.monotonic(), 0.0))


class TwoStreams(FreeRunner):
    """Frames one after another on one stream, codec batches on the other; notes what happened."""

    def __init__(self, num_codes: int, max_rows: int) -> None:
        super().__init__(num_codes, max_rows)
        self.flying = 0
        self.events: list[str] = []
        self.flying_at_open: list[int] = []
        self._free_s = {"frame": 0.0, "codec": 0.0}

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        self.flying_at_open.append(self.flying)
        self.events.append("open")
        return super().open(slot, prompt, sampling, seed)

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        made = super().launch_frame(slots, text_ids, may_end)
        return self._fly("frame", FRAME_S, made)

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        return self._fly("codec", CODEC_S, super().launch_codec(slots, codes))

    def _fly(self, kind: str, takes_s: float, made: Flight[T]) -> Flight[T]:
        due_s = max(time.monotonic(), self._free_s[kind]) + takes_s
        self._free_s[kind] = due_s
        self.flying += 1
        self.events.append(kind)

        def finish() -> T:
            self.flying -= 1
            self.events.append(f"{kind} landed")
            return made.result()

        return Flight(finish, _Landing(due_s))


def started(folder: Path) -> tuple[EngineThread, TwoStreams]:
    runners: list[TwoStreams] = []

    def make(model: Model, profile: Profile) -> Runner:
        runners.append(TwoStreams(model.config.num_codes, profile.max_rows))
        return runners[0]

    made = EngineThread(checkpoint("tiny", folder), Profile(), "cpu", make)
    return made, runners[0]


def test_each_trial_begins_on_an_idle_device(tmp_path: Path) -> None:
    made, device = started(tmp_path)
    with made:
        for number in range(6):
            made.first_pcm_ms(Submit(f"r{number}", text="Hello there.", closed=True))
    assert device.flying_at_open == [0] * 6
    trials = " ".join(device.events).split("open")[1:]
    assert any(trial.count("frame landed") > 1 for trial in trials), "more than one frame flew"


def test_first_chunk_goes_to_the_codec_as_soon_as_its_frame_has_landed(tmp_path: Path) -> None:
    made, device = started(tmp_path)
    with made:
        for number in range(6):
            made.first_pcm_ms(Submit(f"r{number}", text="Hello there.", closed=True))
    for trial in "|".join(device.events).split("open|")[1:]:
        events = trial.split("|")
        landed = events.index("frame landed")
        assert events[:landed].count("frame") <= 2, "one runs, one waits"
        assert events[landed + 1] == "codec", "nothing is launched or awaited in between"
