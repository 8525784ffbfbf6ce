"""Exact words: stored codes of teacher sentences through codec, trim, chunks and a recogniser."""

import pytest

from playhead.engine.messages import Submit
from tests.asr import wer
from tests.engine.driver import Driver, recording

SENTENCES = ("directions", "help_desk", "money")


@pytest.mark.slow
@pytest.mark.parametrize("name", SENTENCES)
def test_stored_sentence_is_heard_word_for_word(name: str) -> None:
    stored = recording(name)
    driver = Driver()
    driver.submit(Submit("r", recording=stored))
    driver.finish("r")
    assert len({c.num_frames for c in driver.chunks("r")}) > 1, "chunks of one size prove little"
    text = "".join(word.text for word in stored.words)
    assert wer(text, driver.pcm("r")) == 0.0
