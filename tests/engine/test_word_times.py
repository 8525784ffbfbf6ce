"""Words are sent to callers that want them, and their absence changes nothing else."""

from playhead.engine.messages import Words
from tests.engine.driver import Driver, spoken


def test_a_caller_that_wants_no_words_gets_the_same_audio_without_them() -> None:
    driver = Driver()
    driver.submit(spoken("Good morning.", "with", live=False))
    driver.submit(spoken("Good morning.", "without", live=False, word_times=False))
    driver.finish("with", "without")
    assert "".join(word.text for word in driver.words("with")) == "Good morning."
    assert not [each for each in driver.results["without"] if isinstance(each, Words)]
    assert len(driver.pcm("with")) > 0
    assert driver.pcm("with").tobytes() == driver.pcm("without").tobytes()
