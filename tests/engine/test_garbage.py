"""Requests leave nothing behind that a search for garbage would have to find."""

from playhead.engine.messages import Append, Cancel, Close, Submit
from playhead.engine.text.entry import open_text
from playhead.engine.text.qwen_bpe import QwenBpeFrontEnd
from tests.engine.driver import Driver, spoken
from tests.garbage import left_behind
from tests.text.test_entry import QWEN, QWEN_FOLDER

MARKED = "# News\n- **Rent** is $1,200 😀 at 5 pm, `x_y`; see https://a.com/b?c=d for 3 of 4."


def test_requests_leave_nothing_to_be_searched_for() -> None:
    driver = Driver()
    driver.submit(spoken("Good morning.", request_id="warm"))
    driver.finish("warm")
    with left_behind() as found:
        driver.submit(spoken(MARKED, request_id="done", pronunciations=(("rent", "RENT"),)))
        driver.submit(Submit("cut", text="One two three four five six seven eight nine."))
        driver.engine.post(Append("cut", " Ten."))
        driver.submit(spoken("", request_id="nobody", voice="nobody"))
        driver.run(0.3)
        driver.engine.post(Cancel("cut"))
        driver.engine.post(Close("cut"))
        driver.finish("done", "cut", "nobody")
        driver.results.clear()
        driver.order.clear()
        driver.listeners.clear()
    assert not found


def test_texts_of_every_stage_leave_nothing() -> None:
    front_end = QwenBpeFrontEnd(QWEN_FOLDER)
    with left_behind() as found:
        for language in ("auto", "german", "chinese"):
            stream = open_text(front_end, QWEN, language, True, (("rent", "RENT"),))
            for char in MARKED:
                stream.push(char)
            stream.close()
            del stream
    assert not found
