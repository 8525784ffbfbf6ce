"""Word times of the embedded voice against a forced alignment of its own speech."""

import numpy as np
import pytest

pytest.importorskip("pocketsphinx")

from tests.bench.word_times import Aligner, drift_s, held_out, is_monotonic, long_text, speak

NUM_SENTENCES = 4
P50_S, P95_S = 0.080, 0.200
DRIFT_S = 0.080


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_words_are_where_an_aligner_hears_them() -> None:
    aligner = Aligner()
    errors = []
    for seed, text in enumerate(held_out(aligner, NUM_SENTENCES)):
        words, pcm = speak(text, seed)
        assert is_monotonic(words)
        errors.append(np.abs(aligner.align(words, pcm).start_errors))
    every = np.concatenate(errors)
    assert len(every) > 25
    assert np.percentile(every, 50) <= P50_S
    assert np.percentile(every, 95) <= P95_S


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_words_do_not_drift_over_a_minute() -> None:
    aligner = Aligner()
    words, pcm = speak(long_text(aligner))
    assert is_monotonic(words)
    assert abs(drift_s(aligner.align(words, pcm))) < DRIFT_S
