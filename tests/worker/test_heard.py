"""What was heard at an interruption: 200 random cuts of stored speech against its alignment."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Submit, Word
from playhead.engine.models.loader import load_model
from playhead.engine.receiver import PRIOR_S
from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.heard import heard_text
from tests.engine.driver import TEACHER, Driver, recording

SENTENCES = sorted(path.stem for path in TEACHER.glob("*.npz"))
CUTS_EACH = 20


def decoded(name: str) -> NDArray[np.float32]:
    """The whole sentence through the codec in one call, nothing trimmed."""
    codec = load_model(EMBEDDED_VOICE).codec
    codes = np.frombuffer(recording(name).codes, "<u2").reshape(1, -1, 16)
    state = codec.new_state(1)
    with torch.inference_mode():
        return codec.decode(torch.from_numpy(codes.astype(np.int64)), state, [0])[0].numpy()


def lead_s(published: NDArray[np.int16], whole: NDArray[np.float32]) -> float:
    """Where the published speech begins in the untrimmed waveform, by correlation."""
    part = published[2_400:7_200].astype(np.float32)
    scores = np.correlate(whole[: len(part) + 24_000], part, "valid")
    return (int(scores.argmax()) - 2_400) / SAMPLE_RATE_HZ


def truly_heard(words: tuple[Word, ...], until_s: float) -> int:
    """How many words of the alignment had begun to an extent of half before a moment."""
    return sum((word.start_s + word.end_s) / 2 < until_s for word in words)


@pytest.mark.parametrize("name", SENTENCES)
def test_heard_text_is_right_to_one_word_at_random_cuts(name: str) -> None:
    stored = recording(name)
    driver = Driver()
    driver.submit(Submit("r", recording=stored))
    rng = np.random.default_rng(len(name))
    whole = decoded(name)
    first_exit_s, cuts = 0.0, []
    at_s = sorted(driver.now_s + rng.uniform(0.1, len(whole) / SAMPLE_RATE_HZ, CUTS_EACH))
    while at_s:
        driver.step()
        clock = driver.listeners["r"]
        if not first_exit_s and clock.pushed_samples:
            first_exit_s = driver.now_s - 0.01
        while at_s and at_s[0] <= driver.now_s:
            moment_s = at_s.pop(0)
            heard_s = clock.heard_samples(moment_s) / SAMPLE_RATE_HZ
            cuts.append((moment_s, heard_text(driver.words("r"), heard_s)))
    driver.finish("r")
    assert driver.listeners["r"].gaps == []
    lead = lead_s(driver.pcm("r"), whole)
    for moment_s, text in cuts:
        true_s = moment_s - first_exit_s - PRIOR_S["web"]
        expected = truly_heard(stored.words, true_s + lead) if true_s > 0 else 0
        said = next(
            n
            for n in range(len(stored.words) + 1)
            if "".join(w.text for w in stored.words[:n]).strip() == text.strip()
        )
        assert abs(said - expected) <= 1, f"{text!r}: {said} words, true are {expected}"
        if true_s <= 0:
            assert text == ""


def test_there_are_two_hundred_cuts() -> None:
    assert len(SENTENCES) * CUTS_EACH >= 200
