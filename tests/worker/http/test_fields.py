"""Fields: one table says what is allowed; each violation names its field."""

from typing import Any

import pytest

from playhead.engine.errors import PlayheadError
from playhead.engine.messages import Sampling
from playhead.engine.models.config import _RANGES
from playhead.worker.http.fields import Known, control_fields, read_speech
from playhead.worker.http.problem import Problem, problem_of
from playhead.worker.http.schema import parse_object
from playhead.worker.http.voices import Models, Voices, read_aliases

KNOWN = Known(
    voices=("vivian", "ryan", "nova"),
    languages=("english", "german"),
    aliases=Voices({"Narrator": "ryan"}),
    models=Models("owner/some-model"),
    max_chars=50,
    instructable=True,
)


def problem(**body: Any) -> Problem:
    with pytest.raises(PlayheadError) as caught:
        read_speech({"input": "Hello.", **body}, KNOWN, "r")
    return problem_of(caught.value)


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"input": ""}, 400, "invalid_request", "input"),
        ({"input": " \n"}, 400, "invalid_request", "input"),
        ({"input": 7}, 400, "invalid_request", "input"),
        ({"input": "a" * 51}, 413, "text_too_long", "input"),
        ({"input": "\ud800"}, 400, "invalid_request", "input"),
        ({"colour": 1}, 400, "unknown_field", "colour"),
        ({"voice": "nobody"}, 400, "unknown_voice", "voice"),
        ({"voice": {"id": "nobody"}}, 400, "unknown_voice", "voice"),
        ({"voice": 3}, 400, "invalid_request", "voice"),
        ({"language": "klingon"}, 400, "unknown_language", "language"),
        ({"model": "gpt-9"}, 404, "model_not_found", "model"),
        ({"speed": 0.2}, 400, "invalid_request", "speed"),
        ({"speed": 4.01}, 400, "invalid_request", "speed"),
        ({"speed": 10**400}, 400, "invalid_request", "speed"),
        ({"speed": True}, 400, "invalid_request", "speed"),
        ({"response_format": "ogg"}, 400, "invalid_request", "response_format"),
        ({"seed": -1}, 400, "invalid_request", "seed"),
        ({"seed": 1.5}, 400, "invalid_request", "seed"),
        ({"seed": True}, 400, "invalid_request", "seed"),
        ({"top_p": 1.1}, 400, "invalid_request", "top_p"),
        ({"max_new_tokens": 0}, 400, "invalid_request", "max_new_tokens"),
        ({"normalize": "no"}, 400, "invalid_request", "normalize"),
        ({"pronunciations": [["a", "b"]]}, 400, "invalid_request", "pronunciations"),
        ({"pronunciations": {"a": 1}}, 400, "invalid_request", "pronunciations"),
        ({"pronunciations": {"a": " "}}, 400, "invalid_request", "pronunciations"),
        ({"pronunciations": {" ": "b"}}, 400, "invalid_request", "pronunciations"),
        ({"pronunciations": {"a" * 65: "b"}}, 400, "invalid_request", "pronunciations"),
        ({"pronunciations": {"a": "b" * 201}}, 400, "invalid_request", "pronunciations"),
        ({"pronunciations": {"a": "/hql/"}}, 400, "invalid_request", "pronunciations"),
        (
            {"pronunciations": {f"w{i}": "b" for i in range(201)}},
            400,
            "invalid_request",
            "pronunciations",
        ),
        ({"stream_format": "sse", "stream": False}, 400, "contradiction", "stream"),
        ({"instruct": "a", "instructions": "b"}, 400, "contradiction", "instruct"),
        ({"subtalker_top_k": 1, "predictor_top_k": 2}, 400, "contradiction", "predictor_top_k"),
    ],
)
def test_refuses_and_names_the_field(
    body: dict[str, Any], status: int, code: str, param: str
) -> None:
    found = problem(**body)
    assert (found.status, found.code, found.param) == (status, code, param)
    assert "Hello" not in str(found)


def test_missing_input_is_named() -> None:
    with pytest.raises(Problem) as caught:
        read_speech({}, KNOWN, "r")
    assert (caught.value.code, caught.value.param) == ("missing_field", "input")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000])
def test_refuses_what_is_no_json_object(body: bytes) -> None:
    with pytest.raises(Problem) as caught:
        parse_object(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("body", "live", "made"),
    [
        ({}, False, "mp3"),
        ({"response_format": "pcm"}, True, "pcm"),
        ({"response_format": "pcm", "stream": False}, False, "pcm"),
        ({"response_format": "wav", "stream": True}, True, "wav"),
        ({"stream_format": "sse"}, True, "mp3"),
    ],
)
def test_files_are_offline_and_streams_live(body: dict[str, Any], live: bool, made: str) -> None:
    asked = read_speech({"input": "Hello.", **body}, KNOWN, "r")
    assert (asked.live, asked.submit.live, asked.response_format) == (live, live, made)


@pytest.mark.parametrize(
    ("name", "speaker"),
    [
        ("Vivian", "vivian"),
        ("narrator", "ryan"),
        ("nova", "nova"),  # a speaker's own name is never an alias
        ("alloy", "vivian"),
        ("ash", "ryan"),
        ({"id": "ryan"}, "ryan"),
    ],
)
def test_voices_have_aliases(name: Any, speaker: str) -> None:
    assert read_speech({"input": "Hi", "voice": name}, KNOWN, "r").submit.voice == speaker


def test_openais_names_can_be_given_to_other_voices() -> None:
    voices = ("vivian", "ryan")
    assert Voices({}).resolve("alloy", voices) == "vivian"
    assert Voices({"alloy": "Ryan"}).resolve("Alloy", voices) == "ryan"
    assert Voices({"alloy": "ryan"}).aliases(voices)["ash"] == "ryan", "the others stay"
    assert Voices({"alloy": "gone"}).unknown(voices) == ["alloy"]


def test_every_control_reaches_the_engine() -> None:
    body = {
        "input": "Hi",
        "language": "German",
        "instructions": "Calmly.",
        "seed": 7.0,
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.9,
        "repetition_penalty": 1.2,
        "predictor_temperature": 0.4,
        "subtalker_top_k": 5,
        "subtalker_top_p": 0.7,
        "max_new_tokens": 99,
        "non_streaming_mode": True,
        "normalize": False,
        "pronunciations": {"SQL": "sequel", "Ng": "/ɪŋ/"},
    }
    submit = read_speech(body, KNOWN, "r").submit
    assert submit.sampling == Sampling(0.5, 3, 0.9, 1.2, 0.4, 5, 0.7)
    assert (submit.language, submit.instruct, submit.seed) == ("german", "Calmly.", 7)
    assert (submit.max_frames, submit.text_mode, submit.closed) == (99, "full", True)
    assert not submit.normalize
    assert submit.pronunciations == (("SQL", "sequel"), ("Ng", "/ɪŋ/"))
    greedy = {"input": "Hi", "do_sample": False, "subtalker_dosample": False, "temperature": 1}
    sampling = read_speech(greedy, KNOWN, "r").submit.sampling
    assert (sampling.temperature, sampling.predictor_temperature) == (0.0, 0.0)


def test_ranges_are_the_engines_own() -> None:
    fields = control_fields(KNOWN)
    for name, (low, high) in _RANGES.items():
        for prefix in ("", "subtalker_", "predictor_"):
            if prefix + name in fields:
                schema = fields[prefix + name]
                assert (schema["minimum"], schema["maximum"]) == (low, high), prefix + name
    assert {"predictor_top_p", "subtalker_temperature", "repetition_penalty"} <= fields.keys()


@pytest.mark.parametrize("pair", ["nova", "=ryan", "nova="])
def test_a_wrong_alias_is_named(pair: str) -> None:
    with pytest.raises(PlayheadError, match="NAME=VOICE"):
        read_aliases([pair])
