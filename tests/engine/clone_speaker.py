"""A real engine stepped by hand, for tests of cloned voices: keeps what each seed was made of."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from playhead.engine.eager_runner import EagerRunner
from playhead.engine.engine import Engine
from playhead.engine.flight import Flight
from playhead.engine.messages import Done, Failed, Pcm, Refused, Result, Submit, TextMode
from playhead.engine.models.cloning import make_clone
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt
from playhead.engine.profile import Profile
from playhead.engine.runner import FrameResult, Runner
from playhead.engine.voice_store import VoiceStore
from tests.voices import as_float, reference_wave

NUM_VOICES = 16
NUM_FRAMES = 20
TEXT = "hello world, this is a test"


class RecordingRunner(EagerRunner):
    """The real runner; keeps each stream's prompt state and codes by its seed."""

    def __init__(self, model: Model, profile: Profile) -> None:
        super().__init__(model, profile.max_streams, profile.segment_frames, num_threads=1)
        self.codes: dict[int, list[NDArray[np.int16]]] = defaultdict(list)
        self.digests: dict[int, list[str]] = defaultdict(list)
        """Of the talker's keys and values after the prompt: what makes the voice."""
        self.rows_to_run: list[int] = []
        self._seeds: dict[int, int] = {}

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        self._seeds[slot] = seed
        self.rows_to_run.append(super().open(slot, prompt, sampling, seed))
        return self.rows_to_run[-1]

    def prefill(self, slots: Sequence[int]) -> None:
        super().prefill(slots)
        for slot in slots:
            with torch.inference_mode():
                rows = self._cache.read(slot, self._slots[slot].prompt.num_rows)
                digest = hashlib.sha256(rows.numpy().tobytes()).hexdigest()
            self.digests[self._seeds[slot]].append(digest)

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        flight = super().launch_frame(slots, text_ids, may_end)
        for slot, codes in zip(slots, flight.result().codes, strict=True):
            self.codes[self._seeds[slot]].append(codes.copy())
        return flight


class Speaker:
    """A real engine stepped by hand; its clock stands still, so timing decides nothing."""

    def __init__(self, folder: Path) -> None:
        self.results: dict[str, list[Result]] = defaultdict(list)
        profile = replace(Profile(), max_streams=2 * NUM_VOICES)  # half is for files
        self.engine = Engine(
            folder, profile, self._take, make_runner=self._make_runner, clock=lambda: 1000.0
        )

    def _make_runner(self, model: Model, profile: Profile) -> Runner:
        self.runner = RecordingRunner(model, profile)
        return self.runner

    def _take(self, results: list[Result]) -> None:
        for result in results:
            self.results[result.request_id].append(result)

    def submit(
        self, request_id: str, voice: str | None, seed: int, mode: TextMode = "streaming"
    ) -> None:
        self.engine.post(
            Submit(
                request_id, voice, text=TEXT, closed=True, text_mode=mode, live=False, seed=seed,
                max_frames=NUM_FRAMES,
            )
        )  # fmt: skip

    def end(self, request_id: str) -> Result | None:
        ends = [r for r in self.results[request_id] if isinstance(r, Done | Failed | Refused)]
        return ends[0] if ends else None

    def finish(self, *ids: str) -> None:
        for _ in range(5_000):
            if all(self.end(i) for i in ids):
                return
            self.engine.step()
        raise AssertionError(f"not ended: {[i for i in ids if not self.end(i)]}")

    def pcm(self, request_id: str) -> NDArray[np.int16]:
        pieces = [r.pcm for r in self.results[request_id] if isinstance(r, Pcm)]
        return np.frombuffer(b"".join(pieces), "<i2")

    def codes(self, seed: int) -> NDArray[np.int16]:
        return np.stack(self.runner.codes[seed])[:NUM_FRAMES]


def keep(
    store: VoiceStore, owner: str, name: str, model: Model, number: int, transcript: str = ""
) -> str:
    """Store the voice of a number, in context with a transcript; return its id."""
    clone = make_clone(model, as_float(reference_wave(number, 3.0)), transcript)
    return store.add(owner, name, clone, model.voice_fingerprint, 3.0).id
