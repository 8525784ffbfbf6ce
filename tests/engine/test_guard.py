"""Speech that goes on behind its text is ended, told why, and harms nobody."""

from pathlib import Path

import numpy as np
import pytest
import torch

from playhead.engine.eager_runner import eager_runner
from playhead.engine.guard import MAX_PERIOD, REPEATED_FRAMES, SILENT_FRAMES, RunawayGuard
from playhead.engine.messages import Append, Close, Done, Submit
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.profile import Profile
from playhead.engine.units import FRAME_SAMPLES
from tests.engine.driver import SHORT, Driver
from tests.engine.flying import FlyingDriver, Times
from tests.engine.made_up import MadeUp, drawn, never

AT_ONCE, SLOW = Times(0.0, 0.0), Times(0.030, 0.008)
WORDS = "hello world this is a test of speech and you hear that"
RUNAWAYS = ("1次", "2次", "1。", "嗯？", "Huh?")
IN_FLIGHT = 3
"""Frames that may be made between a find and the end it makes."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose end-of-speech row is zero: it hardly ever ends by itself."""
    return write_checkpoint(tmp_path_factory.mktemp("tiny"), "tiny", dtype=torch.float32)


def speak(
    model: Path, runner: MadeUp, text: str = WORDS, times: Times = AT_ONCE, **given: object
) -> FlyingDriver:
    driver = FlyingDriver(times, None, lambda *_: runner, model=model)
    driver.submit(Submit("a", text=text, closed=True, live=False, **given))  # type: ignore[arg-type]
    driver.finish("a")
    driver.settled()
    return driver


def bound_frames(text: str) -> float:
    """Three times the 3.6 frames of a row, and 40; a row is at least one byte here."""
    most_rows = len(text.encode()) + 8  # figures are read as words
    return 10.8 * most_rows + 40


@pytest.mark.slow
def test_short_texts_that_never_end_are_bounded_by_their_length(tiny: Path) -> None:
    """Two hundred runs of what made other engines talk for half a minute."""
    profile = Profile(max_streams=128, max_rows=64, busy_limit=1.0)
    runner = MadeUp(never)
    driver = FlyingDriver(AT_ONCE, profile, lambda *_: runner, model=tiny)
    names = {f"{text} {seed}": (text, seed) for text in RUNAWAYS for seed in range(40)}
    for group in range(0, len(names), 50):
        some = list(names)[group : group + 50]
        for name in some:
            text, seed = names[name]
            driver.submit(Submit(name, text=text, closed=True, live=False, seed=seed))
        driver.finish(*some)
    for name, (text, _) in names.items():
        done = driver.done(name)
        assert (done.reason, done.guard) == ("length", "duration")
        assert done.num_frames <= bound_frames(text)
    assert driver.engine.metrics.runaways == len(names) == 200
    driver.settled()


@pytest.mark.slow
def test_a_model_that_never_ends_is_stopped_by_the_real_runner(tiny: Path) -> None:
    driver = FlyingDriver(AT_ONCE, Profile(), eager_runner, model=tiny)
    for seed, text in enumerate(RUNAWAYS):
        driver.submit(Submit(text, text=text, closed=True, live=False, seed=seed))
    driver.finish(*RUNAWAYS)
    for text in RUNAWAYS:
        assert driver.done(text).reason == "length" and driver.done(text).guard
        assert driver.done(text).num_frames <= bound_frames(text)
    driver.settled()


@pytest.mark.parametrize("times", [AT_ONCE, SLOW])
@pytest.mark.parametrize("period", [1, 2, 5, MAX_PERIOD])
def test_codes_that_repeat_behind_the_text_end_it(tiny: Path, period: int, times: Times) -> None:
    start = 30

    def code(serial: int, frame: int) -> int:
        return drawn(serial, frame if frame < start else start + frame % period)

    done = speak(tiny, MadeUp(never, code=code), times=times).done("a")
    assert (done.reason, done.guard) == ("length", "repetition")
    found = start + period + REPEATED_FRAMES
    assert found - period <= done.num_frames <= found + IN_FLIGHT


def test_codes_that_hardly_repeat_are_no_cycle(tiny: Path) -> None:
    def code(serial: int, frame: int) -> int:
        return drawn(serial, frame % (MAX_PERIOD + 1))

    done = speak(tiny, MadeUp(never, code=code)).done("a")
    assert done.guard == "duration"


@pytest.mark.parametrize("times", [AT_ONCE, SLOW])
def test_silence_behind_the_text_ends_it(tiny: Path, times: Times) -> None:
    start = 40
    runner = MadeUp(never, loud=lambda frame: frame < start)
    driver = speak(tiny, runner, times=times)
    done = driver.done("a")
    assert (done.reason, done.guard) == ("length", "silence")
    codec_behind = 8  # the codec takes several frames at once
    assert start + SILENT_FRAMES <= done.num_frames
    assert done.num_frames <= start + SILENT_FRAMES + codec_behind + IN_FLIGHT
    assert driver.num_free == driver.engine.profile.max_streams


def test_a_pause_is_no_silence(tiny: Path) -> None:
    pause = range(30, 30 + SILENT_FRAMES - 1)
    runner = MadeUp(
        lambda _, frame, may_end: may_end and frame >= 70,
        loud=lambda frame: frame not in pause,
    )  # fmt: skip
    done = speak(tiny, runner).done("a")
    assert (done.reason, done.guard, done.num_frames) == ("stop", "", 70)


def test_what_repeats_inside_the_text_is_left_alone(tiny: Path) -> None:
    """Two texts' worth of rows: half a minute is expected, the first six seconds are one code."""
    text = f"{WORDS} {WORDS} {WORDS}"
    runner = MadeUp(
        lambda _, frame, may_end: may_end and frame >= 120,
        code=lambda serial, frame: 7 if frame < 60 else drawn(serial, frame),
        loud=lambda frame: frame >= 60 or frame < 5,
    )
    done = speak(tiny, runner, text).done("a")
    assert (done.reason, done.guard, done.num_frames) == ("stop", "", 120)


@pytest.mark.parametrize("times", [AT_ONCE, SLOW])
def test_text_behind_a_stopped_part_is_spoken(tiny: Path, times: Times) -> None:
    """The first part loops; its listener hears the second one all the same."""
    text = f"{WORDS}. " * 4
    starts: list[int] = []

    class Restarted(MadeUp):
        def restart(self, slot: int, prompt: object) -> int:
            starts.append(self.frames[self.serials[slot]])
            return 0

    def code(serial: int, frame: int) -> int:
        return drawn(serial, frame) if starts else 7

    def ends(serial: int, frame: int, may_end: bool) -> bool:
        return bool(starts) and may_end and frame >= starts[-1] + 60

    runner = Restarted(ends, code=code)
    driver = FlyingDriver(times, Profile(segment_frames=120), lambda *_: runner, model=tiny)
    driver.submit(Submit("a", text=text, closed=True))
    driver.finish("a")
    done = driver.done("a")
    assert (done.reason, done.guard) == ("stop", "repetition")
    assert len(starts) >= 1 and starts[0] < 120
    assert "".join(word.text for word in driver.words("a")) == text
    assert driver.listeners["a"].gaps == []
    driver.settled()


def test_a_loop_of_one_request_touches_no_other(tiny: Path) -> None:
    runner = MadeUp(
        lambda serial, frame, may_end: serial == 2 and may_end and frame >= 80,
        code=lambda serial, frame: 7 if serial == 1 else drawn(serial, frame),
    )
    driver = FlyingDriver(SLOW, None, lambda *_: runner, model=tiny)
    for name in ("loops", "speaks"):
        driver.submit(Submit(name, text=WORDS, closed=True, live=False))
    driver.finish("loops", "speaks")
    assert driver.done("loops").guard == "repetition"
    assert (driver.done("speaks").reason, driver.done("speaks").num_frames) == ("stop", 80)
    driver.settled()


def test_the_embedded_voice_lasts_at_most_half_as_long_again_as_predicted() -> None:
    """Its rows are its frames, so the bound holds whatever the model does."""
    spoken, endless = MadeUp(), MadeUp(never)
    frames = []
    for tone in (spoken, endless):
        driver = FlyingDriver(AT_ONCE, None, lambda *_, tone=tone: tone)
        driver.submit(Submit("a", text=SHORT, closed=True, live=False))
        driver.finish("a")
        frames.append(driver.done("a"))
    by_itself, stopped = frames
    assert (by_itself.reason, by_itself.guard) == ("stop", "")
    assert (stopped.reason, stopped.guard) == ("length", "duration")
    predicted = by_itself.num_frames + 1  # the row at which it may end makes no frame
    assert by_itself.num_frames < stopped.num_frames <= 1.5 * predicted + 1


@pytest.mark.parametrize(
    "parts", [["…"], [""], ["", " ", "？！"], ["?", "!", "\u200b\x07"], ["😄"]]
)
@pytest.mark.parametrize("mode", ["streaming", "full"])
def test_marks_alone_are_no_speech(tiny: Path, parts: list[str], mode: str) -> None:
    """What a language model sends between its sentences: nothing is heard, the next one speaks."""
    runner = MadeUp(lambda _, frame, may_end: may_end and frame >= 30)
    driver = FlyingDriver(AT_ONCE, None, lambda *_: runner, model=tiny)
    driver.submit(Submit("a", text_mode=mode))  # type: ignore[arg-type]
    driver.run(0.1)
    for part in parts:
        driver.engine.post(Append("a", part))
        driver.run(0.1)
    driver.engine.post(Close("a"))
    driver.finish("a", limit_s=2.0)
    assert driver.done("a") == Done("a", "stop", 0, 0)
    driver.submit(Submit("b", text="hello world", closed=True))
    driver.finish("b")
    assert driver.done("b").num_frames == 30
    driver.settled()


def test_marks_behind_the_last_sentence_begin_no_part(tiny: Path) -> None:
    """A part that closed at its sentence end is followed by dots only: they are not spoken."""
    opened: list[int] = []

    class Counting(MadeUp):
        def restart(self, slot: int, prompt: object) -> int:
            opened.append(slot)
            return 0

    runner = Counting(lambda _, frame, may_end: may_end and frame >= 60)
    driver = FlyingDriver(AT_ONCE, Profile(segment_frames=40), lambda *_: runner, model=tiny)
    text = "hello world. … ??? … "
    driver.submit(Submit("a", text=text, closed=True, live=False))
    driver.finish("a")
    assert opened == []
    assert "".join(word.text for word in driver.words("a")) == text


def test_real_speech_trips_no_guard() -> None:
    driver = Driver()
    driver.submit(Submit("a", text=SHORT, closed=True, live=False, seed=3))
    driver.finish("a")
    assert (driver.done("a").reason, driver.done("a").guard) == ("stop", "")
    assert driver.engine.metrics.runaways == 0


@pytest.mark.parametrize("num_frames", [1, 2, 4, 8])
def test_silence_is_found_in_the_chunk_that_completes_it(num_frames: int) -> None:
    """Both slots speak, are silent, speak for whole chunks; slot 2 says one frame more."""
    guard, slots, in_tail = RunawayGuard(2), np.array([1, 2]), np.ones(2, np.bool_)
    loud = np.zeros((2, 80), np.bool_)
    loud[:, :5], loud[:, 16:24], loud[1, 33] = True, True, True
    samples = np.repeat(loud * np.int16(9000), FRAME_SAMPLES, axis=1)
    found = {}
    for start in range(0, 80 // num_frames * num_frames, num_frames):
        pcm = samples[:, start * FRAME_SAMPLES : (start + num_frames) * FRAME_SAMPLES]
        for row in guard.saw_samples(slots, pcm, in_tail):
            found.setdefault(row, start // num_frames)
    ends = {0: 24 + SILENT_FRAMES, 1: 34 + SILENT_FRAMES}
    assert found == {row: (end - 1) // num_frames for row, end in ends.items()}
