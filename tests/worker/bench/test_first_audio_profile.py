"""Stamps of first audio: each request has all that its device can tell, in order."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from playhead.engine.flight import Flight
from playhead.engine.messages import Submit
from playhead.engine.profile import load_profile
from playhead.worker.bench.checkpoint import checkpoint
from tests.bench.first_audio_profile import (
    REPLAYED,
    STAMPS,
    FirstAudioProfile,
    Stamps,
    figures_of,
)


@pytest.mark.slow
def test_the_stamps_of_each_request_rise_from_submit_to_the_caller(tmp_path: Path) -> None:
    folder, profile = checkpoint("tiny", tmp_path), load_profile("balanced")
    bench = FirstAudioProfile(folder, profile, "cpu", REPLAYED)
    with bench.thread:
        requests = [bench.request(Submit(f"r{i}", text="Well then.", closed=True)) for i in (0, 1)]
    host = [name for name in STAMPS if not name.endswith(("_began", "_done"))]
    for stamps in requests:
        assert [name for name in STAMPS if name in stamps] == host
        at_s = [stamps[name] for name in host]
        assert at_s == sorted(at_s)
        assert stamps["frame_taken"] - stamps["joined"] >= REPLAYED.frame_s(1)
        assert stamps["pcm_taken"] - stamps["frame_taken"] >= REPLAYED.codec_s(1)
    figures = figures_of(requests)
    assert figures["in_hand_at_ms"] >= 4.7
    assert set(figures) == {f"{name}{end}" for name in host[1:] for end in ("_ms", "_at_ms")}


@dataclass
class _Mark:
    """A mark of a device's clock, which began at no moment of the host's."""

    at_ms: float

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Any) -> float:
        return float(end.at_ms - self.at_ms)


def test_times_of_the_device_are_laid_on_the_clock_of_the_host() -> None:
    stamps = Stamps()
    stamps.flights["frame"] = Flight(lambda: None, _Mark(107.5), _Mark(103.0))
    stamps.flights["codec"] = Flight(lambda: None)
    stamps.place(_Mark(100.0), 50.0)
    assert stamps.at_s == {
        "frame_began": pytest.approx(50.003),
        "frame_done": pytest.approx(50.0075),
    }
