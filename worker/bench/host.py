"""Host time of the engine's own step: many live requests, and a runner whose launches cost nothing.

Time is driven: between steps the clock moves on by what a batch of that size lasts at that many
streams, so every step has a full batch to schedule, launch and publish. Playback reports come in
for every chunk, as from real listeners. What is timed is `Engine.step` alone.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
from playhead.engine.engine import Engine
from playhead.engine.flight import Flight
from playhead.engine.messages import Accepted, Pcm, Playback, PlaybackSnapshot, Result, Submit
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt
from playhead.engine.profile import Profile
from playhead.engine.runner import CodecResult, FrameResult, Runner
from playhead.engine.units import CODEBOOKS, FRAME_S, FRAME_SAMPLES, SAMPLE_BYTES, samples_to_s

TEXT = "many words that are spoken one after another without any end in sight " * 6
JOIN_AT_ONCE = 8
MAX_FRAMES = 16
"""Of one request in one codec batch."""


class FreeRunner:
    """Does nothing at all: results are ready before they are asked for, and always the same."""

    def __init__(self, num_codes: int, max_rows: int) -> None:
        """Prepare results for any batch."""
        draw = np.random.default_rng(0)
        codes = draw.integers(0, num_codes, (max_rows, CODEBOOKS)).astype(np.int16)
        self._made = FrameResult(codes, np.zeros(max_rows, np.bool_))
        loud = draw.normal(0.0, 6000.0, max_rows * MAX_FRAMES * FRAME_SAMPLES)
        self._pcm = loud.clip(-32768, 32767).astype(np.int16)
        """Of all rows, one behind another, as a device's samples land."""
        self._broken = np.zeros(max_rows, np.bool_)
        self.rows = 0
        """Rows of the newest frame batch."""

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        """Start a stream whose prompt is stored."""
        return 0

    def restart(self, slot: int, prompt: Prompt) -> int:
        """Start a new talker segment."""
        return 0

    def close(self, slot: int) -> None:
        """End a stream."""

    def costs(self) -> StepCosts:
        """Return the guesses an engine begins with."""
        return StepCosts()

    def prefill(self, slots: Sequence[int]) -> None:
        """Join slots."""

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        """Return the same codes for every row."""
        self.rows = num = len(slots)
        return Flight.landed(FrameResult(self._made.codes[:num], self._made.ended[:num]))

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        """Return the same noise for every row."""
        num, frames, _ = codes.shape
        pcm = self._pcm[: num * frames * FRAME_SAMPLES].reshape(num, -1)
        return Flight.landed(CodecResult(pcm, self._broken[:num]))


@dataclass(frozen=True, slots=True)
class HostTime:
    """Milliseconds of `Engine.step`, over steps whose frame batch was at least half full."""

    median_ms: float
    p99_ms: float
    mean_rows: float
    num_live: int
    steps: int


class HostBench:
    """One engine, driven step by step on a clock of its own."""

    def __init__(self, model: Path, profile: Profile, rows: int, streams: int) -> None:
        """Load the checkpoint's front end; its weights are never read."""
        tuned = replace(
            profile, max_streams=streams, max_rows=rows, flat_rows=rows, busy_limit=1.0,
            chunk_frames=tuple(size for size in profile.chunk_frames if size <= MAX_FRAMES),
        )  # fmt: skip
        self._rows, self._streams = rows, streams
        self._step_s = rows * FRAME_S / streams
        self.now_s = 1000.0
        self._pushed: dict[str, int] = {}
        self._dry_s: dict[str, float] = {}
        self._accepted = 0
        self._results: list[Result] = []
        runners: list[FreeRunner] = []

        def make(model: Model, _: Profile) -> Runner:
            runners.append(FreeRunner(model.config.num_codes, rows))
            return runners[0]

        self.engine = Engine(model, tuned, self._take, make_runner=make, clock=lambda: self.now_s)
        self._runner = runners[0]

    def fill(self) -> int:
        """Submit streams a few a step until all are live; return how many the engine took."""
        asked = 0
        for _ in range(20 * self._streams):
            if self._accepted >= self._streams:
                break
            for _ in range(min(JOIN_AT_ONCE, self._streams - self._accepted)):
                asked += 1
                self.engine.post(Submit(f"r{asked}", text=TEXT, closed=True, seed=asked))
            self._step()
        return self._accepted

    def run(self, warm: int, steps: int) -> HostTime:
        """Fill, warm up, time `steps` steps."""
        live = self.fill()
        while self.engine.step() <= self.now_s:
            continue  # the texts are read to their ends, a piece a step
        for _ in range(warm):
            self._step()
        times_ms, rows = [], []
        for _ in range(steps):
            took_s = self._step()
            if self._runner.rows * 2 >= min(self._rows, live):
                times_ms.append(took_s * 1e3)
                rows.append(self._runner.rows)
        if not times_ms:
            raise ValueError(f"no step had half a batch: {live} live streams, {self._rows} rows")
        ordered = sorted(times_ms)
        return HostTime(
            statistics.median(times_ms), ordered[int(0.99 * (len(ordered) - 1))],
            statistics.mean(rows), live, len(times_ms),
        )  # fmt: skip

    def _step(self) -> float:
        self._runner.rows = 0
        began_s = time.perf_counter()
        self.engine.step()
        took_s = time.perf_counter() - began_s
        results, self._results = self._results, []
        self._listen(results)
        self.now_s += self._step_s
        return took_s

    def _take(self, results: list[Result]) -> None:
        self._results += results  # listened to outside the timed step

    def _listen(self, results: list[Result]) -> None:
        """Play every chunk at once and report it: a listener whose clock is exact."""
        for result in results:
            if isinstance(result, Accepted):
                self._accepted += 1
            elif isinstance(result, Pcm):
                num = len(result.pcm) // SAMPLE_BYTES
                name = result.request_id
                pushed = self._pushed[name] = self._pushed.get(name, 0) + num
                dry_s = max(self._dry_s.get(name, 0.0), self.now_s) + samples_to_s(num)
                self._dry_s[name] = dry_s
                left = round((dry_s - self.now_s) / samples_to_s(1))
                self.engine.post(
                    Playback(
                        PlaybackSnapshot(
                            name, self.now_s, pushed, pushed - left, dry_s, 0.0, pushed - left,
                            "playing", "assumed",
                        )
                    )
                )  # fmt: skip
