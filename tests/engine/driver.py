"""Drives a real Engine step by step on a clock of its own, with a listener per request."""

from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from playhead.engine.clock import PlaybackClock
from playhead.engine.eager_runner import eager_runner
from playhead.engine.engine import Engine
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import (
    Done,
    Failed,
    Pcm,
    Playback,
    Recording,
    Refused,
    Result,
    Starved,
    Submit,
    Word,
    Words,
)
from playhead.engine.profile import Profile
from playhead.engine.receiver import ReceiverEstimate
from playhead.engine.runner import MakeRunner
from playhead.engine.units import FRAME_S, SAMPLE_BYTES

SHORT = "Thanks for calling. How can I help you today?"
TEACHER = Path(__file__).parents[1] / "data" / "teacher"


def recording(name: str) -> Recording:
    """Stored codes of a teacher sentence with its words and their times."""
    stored = np.load(TEACHER / f"{name}.npz", allow_pickle=False)
    spans = zip(stored["words"], stored["start_frames"], stored["end_frames"], strict=True)
    words = tuple(Word(str(w), float(a) * FRAME_S, float(b) * FRAME_S) for w, a, b in spans)
    return Recording(stored["codes"].astype("<u2").tobytes(), words)


def spoken(text: str = SHORT, request_id: str = "a", **given: object) -> Submit:
    values = {"text": text, "closed": True, "seed": 5} | given
    return Submit(request_id=request_id, **values)  # type: ignore[arg-type]


class Driver:
    """Time passes only between steps, so every run of the same script makes the same decisions."""

    def __init__(
        self, profile: Profile | None = None, make_runner: MakeRunner = eager_runner
    ) -> None:
        self.now_s = 1_000.0
        self.results: dict[str, list[Result]] = defaultdict(list)
        self.order: list[Result] = []
        self.listeners: dict[str, PlaybackClock] = {}
        self.engine = Engine(
            EMBEDDED_VOICE,
            profile or Profile(),
            self._take,
            make_runner=make_runner,
            clock=lambda: self.now_s,
        )

    def _take(self, results: list[Result]) -> None:
        for result in results:
            self.results[result.request_id].append(result)
            self.order.append(result)
            clock = self.listeners.get(result.request_id)
            if isinstance(result, Pcm) and clock is not None and clock.state == "playing":
                num_samples = len(result.pcm) // SAMPLE_BYTES
                clock.push(num_samples, clock.dry_at_s(self.now_s), self.now_s)
            elif isinstance(result, Starved) and clock is not None:
                clock.starve()

    def submit(self, submit: Submit, subscribed: bool = True) -> None:
        if submit.live:
            clock = PlaybackClock(submit.request_id, ReceiverEstimate())
            if subscribed:
                clock.start()
            self.listeners[submit.request_id] = clock
        self.engine.post(submit)

    def catch_up(self, request_id: str) -> int:
        """Push what the engine published and the listener's sender does not hold; return it."""
        clock = self.listeners[request_id]
        published = sum(len(c.pcm) // SAMPLE_BYTES for c in self.chunks(request_id))
        held = published - clock.pushed_samples
        if held:
            clock.push(held, clock.dry_at_s(self.now_s), self.now_s)
        return held

    def step(self, dt_s: float = 0.01) -> None:
        for clock in self.listeners.values():
            self.engine.post(Playback(clock.snapshot(self.now_s)))
        self.engine.step()
        self.now_s += dt_s

    def run(self, seconds: float, dt_s: float = 0.01) -> None:
        for _ in range(round(seconds / dt_s)):
            self.step(dt_s)

    def finish(self, *ids: str, limit_s: float = 120.0, dt_s: float = 0.01) -> None:
        """Step until the named requests ended."""
        end_s = self.now_s + limit_s
        while not all(self.ended(i) for i in ids):
            assert self.now_s < end_s, f"not ended after {limit_s} s: {ids}"
            self.step(dt_s)

    def ended(self, request_id: str) -> bool:
        return any(isinstance(r, Done | Failed | Refused) for r in self.results[request_id])

    def done(self, request_id: str) -> Done:
        last = self.results[request_id][-1]
        assert isinstance(last, Done), last
        return last

    def chunks(self, request_id: str) -> list[Pcm]:
        return [r for r in self.results[request_id] if isinstance(r, Pcm)]

    def pcm(self, request_id: str) -> NDArray[np.int16]:
        """All published samples, checked to be gapless."""
        expected = 0
        for chunk in self.chunks(request_id):
            assert chunk.start_sample == expected
            expected += len(chunk.pcm) // SAMPLE_BYTES
        data = b"".join(c.pcm for c in self.chunks(request_id))
        return np.frombuffer(data, "<i2")

    def words(self, request_id: str) -> list[Word]:
        batches = [r for r in self.results[request_id] if isinstance(r, Words)]
        return [word for batch in batches for word in batch.words]
