import numpy as np
import numpy.typing as npt
import pytest

from playhead.worker.demo.align import Samples, align
from playhead.worker.demo.asr import edit_distance, spoken_words, word_error_rate
from playhead.worker.demo.check import judge

RATE_HZ = 24_000


def babble(seed: int, duration_s: float) -> npt.NDArray[np.float64]:
    """Return a voice-like sound: a buzz of wandering pitch with syllables and pauses."""
    rng = np.random.default_rng(seed)
    num = round(duration_s * RATE_HZ)
    steps = np.interp(
        np.arange(num),
        np.arange(0, num + 2400, 2400),
        rng.uniform(90, 210, num // 2400 + 2)[: len(range(0, num + 2400, 2400))],
    )
    phase = np.cumsum(2 * np.pi * steps / RATE_HZ)
    harmonics = sum(
        rng.uniform(0.2, 1) * np.sin(k * phase + rng.uniform(0, 6)) for k in range(1, 14)
    )
    syllables = np.abs(np.sin(np.arange(num) * (2 * np.pi * 2.3 / RATE_HZ) + rng.uniform(0, 6)))
    sound = np.asarray(harmonics) * syllables + rng.normal(0, 0.05, num)
    return sound / np.abs(sound).max() * 9_000


def heard_as(sound: npt.NDArray[np.float64], *, lead_s: float = 1.3, seed: int = 1) -> Samples:
    """Return a sound as a listener records it: later, softer, a little noisy and duller."""
    noise = np.random.default_rng(seed).normal(0, 60, len(sound))
    dull = np.convolve(sound * 0.8 + noise, [0.2, 0.6, 0.2], mode="same")
    silence = np.zeros(round(lead_s * RATE_HZ))
    return np.concatenate((silence, dull, silence)).astype(np.int16)


ENGINE = np.concatenate([babble(n, 2.5) for n in range(5)])
KNOWN = ENGINE.astype(np.int16)


class Script:
    """A recogniser that says what it is told."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)

    def transcribe(self, pcm: Samples) -> str:
        return self._texts.pop(0)


def test_align_finds_every_piece_when_nothing_is_missing() -> None:
    found = align(KNOWN, heard_as(ENGINE))
    assert found.found_share == 1.0 and found.steps(0.02) == []
    assert found.heard_at_s(5.0) == pytest.approx(6.3, abs=0.001)


@pytest.mark.parametrize("pause_s", [0.05, 0.2, 0.8])
def test_align_reports_a_pause_as_a_step_of_its_length(pause_s: float) -> None:
    at = 6 * RATE_HZ
    paused = np.insert(ENGINE, at, np.zeros(round(pause_s * RATE_HZ)))
    (step,) = align(KNOWN, heard_as(paused)).pauses(0.03)
    assert step.duration_s == pytest.approx(pause_s, abs=0.01)
    assert step.reference_s == pytest.approx(6.0, abs=0.5)


def test_align_calls_it_no_pause_when_a_receiver_stretched_the_sound() -> None:
    at, num = 6 * RATE_HZ, round(0.06 * RATE_HZ)
    stretched = np.insert(ENGINE, at, ENGINE[at - num : at])
    found = align(KNOWN, heard_as(stretched))
    assert len(found.steps(0.03)) == 1 and found.pauses(0.03) == []


@pytest.mark.parametrize("start_s", [0.0, 1.7, 5.0, 8.2, 10.5])
def test_judge_rejects_when_two_seconds_are_missing(start_s: float) -> None:
    cut = np.delete(ENGINE, slice(round(start_s * RATE_HZ), round((start_s + 2) * RATE_HZ)))
    verdict = judge("a b c", KNOWN, KNOWN, heard_as(cut), Script("a b c", "a b c"))
    assert verdict.longest_loss_s > 0.7 and verdict.problems


def test_judge_rejects_when_two_parts_are_swapped() -> None:
    parts = np.split(ENGINE, 5)
    parts[1], parts[3] = parts[3], parts[1]
    verdict = judge(
        "a b c", KNOWN, KNOWN, heard_as(np.concatenate(parts)), Script("a b c", "a b c")
    )
    assert verdict.problems


def test_judge_rejects_when_it_is_another_text() -> None:
    other = np.concatenate([babble(n, 2.0) for n in range(20, 22)])
    known = KNOWN[: 3 * RATE_HZ]
    verdict = judge("a b c", known, known, heard_as(other, lead_s=0.5), Script("a b c", "a b c"))
    assert verdict.found_share < 0.2 and verdict.problems


def test_judge_rejects_when_more_words_are_wrong_than_the_bound() -> None:
    text = "one two three four five six seven eight nine ten"
    heard = "one two three for fife six seven eight nine ten"
    assert judge(text, KNOWN, KNOWN, heard_as(ENGINE), Script(text, heard)).problems
    assert not judge(text, KNOWN, KNOWN, heard_as(ENGINE), Script(heard, heard)).problems


def test_judge_rejects_when_a_long_pause_was_heard() -> None:
    paused = np.insert(ENGINE, 6 * RATE_HZ, np.zeros(round(0.8 * RATE_HZ)))
    verdict = judge("a b", KNOWN, KNOWN, heard_as(paused), Script("a b", "a b"))
    assert any("gap" in problem for problem in verdict.problems)


def test_spoken_words_agree_when_numbers_are_written_or_said() -> None:
    written = "Order 4521 on March 3rd, at 7:30 PM: $42.50, 12% off. It's OK, Dr. Lee."
    said = (
        "order four thousand five hundred twenty one on march third at seven thirty p.m. "
        "forty-two dollars and fifty cents twelve percent off it is okay doctor lee"
    )
    assert spoken_words(written) == spoken_words(said)


@pytest.mark.parametrize(
    ("text", "understood", "rate"),
    [
        ("one two three four", "one two three four", 0.0),
        ("one two three four", "one three four", 0.25),
        ("one two three four", "one two two three four", 0.25),
        ("one two three four", "", 1.0),
    ],
)
def test_word_error_rate_counts_words(text: str, understood: str, rate: float) -> None:
    assert word_error_rate(text, understood) == rate


def test_edit_distance_is_symmetric() -> None:
    left, right = "a b c d e".split(), "a c d x e f".split()
    assert edit_distance(left, right) == edit_distance(right, left) == 3
