"""A device that is a machine of its own: what is launched on it lands when its time has come.

`Device` puts any runner whose launches land at once behind such flights; `ToneRunner` is one that
computes nothing and signs every sample with the stream that made it. Drivers step the engine from
one wake-up to the next, on a clock that only driver and device move.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
from playhead.engine.eager_runner import eager_runner
from playhead.engine.engine import Engine
from playhead.engine.flight import Flight
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Playback
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt
from playhead.engine.profile import Profile
from playhead.engine.runner import CodecResult, FrameResult, MakeRunner, Runner
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES
from tests.engine.driver import Driver

T = TypeVar("T")
STEP_S = 0.00005
"""Host time of one step."""
LOOK_S = 0.01
"""Listeners report so often."""
LOUDNESS = 1_000


@dataclass(frozen=True)
class Times:
    """How long batches take; `spread` makes them longer or shorter by up to this share."""

    frame_s: float
    codec_s: float
    spread: float = 0.0
    host_s: float = 0.0
    """Time the host takes for a launch; what flies may land meanwhile."""


@dataclass
class Launch:
    """One batch and what became of it."""

    kind: str
    slots: tuple[int, ...]
    due_s: float
    launched_s: float
    text_ids: tuple[int, ...] = ()
    void: tuple[bool, ...] = ()
    """Rows that came behind the end of their segment."""
    behind: bool = False
    """The one before it had not been taken when it was launched."""
    collected: bool = False


@dataclass
class _Mark:
    """The event of a flight: time passes while somebody waits for it."""

    driver: "FlyingDriver"
    due_s: float

    def query(self) -> bool:
        return self.driver.now_s >= self.due_s

    def synchronize(self) -> None:
        self.driver.now_s = max(self.driver.now_s, self.due_s)


class Device:
    """A runner's work, done in the order of the calls, one batch of a kind after another."""

    def __init__(self, inner: Runner, driver: "FlyingDriver", times: Times) -> None:
        self.inner = inner
        self.launches: list[Launch] = []
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.fault: Exception | None = None
        """Raised instead of the next frame batch's result."""
        self._driver = driver
        self._times = times
        self._free_s = {"frame": 0.0, "codec": 0.0}
        self._ended: set[int] = set()
        self._random = random.Random(1)

    @property
    def held(self) -> set[int]:
        """Slots of batches that have not landed."""
        return {s for b in self.launches if not b.collected for s in b.slots}

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        assert slot not in self.held, f"slot {slot} was given away under a batch in flight"
        rows = self.inner.open(slot, prompt, sampling, seed)
        self.opened.append(slot)
        self._ended.discard(slot)
        return rows

    def restart(self, slot: int, prompt: Prompt) -> int:
        self._ended.discard(slot)
        return self.inner.restart(slot, prompt)

    def close(self, slot: int) -> None:
        assert slot not in self.held, f"slot {slot} was closed under a batch in flight"
        self.closed.append(slot)
        assert self.closed.count(slot) == self.opened.count(slot), f"slot {slot} was closed twice"
        self.inner.close(slot)

    def costs(self) -> StepCosts:
        return self.inner.costs()

    def prefill(self, slots: Sequence[int]) -> None:
        self.inner.prefill(slots)

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        """A row behind the end of its segment is ended again and changes nothing."""
        void = tuple(slot in self._ended for slot in slots)
        going = [i for i in range(len(slots)) if not void[i]]
        codes = np.zeros((len(slots), CODEBOOKS), np.int16)
        ended = np.ones(len(slots), np.bool_)
        if going:
            made = self.inner.launch_frame(
                [slots[i] for i in going], [text_ids[i] for i in going], [may_end[i] for i in going]
            ).result()
            codes[going], ended[going] = made.codes, made.ended
        self._ended |= {slots[i] for i in going if ended[i]}
        launch = Launch("frame", tuple(slots), 0.0, self._driver.now_s, tuple(text_ids), void)
        fault, self.fault = self.fault, None
        return self._launch(launch, FrameResult(codes, ended), self._times.frame_s, fault)

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        made = self.inner.launch_codec(slots, codes).result()
        launch = Launch("codec", tuple(slots), 0.0, self._driver.now_s)
        return self._launch(launch, made, self._times.codec_s, None)

    def _launch(
        self, launch: Launch, result: T, takes_s: float, fault: Exception | None
    ) -> Flight[T]:
        takes_s *= 1.0 + self._times.spread * self._random.uniform(-1.0, 1.0)
        launch.due_s = max(self._driver.now_s, self._free_s[launch.kind]) + takes_s
        self._free_s[launch.kind] = launch.due_s
        launch.behind = any(b.kind == launch.kind and not b.collected for b in self.launches)
        self.launches.append(launch)
        self._driver.now_s += self._times.host_s

        def finish() -> T:
            assert self._driver.now_s >= launch.due_s, "taken before it landed"
            launch.collected = True
            if fault is not None:
                raise fault
            return result

        return Flight(finish, _Mark(self._driver, launch.due_s))


@dataclass
class ToneRunner:
    """Frames without a model: every sample has the loudness of the stream that made it.

    `ends(serial, frame, may_end)` says whether a frame of a stream is the end of its segment;
    streams count from 1 in the order in which they were opened.
    """

    ends: Callable[[int, int, bool], bool] = lambda serial, frame, may_end: may_end
    serials: dict[int, int] = field(default_factory=dict)
    rows: dict[int, list[int]] = field(default_factory=dict)
    """Text ids that each stream was given."""
    frames: dict[int, int] = field(default_factory=dict)
    num_opened: int = 0

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        self.num_opened += 1
        self.serials[slot] = self.num_opened
        self.rows[self.num_opened] = []
        self.frames[self.num_opened] = 0
        return 0

    def restart(self, slot: int, prompt: Prompt) -> int:
        return 0

    def close(self, slot: int) -> None:
        del self.serials[slot]

    def costs(self) -> StepCosts:
        return StepCosts()

    def prefill(self, slots: Sequence[int]) -> None:
        assert all(slot in self.serials for slot in slots)

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        codes = np.zeros((len(slots), CODEBOOKS), np.int16)
        ended = np.zeros(len(slots), np.bool_)
        for i, slot in enumerate(slots):
            serial = self.serials[slot]
            ended[i] = self.ends(serial, self.frames[serial], may_end[i])
            self.rows[serial].append(text_ids[i])
            codes[i] = serial
            codes[i, 0] = self.frames[serial]  # speech never repeats itself
            self.frames[serial] += 1
        return Flight.landed(FrameResult(codes, ended))

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        num_frames = codes.shape[1]
        for i, slot in enumerate(slots):
            assert (codes[i, :, 1:] == self.serials[slot]).all(), "codes of another stream"
        sign = np.where(np.arange(num_frames * FRAME_SAMPLES) % 2, -1, 1)
        pcm = ((codes[:, :1, 1] + LOUDNESS) * sign).astype(np.int16)
        return Flight.landed(CodecResult(pcm, np.zeros(len(slots), np.bool_)))


class WakingDriver(Driver):
    """Steps the engine when it asks to be, as its own thread would."""

    def step(self, dt_s: float = LOOK_S) -> None:
        """Step once; go on to the next moment at which the engine wants to look, or `dt_s`."""
        for clock in self.listeners.values():
            if clock.state != "gone":
                self.engine.post(Playback(clock.snapshot(self.now_s)))
        wake_s = self.engine.step()
        self.now_s = max(self.now_s + STEP_S, min(wake_s, self.now_s + dt_s))

    def run(self, seconds: float, dt_s: float = LOOK_S) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.step(min(dt_s, max(end_s - self.now_s, STEP_S)))

    @property
    def num_free(self) -> int:
        """Slots that may be given away."""
        return len(self.engine._stages.free_slots)


class FlyingDriver(WakingDriver):
    """The engine on a device of its own whose batches take the times given."""

    def __init__(
        self,
        times: Times,
        profile: Profile | None = None,
        make_inner: MakeRunner = eager_runner,
        model: Path = EMBEDDED_VOICE,
    ) -> None:
        self._devices: list[Device] = []

        def make(loaded: Model, given: Profile) -> Runner:
            self._devices.append(Device(make_inner(loaded, given), self, times))
            return self._devices[-1]

        super().__init__(profile, make)
        if model != EMBEDDED_VOICE:
            self.engine = Engine(
                model, profile or Profile(), self._take, make_runner=make, clock=lambda: self.now_s
            )

    @property
    def device(self) -> Device:
        """The device the engine runs on."""
        return self._devices[-1]

    def land(self) -> None:
        """Step until nothing is in flight."""
        while self.device.held:
            self.step()

    def settled(self) -> None:
        """Assert that nothing of any stream is left."""
        self.land()
        assert self.num_free == self.engine.profile.max_streams
        assert sorted(self.device.opened) == sorted(self.device.closed)
        assert self.engine.metrics.live == 0
