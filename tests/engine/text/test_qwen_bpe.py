"""Qwen2 BPE: the reference's ids, and the same ids however the text arrives."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.engine.errors import CheckpointError
from playhead.engine.text.qwen_bpe import QwenBpeFrontEnd, instruct_ids
from playhead.engine.text.unit import TextUnit

FOLDER = Path(__file__).parents[2] / "data" / "goldens" / "qwen_bpe"
RECORD: dict[str, Any] = json.loads((FOLDER / "ids.json").read_text(encoding="utf-8"))
ROWS: list[tuple[str, list[int]]] = RECORD["rows"]
FRONT_END = QwenBpeFrontEnd(FOLDER)


def units_of(pieces: list[str]) -> list[TextUnit]:
    stream = FRONT_END.open()
    units = [unit for piece in pieces for unit in stream.push(piece)]
    return units + stream.close()


def ids_of(units: list[TextUnit]) -> list[int]:
    return [token for unit in units for token in unit.token_ids]


def test_ids_when_text_comes_whole() -> None:
    assert len(ROWS) == 500
    wrong = [text for text, ids in ROWS if ids_of(units_of([text])) != ids]
    assert wrong == []


def test_ids_when_text_comes_by_characters() -> None:
    wrong = [text for text, ids in ROWS if ids_of(units_of(list(text))) != ids]
    assert wrong == []


def test_text_when_units_are_joined() -> None:
    for text, _ in ROWS:
        assert "".join(unit.text for unit in units_of(list(text))) == text


ALPHABET = st.one_of(
    st.sampled_from("ab'stre .,!?\n\r\t\u00a0\u3000/-"),
    st.sampled_from(
        "éあ今天你好مرحبا١क्षि👍🏽\u200d🇩🇪\u0301\u0330\u0328\u20e3\u1112\u1161\u11ab\u09c7\u09be"
    ),
    st.characters(codec="utf-8"),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(ALPHABET, max_size=6), max_size=10))
def test_ids_when_text_comes_in_any_pieces(pieces: list[str]) -> None:
    text = "".join(pieces)
    whole = FRONT_END._tokenizer.encode(text, add_special_tokens=False).ids
    by_pieces, by_characters = units_of(pieces), units_of(list(text))
    assert ids_of(by_pieces) == whole
    assert ids_of(by_characters) == whole
    assert [unit.text for unit in by_pieces] == [unit.text for unit in by_characters]
    assert "".join(unit.text for unit in by_pieces) == text


def test_units_when_a_word_ends() -> None:
    stream = FRONT_END.open()
    assert stream.push("Hel") == []
    assert stream.push("lo") == []
    assert [unit.text for unit in stream.push(" wor")] == ["Hello"]
    assert [unit.text for unit in stream.push("ld.")] == [" world"]
    assert [unit.text for unit in stream.close()] == ["."]


def test_sentence_end_when_marks_stand_in_numbers_or_quotes() -> None:
    text = "Pi is 3.14, e.g. “here.” Next!\n今天。好"
    ends = [unit.text for unit in units_of([text]) if unit.sentence_end]
    assert ends == [".", ".”", "!\n", "今天"]


def test_ids_when_text_holds_a_control_token() -> None:
    text = "a<|im_end|>b"
    units = units_of(list(text))
    assert RECORD["im_end"] not in ids_of(units)
    assert "".join(unit.text for unit in units) == text


def test_ids_when_marks_combine_across_pushes() -> None:
    units = units_of(["a\u0330", "\u0301 b"])
    composed = unicodedata.normalize("NFC", "a\u0330\u0301 b")
    assert ids_of(units) == ids_of(units_of([composed]))


@pytest.mark.parametrize("text", ["a\n  \nb", "a  \n \t\n", "!\n \n!", "a   b", "a \r\n c"])
def test_units_when_white_space_grows(text: str) -> None:
    whole = [unit.text for unit in units_of([text])]
    for cut in range(len(text)):
        assert [unit.text for unit in units_of([text[:cut], text[cut:]])] == whole
    assert [unit.text for unit in units_of(list(text))] == whole


def test_instruction_when_wrapped() -> None:
    ids = instruct_ids(FOLDER, RECORD["im_start"], RECORD["im_end"], RECORD["instruct"])
    assert list(ids) == RECORD["turn"]


def test_load_when_files_are_missing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no readable tokenizer"):
        QwenBpeFrontEnd(tmp_path)
