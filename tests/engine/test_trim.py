"""Leading-silence trim: 200 clips with a known onset; a constant drop must fail the same check."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from playhead.engine.trim import MAX_SILENCE_S, LeadingSilenceTrim
from playhead.engine.units import FRAME_SAMPLES, SAMPLE_RATE_HZ

Clip = NDArray[np.float32]
TIME_S = np.arange(SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ


def ramp(length_s: float) -> NDArray[np.float64]:
    return np.minimum(TIME_S / length_s, 1.0)


def voiced(hz: float, level: float) -> NDArray[np.float64]:
    return level * (np.sin(2 * np.pi * hz * TIME_S) + 0.5 * np.sin(4 * np.pi * hz * TIME_S))


def plosive(rng: np.random.Generator) -> NDArray[np.float64]:
    burst = 0.25 * np.exp(-TIME_S / 0.003) * rng.standard_normal(SAMPLE_RATE_HZ)
    voice_onset = SAMPLE_RATE_HZ * 40 // 1000
    burst[voice_onset:] += voiced(140, 0.1)[:-voice_onset]
    return burst


def fricative(level_db: float, attack_s: float) -> Callable[[np.random.Generator], Clip]:
    def make(rng: np.random.Generator) -> Clip:
        noise = rng.standard_normal(SAMPLE_RATE_HZ) * 10 ** (level_db / 20)
        return np.asarray(noise * ramp(attack_s), np.float32)

    return make


ONSETS: dict[str, Callable[[np.random.Generator], NDArray]] = {
    "plosive": plosive,
    "h": fricative(-42, 0.010),
    "f": fricative(-40, 0.015),
    "s": fricative(-34, 0.020),
    "soft vowel": lambda rng: voiced(rng.uniform(100, 220), 0.06) * ramp(0.03),
}


def clip(name: str, index: int) -> tuple[Clip, int]:
    """Lead silence or -55 dBFS noise of 0 to 600 ms, then one second of speech."""
    rng = np.random.default_rng(index)
    lead = int(rng.integers(0, 600 * SAMPLE_RATE_HZ // 1000))
    pcm = np.zeros(lead + SAMPLE_RATE_HZ, np.float32)
    if index % 2:
        pcm += (rng.standard_normal(len(pcm)) * 10 ** (-55 / 20)).astype(np.float32)
    pcm[lead:] += ONSETS[name](rng).astype(np.float32)
    return pcm, lead


def run_trim(pcm: Clip, chunk: int = FRAME_SAMPLES) -> tuple[Clip, int]:
    trim = LeadingSilenceTrim()
    starts = range(0, len(pcm), chunk)
    out = [trim.push(pcm[i : i + chunk], last=i + chunk >= len(pcm)) for i in starts]
    return np.concatenate(out), trim.dropped_samples


def kept_before_onset_ms(onset: int, dropped: int) -> float:
    return (onset - dropped) / SAMPLE_RATE_HZ * 1000


@pytest.mark.parametrize("name", ONSETS)
def test_trim_keeps_speech_and_little_before_it(name: str) -> None:
    for index in range(40):
        pcm, onset = clip(name, index)
        out, dropped = run_trim(pcm)
        kept_ms = kept_before_onset_ms(onset, dropped)
        assert kept_ms <= 20, f"{name} {index}: {kept_ms:.1f} ms of silence left"
        assert kept_ms >= -5, f"{name} {index}: {-kept_ms:.1f} ms of speech lost"
        fade = SAMPLE_RATE_HZ * 5 // 1000
        assert np.array_equal(out[fade:], pcm[dropped + fade :])


def test_constant_drop_fails_the_same_check() -> None:
    constant = FRAME_SAMPLES
    kept = [kept_before_onset_ms(clip(n, i)[1], constant) for n in ONSETS for i in range(40)]
    assert any(ms > 20 for ms in kept)
    assert any(ms < -5 for ms in kept)


def test_result_is_the_same_for_every_chunking() -> None:
    pcm, _ = clip("h", 7)
    whole, _ = run_trim(pcm, len(pcm))
    for chunk in (100, 481, FRAME_SAMPLES, 3 * FRAME_SAMPLES):
        assert np.array_equal(run_trim(pcm, chunk)[0], whole)


def test_click_of_the_first_samples_is_no_onset() -> None:
    pcm, onset = clip("soft vowel", 8)
    assert onset > SAMPLE_RATE_HZ // 10
    pcm[:60] += np.linspace(0.03, 0.0, 60, dtype=np.float32)
    assert 0 <= kept_before_onset_ms(onset, run_trim(pcm)[1]) <= 20


def test_noise_above_the_fixed_floor_is_learned_and_dropped() -> None:
    rng = np.random.default_rng(5)
    lead = SAMPLE_RATE_HZ // 4
    pcm = (rng.standard_normal(lead + SAMPLE_RATE_HZ) * 10 ** (-48 / 20)).astype(np.float32)
    pcm[lead:] += ONSETS["plosive"](rng).astype(np.float32)
    assert 0 <= kept_before_onset_ms(lead, run_trim(pcm)[1]) <= 20


@pytest.mark.parametrize("name", ONSETS)
def test_speech_from_the_first_sample_on_is_kept_whole(name: str) -> None:
    rng = np.random.default_rng(3)
    _, dropped = run_trim(ONSETS[name](rng).astype(np.float32))
    assert dropped <= SAMPLE_RATE_HZ * 5 // 1000


def test_all_silence_is_bounded() -> None:
    trim = LeadingSilenceTrim()
    frames = int(4.0 * SAMPLE_RATE_HZ / FRAME_SAMPLES)
    passed = sum(len(trim.push(np.zeros(FRAME_SAMPLES, np.float32))) for _ in range(frames))
    total = frames * FRAME_SAMPLES
    assert trim.open
    assert passed >= total - (MAX_SILENCE_S * SAMPLE_RATE_HZ + FRAME_SAMPLES)


def test_short_silent_stream_ends_with_a_breath_only() -> None:
    out, _ = run_trim(np.zeros(10 * FRAME_SAMPLES, np.float32))
    assert 0 < len(out) <= SAMPLE_RATE_HZ * 20 // 1000


def test_speech_waits_until_there_is_as_much_as_asked_for() -> None:
    pcm, onset = clip("plosive", 3)
    whole, dropped = run_trim(pcm)
    trim = LeadingSilenceTrim()
    to_onset, least = onset + 480, 1_200  # 20 ms of speech are there
    assert len(trim.push(pcm[:to_onset], least_samples=least)) == 0 and trim.holds
    assert len(trim.push(pcm[to_onset : to_onset + 24], least_samples=least)) == 0 and trim.holds
    rest = trim.push(pcm[to_onset + 24 :], least_samples=least)
    assert np.array_equal(rest, whole) and trim.dropped_samples == dropped and not trim.holds


def test_speech_that_waits_comes_out_when_no_more_is_asked_for() -> None:
    pcm, onset = clip("plosive", 3)
    for last in (False, True):
        trim = LeadingSilenceTrim()
        trim.push(pcm[: onset + 480], least_samples=48_000)
        kept = trim.push(pcm[:0], last=last)
        assert len(kept) >= 480 and trim.open and not trim.holds


def test_everything_passes_after_the_onset() -> None:
    trim = LeadingSilenceTrim()
    trim.push(np.full(FRAME_SAMPLES, 0.5, np.float32) * np.tile([1, -1], 960).astype(np.float32))
    silence = np.zeros(FRAME_SAMPLES, np.float32)
    assert len(trim.push(silence)) == FRAME_SAMPLES
