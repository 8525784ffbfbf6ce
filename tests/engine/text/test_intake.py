"""What a Submit asks of the text reaches the engine: pronunciations, markup, captions."""

import pytest

from playhead.engine.messages import Refused, Submit
from tests.engine.driver import Driver


def test_pronunciation_that_cannot_be_used_is_refused() -> None:
    driver = Driver()
    driver.submit(Submit("r", text="Hi.", closed=True, pronunciations=(("Hi", "/hq/"),)))
    driver.finish("r")
    (refused,) = driver.results["r"]
    assert isinstance(refused, Refused)
    assert (refused.code, refused.retry_s) == ("invalid_request", None)
    assert "'hq'" in refused.message


@pytest.mark.slow
def test_markup_is_in_the_captions_and_not_in_the_speech() -> None:
    driver = Driver()
    text = "**Hi** 😀 [there](http://a.b/c)."
    driver.submit(Submit("marked", text=text, closed=True, live=False))
    driver.submit(Submit("plain", text="Hi there.", closed=True, live=False))
    driver.finish("marked", "plain")
    assert "".join(word.text for word in driver.words("marked")) == text
    assert driver.done("marked").num_frames == driver.done("plain").num_frames
