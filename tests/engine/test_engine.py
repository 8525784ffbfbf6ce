"""The real engine with the embedded voice, stepped on a clock of its own."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from playhead.engine.eager_runner import EagerRunner, eager_runner
from playhead.engine.messages import (
    Accepted,
    Append,
    Cancel,
    Close,
    Command,
    Done,
    Failed,
    Recording,
    Refused,
    Sampling,
    Starved,
    Submit,
    TextMode,
    Words,
)
from playhead.engine.models.loader import Model
from playhead.engine.profile import Profile
from playhead.engine.runner import FrameResult
from playhead.engine.units import FRAME_S, FRAME_SAMPLES, SAMPLE_RATE_HZ
from tests.engine.driver import SHORT, Driver, recording, spoken


def same_speech(one: NDArray[np.int16], other: NDArray[np.int16]) -> bool:
    """The same samples but for rounding: other batch and chunk sizes add in another order."""
    return len(one) == len(other) and np.allclose(one, other, rtol=0, atol=1e-4 * 32_767)


@pytest.fixture(scope="module")
def alone() -> Driver:
    """SHORT spoken offline, alone: the reference other runs are compared with."""
    driver = Driver()
    driver.submit(spoken(live=False))
    driver.finish("a")
    return driver


def test_one_request_from_text_to_samples(alone: Driver) -> None:
    kinds = [type(r) for r in alone.results["a"]]
    assert kinds[0] is Accepted and kinds[-1] is Done
    assert kinds.count(Done) == 1
    done = alone.done("a")
    assert done.reason == "stop"
    assert done.num_samples == len(alone.pcm("a"))
    assert 1.5 < done.num_samples / SAMPLE_RATE_HZ < 8.0
    assert np.abs(alone.pcm("a")).max() > 2_000


def test_words_join_to_the_text_and_times_are_ordered(alone: Driver) -> None:
    words = alone.words("a")
    assert "".join(w.text for w in words) == SHORT
    times = [t for w in words for t in (w.start_s, w.end_s)]
    assert times == sorted(times)
    assert times[-1] <= alone.done("a").num_samples / SAMPLE_RATE_HZ + 4 * FRAME_S


def test_words_come_before_or_with_their_audio() -> None:
    driver = Driver()
    driver.submit(spoken())
    driver.finish("a")
    published, known_s = 0, -1.0
    for result in driver.results["a"]:
        if isinstance(result, Words):
            for word in result.words:
                assert published / SAMPLE_RATE_HZ <= word.start_s + 3 * FRAME_S, word
                known_s = word.end_s
        elif hasattr(result, "pcm"):
            published += len(result.pcm) // 2
    assert known_s > 0


@pytest.mark.slow
def test_same_seed_two_listeners_give_other_chunks_and_the_same_pcm(alone: Driver) -> None:
    driver = Driver()
    driver.submit(spoken(request_id="fast"))
    driver.submit(spoken(request_id="late"), subscribed=False)
    driver.run(3.0)
    driver.listeners["late"].start()
    driver.catch_up("late")
    driver.finish("fast", "late")
    assert same_speech(driver.pcm("fast"), alone.pcm("a"))
    assert same_speech(driver.pcm("late"), alone.pcm("a"))
    sizes = {i: [c.num_frames for c in driver.chunks(i)] for i in ("fast", "late")}
    assert sizes["fast"] != sizes["late"]
    assert sizes["fast"][0] == sizes["late"][0] == 1


def test_other_seed_gives_other_speech(alone: Driver) -> None:
    driver = Driver()
    driver.submit(spoken(seed=6, live=False))
    driver.finish("a")
    assert not np.array_equal(driver.pcm("a"), alone.pcm("a"))


@pytest.mark.slow
def test_chunks_grow_with_slack_and_never_exceed_it() -> None:
    driver = Driver()
    driver.submit(spoken(SHORT * 2))
    driver.finish("a")
    sizes = [c.num_frames for c in driver.chunks("a")]
    assert sizes[0] == 1
    assert max(sizes) >= 3, sizes
    first_large = next(i for i, n in enumerate(sizes) if n >= 3)
    assert sum(sizes[:first_large]) >= 3, f"a chunk of 3 frames after {sizes[:first_large]}"


@pytest.mark.slow
def test_hold_back_bounds_what_is_made_ahead() -> None:
    profile = Profile()
    driver = Driver(profile)
    driver.submit(spoken(SHORT * 3))
    worst_s = 0.0
    while not driver.ended("a"):
        driver.step()
        request = driver.engine._requests.get("a")
        if request is not None:
            num_frames, _ = driver.engine._table.position(request.slot)
            made = num_frames * FRAME_SAMPLES - request.trim.dropped_samples
            exited = driver.listeners["a"].exited_samples(driver.now_s)
            worst_s = max(worst_s, (made - exited) / SAMPLE_RATE_HZ)
    assert worst_s <= profile.target_s + 3 * FRAME_S
    assert driver.listeners["a"].gaps == []


def test_paused_listener_stops_costing_steps_and_resumes_without_loss(alone: Driver) -> None:
    driver = Driver()
    driver.submit(spoken())
    driver.run(0.3)
    clock = driver.listeners["a"]
    taken_back = clock.pause(driver.now_s)
    driver.run(3.0)
    steps = driver.engine.metrics.frame_steps
    driver.run(5.0)
    assert driver.engine.metrics.frame_steps == steps
    clock.resume()
    assert driver.catch_up("a") >= taken_back
    driver.finish("a")
    assert same_speech(driver.pcm("a"), alone.pcm("a"))
    assert clock.gaps == []


@pytest.mark.parametrize("stall_s", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("cut", [16, 23, len(SHORT) - 3])
def test_text_stall_loses_no_word_and_is_no_underrun(
    alone: Driver, stall_s: float, cut: int
) -> None:
    driver = Driver()
    driver.submit(spoken(SHORT[:cut], closed=False))
    driver.run(2.0 + stall_s)
    driver.engine.post(Append("a", SHORT[cut:]))
    driver.engine.post(Close("a"))
    driver.finish("a")
    assert "".join(w.text for w in driver.words("a")) == SHORT
    starved = [r for r in driver.results["a"] if isinstance(r, Starved)]
    assert starved
    assert driver.listeners["a"].gaps == []
    assert driver.engine.metrics.late_chunks == 0
    assert driver.engine.metrics.text_wait_s >= stall_s
    added = driver.done("a").num_frames - alone.done("a").num_frames
    assert 0 <= added <= 2 * len(starved), "silence that lets the last sound end"
    before = starved[0].end_sample
    assert same_speech(driver.pcm("a")[:before], alone.pcm("a")[:before])


def test_offline_text_stall_changes_no_sample(alone: Driver) -> None:
    driver = Driver()
    driver.submit(spoken(SHORT[:23], closed=False, live=False))
    driver.run(3.0)
    driver.engine.post(Append("a", SHORT[23:]))
    driver.engine.post(Close("a"))
    driver.finish("a")
    assert same_speech(driver.pcm("a"), alone.pcm("a"))


def test_first_audio_comes_before_the_text_ends() -> None:
    driver = Driver()
    driver.submit(spoken("Thanks for calling. How can ", closed=False))
    driver.run(1.0)
    assert driver.chunks("a")


def test_cancel_frees_the_slot_within_a_step_and_nothing_follows() -> None:
    driver = Driver()
    driver.submit(spoken(SHORT * 3))
    driver.run(0.5)
    frames = driver.engine.metrics.frame_steps
    driver.engine.post(Cancel("a"))
    driver.engine.post(Cancel("a"))
    driver.step()
    assert driver.done("a").reason == "cancelled"
    assert driver.engine.metrics.frame_steps <= frames + 1
    assert len(driver.engine._stages.free_slots) == driver.engine.profile.max_streams
    results = list(driver.results["a"])
    driver.run(1.0)
    assert driver.results["a"] == results


@pytest.mark.slow
def test_live_stream_beside_offline_one_is_unchanged(alone: Driver) -> None:
    driver = Driver()
    driver.submit(spoken("Offline work fills spare rows only. " * 2, "file", live=False))
    driver.submit(spoken())
    driver.finish("a", "file")
    assert same_speech(driver.pcm("a"), alone.pcm("a"))
    assert driver.listeners["a"].gaps == []


def test_recording_is_spoken_with_its_own_words() -> None:
    stored = recording("money")
    driver = Driver()
    driver.submit(Submit("r", recording=stored))
    driver.finish("r")
    assert driver.done("r").reason == "stop"
    assert driver.done("r").num_frames == len(stored.codes) // 32
    assert [w.text for w in driver.words("r")] == [w.text for w in stored.words]
    assert all(not r.estimated for r in driver.results["r"] if isinstance(r, Words))
    first = driver.words("r")[0]
    pcm = np.abs(driver.pcm("r").astype(np.int32))
    onset_s = float(np.argmax(pcm > 1_000)) / SAMPLE_RATE_HZ
    assert abs(first.start_s - onset_s) <= 2 * FRAME_S


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"voice": "nobody"}, "unknown_voice"),
        ({"language": "klingon"}, "unknown_language"),
        ({"max_frames": 0}, "invalid_request"),
        ({"recording": Recording(b"123")}, "invalid_request"),
        ({"recording": Recording(b"\xff\xff" * 16)}, "invalid_request"),
    ],
)
def test_bad_input_is_refused_and_harms_nobody(change: dict[str, object], code: str) -> None:
    driver = Driver()
    driver.submit(spoken(request_id="good"))
    driver.submit(spoken(request_id="bad", **change))
    driver.finish("good", "bad")
    refused = driver.results["bad"][-1]
    assert isinstance(refused, Refused) and refused.code == code
    assert driver.done("good").reason == "stop"
    assert len(driver.engine._stages.free_slots) == driver.engine.profile.max_streams


def test_same_id_twice_is_refused() -> None:
    driver = Driver()
    driver.submit(spoken())
    driver.submit(spoken())
    driver.finish("a")
    assert sum(isinstance(r, Refused) for r in driver.results["a"]) == 1


@pytest.mark.parametrize("text", ["", "   \n", "😄 🎉", "**", "\u200b"])
@pytest.mark.parametrize("mode", ["streaming", "full"])
def test_text_without_sound_ends_with_no_samples(text: str, mode: TextMode) -> None:
    driver = Driver()
    driver.submit(spoken(text, text_mode=mode))
    driver.finish("a", limit_s=2.0)
    assert driver.done("a").num_samples == 0
    assert driver.done("a").reason == "stop"
    assert "".join(w.text for w in driver.words("a")) in ("", text)


def test_text_after_close_fails_that_request_only() -> None:
    driver = Driver()
    driver.submit(spoken())
    driver.submit(spoken(request_id="b"))
    driver.engine.post(Append("b", "more"))
    driver.finish("a", "b")
    failed = driver.results["b"][-1]
    assert isinstance(failed, Failed) and failed.code == "invalid_request"
    assert driver.done("a").reason == "stop"


def test_too_much_text_is_named() -> None:
    driver = Driver(Profile(max_text_chars=50))
    driver.submit(spoken("word " * 20))
    driver.finish("a")
    failed = driver.results["a"][-1]
    assert isinstance(failed, Failed) and failed.code == "text_too_long"


def test_max_frames_ends_with_length() -> None:
    driver = Driver()
    driver.submit(spoken(max_frames=7))
    driver.finish("a")
    assert driver.done("a").reason == "length"
    assert driver.done("a").num_frames == 7


@pytest.mark.slow
def test_long_text_goes_on_in_new_segments_and_keeps_every_word() -> None:
    text = "This is one sentence of a long story. " * 6
    driver = Driver(Profile(segment_frames=60))
    driver.submit(spoken(text, sampling=Sampling(temperature=0.4)))
    driver.finish("a")
    assert driver.engine.metrics.prefill_rows >= 3
    assert "".join(w.text for w in driver.words("a")) == text
    assert driver.listeners["a"].gaps == []


@pytest.mark.slow
def test_text_without_a_full_stop_is_cut_at_a_word() -> None:
    text = "word and " * 30
    driver = Driver(Profile(segment_frames=60))
    driver.submit(spoken(text))
    driver.finish("a")
    assert driver.engine.metrics.prefill_rows >= 2
    assert "".join(w.text for w in driver.words("a")) == text


class BrokenRunner(EagerRunner):
    """A runner whose named call fails once, or whose codec returns NaN for one slot."""

    broken: str = ""

    def frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> FrameResult:
        if self.broken == "frame":
            self.broken = ""
            raise RuntimeError("device lost a frame")
        return super().frame(slots, text_ids, may_end)

    def codec(self, slots: Sequence[int], codes: np.ndarray) -> np.ndarray:
        pcm = super().codec(slots, codes)
        if self.broken == "nan":
            self.broken = ""
            pcm = pcm.copy()
            pcm[0, 0] = np.nan
        return pcm


@pytest.mark.parametrize("broken", ["frame", "nan"])
def test_failed_step_ends_its_request_and_the_engine_goes_on(broken: str) -> None:
    runners: list[BrokenRunner] = []

    def make(model: Model, profile: Profile) -> EagerRunner:
        eager = eager_runner(model, profile)
        eager.__class__ = BrokenRunner
        assert isinstance(eager, BrokenRunner)
        runners.append(eager)
        return eager

    driver = Driver(make_runner=make)
    driver.submit(spoken())
    driver.run(0.2)
    runners[0].broken = broken
    driver.finish("a")
    failed = driver.results["a"][-1]
    assert isinstance(failed, Failed) and failed.code == "engine_failure"
    driver.submit(spoken(request_id="b"))
    driver.finish("b")
    assert driver.done("b").reason == "stop"


@pytest.mark.slow
def test_trace_of_the_same_commands_is_identical() -> None:
    def run() -> list[object]:
        driver = Driver()
        script: list[tuple[float, Command]] = [
            (0.0, spoken()),
            (0.3, spoken("Another voice joins in. ", "b", closed=False)),
            (0.5, Cancel("a")),
            (0.6, Close("b")),
        ]
        start_s = driver.now_s
        for at_s, command in script:
            while driver.now_s < start_s + at_s:
                driver.step()
            if isinstance(command, Submit):
                driver.submit(command)
            else:
                driver.engine.post(command)
        driver.finish("a", "b")
        return [replace(r, pcm=b"") if hasattr(r, "pcm") else r for r in driver.order]

    assert run() == run()
