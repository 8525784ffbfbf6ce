import pytest

from playhead.engine.errors import InputError
from playhead.engine.messages import Sampling, Submit, Word
from playhead.worker.heard import begun, heard_text
from playhead.worker.text_intake import printable
from playhead.worker.text_request import TextRequest, read_request, request_id_of


def test_request_has_defaults_when_nothing_is_asked_for() -> None:
    assert read_request({}, "stream") == TextRequest("stream", Submit("stream"), cut=False)


def test_every_attribute_is_read_when_given() -> None:
    request = read_request(
        {
            "request_id": "r1",
            "voice": "ann",
            "language": "german",
            "instruct": "softly",
            "seed": "7",
            "mode": "interrupt",
            "text_mode": "full",
            "temperature": "0.5",
            "top_k": "40",
            "predictor_top_p": "0.9",
            "max_frames": "100",
            "normalize": "false",
            "pronunciations": '{"SQL": "sequel"}',
            "lk.something": "ignored",
        },
        "stream",
    )
    assert request.request_id == "r1" and request.cut
    assert request.submit == Submit(
        request_id="r1",
        voice="ann",
        language="german",
        instruct="softly",
        seed=7,
        text_mode="full",
        sampling=Sampling(temperature=0.5, top_k=40, predictor_top_p=0.9),
        max_frames=100,
        normalize=False,
        pronunciations=(("SQL", "sequel"),),
    )
    assert isinstance(request.submit.sampling.top_k, int)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"vioce": "x"}, "did you mean voice"),
        ({"qqq": "x"}, "known: "),
        ({"seed": "x"}, "seed is 'x'"),
        ({"seed": "-1"}, "seed is '-1'"),
        ({"seed": str(2**64)}, "whole number"),
        ({"seed": "9" * 5000}, "whole number"),
        ({"temperature": "nan"}, "temperature is 'nan'"),
        ({"temperature": "warm"}, "a number"),
        ({"normalize": "yes"}, "true, false"),
        ({"pronunciations": "SQL=sequel"}, "JSON object of strings"),
        ({"pronunciations": '{"a": 1}'}, "JSON object of strings"),
        ({"pronunciations": '{"a": ""}'}, "respelling of 'a'"),
        ({"mode": "shout"}, "append, interrupt"),
        ({"text_mode": "half"}, "streaming, full"),
    ],
)
def test_request_says_what_is_wrong_when_an_attribute_is_bad(
    attributes: dict[str, str], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        read_request(attributes, "stream")


def test_stream_id_names_the_request_when_its_own_name_is_unfit() -> None:
    assert request_id_of({"request_id": ""}, "s") == "s"
    assert request_id_of({"request_id": "x" * 200}, "s") == "s"


WORDS = (Word("One ", 0.0, 0.4), Word("two ", 0.4, 0.8), Word("three.", 1.0, 1.6))


@pytest.mark.parametrize(
    ("heard_s", "text", "num_begun"),
    [
        (0.0, "", 1),
        (0.19, "", 1),
        (0.21, "One", 1),
        (0.5, "One", 2),
        (0.61, "One two", 2),
        (0.9, "One two", 2),
        (1.29, "One two", 3),
        (1.31, "One two three.", 3),
        (9.0, "One two three.", 3),
    ],
)
def test_word_counts_as_heard_when_more_than_half_sounded(
    heard_s: float, text: str, num_begun: int
) -> None:
    assert heard_text(WORDS, heard_s) == text
    assert begun(WORDS, heard_s) == num_begun


def test_text_is_made_encodable_when_it_is_broken() -> None:
    assert printable("a\ud800b\0c ü😀") == "a?bc ü😀"
