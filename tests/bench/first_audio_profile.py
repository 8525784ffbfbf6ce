"""Where the time to first audio goes: stamps of each request, from submit to the caller's hands.

    python -m tests.bench.first_audio_profile            # the GPU, random weights at 1.7B shapes
    python -m tests.bench.first_audio_profile --replay   # no model: times of such a GPU

One request at a time, submitted to an idle engine on its own thread in this process. Printed are
medians: when each stamp was set after submit, and how long after the one before it. Stamps of the
device are its own events, laid on the host's clock by a mark that is waited for before each submit;
a CPU and the replay have none. The replay takes 0.16 ms for a prompt's copy, 4.0 for a frame, 0.55
for a codec batch: what it tells beyond these 4.71 is the engine's own time.
"""

import argparse
import queue
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from playhead.engine.flight import Flight, TimedEvent
from playhead.engine.messages import Cancel, Done, Pcm, Submit
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt
from playhead.engine.profile import Profile, load_profile
from playhead.engine.replay_runner import replaying
from playhead.engine.replay_times import StepTimes
from playhead.engine.runner import CodecResult, FrameResult, Runner
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.engine_thread import EngineThread, runner_maker
from playhead.worker.interpreter import hand_over_at_once, settle
from tests.bench.result import write_result

T = TypeVar("T")

STAMPS = (
    "submitted", "opened", "planned", "joined", "frame_launched", "frame_began", "frame_done",
    "frame_taken", "codec_launched", "codec_began", "codec_done", "pcm_taken", "published",
    "in_hand",
)  # fmt: skip
"""In order. Host: opened (the loop took the request), planned (its text is read, the plan made),
joined (its prompt's copy is launched), frame_taken and pcm_taken (landed, and the loop has it),
published (trimmed, on its way out). Device: _began and _done."""
REPLAYED = StepTimes(
    "replay", ((8, 4.0),), codec_fixed_ms=0.55, codec_frame_ms=0.0, prefix_copy_ms=((1, 0.16),)
)
TEXT = "Your order leaves from the main station in about an hour."
WARM, ANSWER_S, LOOK_S = 5, 60.0, 0.001


class Stamps:
    """The first time that each thing happened to a request; the host's seconds."""

    def __init__(self) -> None:
        """Begin with none."""
        self.at_s: dict[str, float] = {}
        self.flights: dict[str, Flight[Any]] = {}
        """Of the first frame and the first codec batch."""

    def set(self, name: str, at_s: float | None = None) -> None:
        """Stamp, if nothing has."""
        self.at_s.setdefault(name, time.perf_counter() if at_s is None else at_s)

    def place(self, mark: TimedEvent, mark_s: float) -> None:
        """Lay the device's own times on the host's clock, `mark` being done at `mark_s`."""
        for name, flight in self.flights.items():
            for what, event in zip(("began", "done"), flight.marks or (), strict=False):
                self.set(f"{name}_{what}", mark_s + mark.elapsed_time(event) / 1e3)


class StampedFlight(Flight[T], Generic[T]):
    """A flight that stamps when its result is in the engine's hands."""

    def __init__(self, flight: Flight[T], stamps: Stamps, name: str, took_s: float | None) -> None:
        """Wrap a flight; `took_s`: what its device would tell, which has no marks."""
        self._flight, self._stamps, self._name, self._took_s = flight, stamps, name, took_s

    @property
    def marks(self) -> tuple[TimedEvent, TimedEvent] | None:
        """The device's marks."""
        return self._flight.marks

    def took_s(self) -> float | None:
        """Return how long the device worked."""
        return self._took_s or self._flight.took_s()

    def ready(self) -> bool:
        """Return whether it has landed."""
        return self._flight.ready()

    def result(self) -> T:
        """Return the result and stamp."""
        result = self._flight.result()
        self._stamps.set(self._name)
        return result


class StampedRunner:
    """A runner that stamps what is asked of it; all else is the runner's own."""

    def __init__(self, runner: Runner, times: StepTimes | None) -> None:
        """Wrap a runner; `times` are those of a replay, as a device's own events would tell."""
        self._runner, self.stamps = runner, Stamps()
        self._took_s = (
            {} if times is None else {"frame": times.frame_s(1), "codec": times.codec_s(1)}
        )

    def __getattr__(self, name: str) -> Any:
        """Return what the runner has by this name."""
        return getattr(self._runner, name)

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        """Start a stream."""
        self.stamps.set("opened")
        return self._runner.open(slot, prompt, sampling, seed)

    def prefill(self, slots: Sequence[int]) -> None:
        """Run or copy prompts."""
        self.stamps.set("planned")
        self._runner.prefill(slots)
        self.stamps.set("joined")

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        """Start a frame batch."""
        flight = self._runner.launch_frame(slots, text_ids, may_end)
        return self._stamped("frame", flight, "frame_taken")

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        """Start a codec batch."""
        return self._stamped("codec", self._runner.launch_codec(slots, codes), "pcm_taken")

    def _stamped(self, name: str, flight: Flight[T], taken: str) -> Flight[T]:
        self.stamps.set(f"{name}_launched")
        self.stamps.flights.setdefault(name, flight)
        return StampedFlight(flight, self.stamps, taken, self._took_s.get(name))


class FirstAudioProfile:
    """One engine on its thread and the stamps of one request after another."""

    def __init__(
        self, model: Path, profile: Profile, device: str, times: StepTimes | None = None
    ) -> None:
        """Build the engine on a device, or on a replay of `times`."""
        make = runner_maker(device)
        if times is not None:
            make = replaying(times, time.monotonic, spin_until)

        def stamped(model: Model, profile: Profile) -> Runner:
            self._runner = StampedRunner(make(model, profile), times)
            return cast(Runner, self._runner)

        self.thread = EngineThread(model, profile, device, stamped)

    def request(self, submit: Submit) -> dict[str, float]:
        """Submit to the idle engine, take the first samples, cancel; return stamps by name.

        Raises TimeoutError when no samples come.
        """
        while not self.thread.engine.idle:
            time.sleep(LOOK_S)
        stamps = self._runner.stamps = Stamps()
        mark, mark_s = self._mark()
        stamps.set("submitted")
        self.thread.engine.post(submit)
        self._await(submit.request_id, Pcm)
        self.thread.engine.post(Cancel(submit.request_id))
        self._await(submit.request_id, Done)
        if mark is not None:
            stamps.place(mark, mark_s)
        return stamps.at_s

    def _await(self, name: str, kind: type[Pcm] | type[Done]) -> None:
        until_s = time.perf_counter() + ANSWER_S
        while time.perf_counter() < until_s:
            try:
                published_s, result = self.thread.results.get(timeout=1.0)
            except queue.Empty:
                continue
            if result.request_id == name and isinstance(result, kind):
                if kind is Pcm:
                    self._runner.stamps.set("published", published_s)
                    self._runner.stamps.set("in_hand")
                return
        raise TimeoutError(f"no {kind.__name__} of {name} within {ANSWER_S:.0f} s")

    def _mark(self) -> tuple[TimedEvent | None, float]:
        stream = getattr(self._runner, "frame_stream", None)
        if stream is None:
            return None, 0.0
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(stream)
        mark.synchronize()
        return mark, time.perf_counter()


def figures_of(requests: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return medians in ms: `<stamp>_at_ms` after submit, `<stamp>_ms` after the stamp before."""
    names = [name for name in STAMPS if all(name in stamps for stamps in requests)]
    out: dict[str, float] = {}
    for before, name in pairwise(names):
        for key, since in ((f"{name}_at_ms", "submitted"), (f"{name}_ms", before)):
            took_ms = [(stamps[name] - stamps[since]) * 1e3 for stamps in requests]
            out[key] = round(statistics.median(took_ms), 4)
    return out


def spin_until(until_s: float) -> None:
    """Wait as for a device: exactly, and with the interpreter free for other threads."""
    while time.monotonic() < until_s:
        time.sleep(0)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replay", action="store_true", help="a device that computes nothing")
    parser.add_argument("--shape", help="default 1.7b on a GPU, else tiny")
    parser.add_argument("--profile", help="default balanced on a GPU and with --replay, else cpu")
    parser.add_argument("--checkpoints", type=Path, help="generated weights are kept here")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--interval-ms", type=float, default=0.0, help="idle time before each")
    parser.add_argument("--out", type=Path, help="folder of a result file")
    asked = parser.parse_args()
    on_gpu = torch.cuda.is_available() and not asked.replay
    device = "cuda" if on_gpu else "cpu"
    profile = load_profile(asked.profile or ("balanced" if on_gpu or asked.replay else "cpu"))
    folder = checkpoint(
        asked.shape or ("1.7b" if on_gpu else "tiny"), asked.checkpoints, device=device
    )
    bench = FirstAudioProfile(folder, profile, device, REPLAYED if asked.replay else None)
    settle()
    hand_over_at_once()
    requests = []
    with bench.thread:
        for number in range(WARM + asked.requests):
            time.sleep(asked.interval_ms / 1e3)
            submit = Submit(f"r{number}", text=TEXT, closed=True, seed=number)
            requests.append(bench.request(submit))
    figures = figures_of(requests[WARM:])
    for name in STAMPS:
        if f"{name}_ms" in figures:
            print(
                f"{name:<16} at {figures[f'{name}_at_ms']:8.3f} ms, {figures[f'{name}_ms']:+8.3f}"
            )
    if asked.out:
        label = "replay" if asked.replay else device
        command = " ".join(["python -m tests.bench.first_audio_profile", *sys.argv[1:]])
        write_result("first-audio-profile", label, figures, command, asked.out)


if __name__ == "__main__":
    main()
