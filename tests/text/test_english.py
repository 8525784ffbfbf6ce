"""The English front end: reading, rows in step, and text that arrives in pieces."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.engine.errors import CheckpointError
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.text.english.front_end import EnglishFrontEnd, pieces_of
from playhead.engine.text.english.lexicon import load_lexicon
from playhead.engine.text.english.normalise import plain, spoken
from playhead.engine.text.english.phonemes import (
    NUM_SOUNDS,
    PAIR_BASE,
    PAUSES,
    SILENCE,
    SOUNDS,
    written,
)
from playhead.engine.text.english.piece import run_of
from playhead.engine.text.unit import TextUnit


@pytest.fixture(scope="module")
def front_end() -> EnglishFrontEnd:
    return EnglishFrontEnd(EMBEDDED_VOICE)


def read(text: str) -> str:
    """Return spoken words and pauses of a text, joined by spaces."""
    before, out = "", []
    for piece, following in pieces_of(text):
        core = plain(piece)
        out += spoken(core, before, following)
        before = run_of(before, core) if core else before
    return " ".join(out)


def units_of(front_end: EnglishFrontEnd, parts: Iterable[str]) -> list[TextUnit]:
    stream = front_end.open()
    units = [unit for part in parts for unit in stream.push(part)]
    return units + stream.close()


def sounds_of_rows(units: list[TextUnit]) -> list[str]:
    """Return the sounds of all rows with repeats removed."""
    slots = [
        SOUNDS[half]
        for unit in units
        for row in unit.token_ids
        for half in divmod(row - PAIR_BASE, NUM_SOUNDS)
    ]
    return [sound for at, sound in enumerate(slots) if at == 0 or slots[at - 1] != sound]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I have 365 days.", "i have three hundred sixty five days ."),
        ("It cost $42.50.", "it cost forty two dollars and fifty cents ."),
        ("Pay $1 or $5 million now", "pay one dollar or five million dollars now"),
        ("$1,250.75!", "one thousand two hundred fifty dollars and seventy five cents !"),
        ("on March 3rd, 1998", "on march third , nineteen ninety eight"),
        ("May 5 and I may 5", "may fifth and i may five"),
        ("12/25/2024", "december twenty fifth , twenty twenty four"),
        ("2024-03-05", "march fifth , twenty twenty four"),
        ("At 7:30 PM or 6:05am.", "at seven thirty P M or six oh five A M ."),
        ("I am up at 9 am.", "i am up at nine A M ."),
        ("5 p.m. The end", "five P M . the end"),
        ("5 p.m. today", "five P M today"),
        ("Call 555-0142", "call five five five , zero one four two"),
        ("code 4521 and order 88213", "code four five two one and order eight eight two one three"),
        ("A7X9", "A seven X nine"),
        ("S, I, O.", "S , i , O ."),
        ("Plan A is a plan", "plan A is a plan"),
        ("Dr. Smith vs. Mr. Lee", "doctor smith versus mister lee"),
        ("St. Louis, Main St. is", "saint louis , main street is"),
        ("25°C or 5kg or 1 km", "twenty five degrees celsius or five kilograms or one kilometer"),
        ("50% of 3/4", "fifty percent of three quarters"),
        ("the 22nd of the 1990s", "the twenty second of the nineteen nineties"),
        ("bob@example.com", "bob at example dot com"),
        ("e.g. this — that", "for example this , that"),
        ("**bold** `code` (aside)", "bold code , aside ,"),
        ("well-known", "well known"),
        (
            "+44 20 7946 0958 now",
            "plus forty four two zero , seven nine four six , zero nine five eight now",
        ),
        ("add +1 200 times", "add plus one two hundred times"),
        (
            "pay 4111 1111 1111 1111",
            "pay"
            + " , four one one one , one one one one"[2:]
            + " , one one one one , one one one one",
        ),
        ("v1.2.3 and 1.000.000", "V one point two point three and one million"),
        ("~5 or ~~5~~ or 5~10", "about five or five or five to ten"),
        ("-$5, $-5, $.99", "minus five dollars , minus five dollars , ninety nine cents"),
        ("café", "cafe"),
        ("😀 *** ~~", ""),
    ],
)
def test_normalise_reads_written_forms(text: str, words: str) -> None:
    assert read(text) == words


@pytest.mark.parametrize(
    ("word", "sounds"),
    [
        ("hello", ["həlˈO"]),
        ("the", ["ðə"]),
        ("NASA", ["nˈæsə"]),
        ("FBI", ["ˈɛf", "bˈi", "ˈI"]),
        ("W", ["dˈʌbəlju"]),
        ("reservation's", ["ɹˌɛzəɹvˈAʃənz"]),
    ],
)
def test_lexicon_pronounces(word: str, sounds: list[str]) -> None:
    assert load_lexicon(EMBEDDED_VOICE).pronounce(word, before_pause=False) == sounds


def test_lexicon_guesses_when_word_is_unknown() -> None:
    lexicon = load_lexicon(EMBEDDED_VOICE)
    for word in ("zyxgor", "blorptish", "kubernetes"):
        assert lexicon.pronounce(word, before_pause=False)[0]


def test_weak_word_is_strong_when_a_pause_follows(front_end: EnglishFrontEnd) -> None:
    assert "ə" in sounds_of_rows(units_of(front_end, ["go to town."]))
    assert sounds_of_rows(units_of(front_end, ["go to."]))[-2] in ("ˈu", "u")


def test_article_is_thee_when_a_vowel_follows(front_end: EnglishFrontEnd) -> None:
    assert sounds_of_rows(units_of(front_end, ["the apple."]))[:2] == ["ð", "i"]
    assert sounds_of_rows(units_of(front_end, ["the pear."]))[:2] == ["ð", "ə"]


@pytest.mark.parametrize(
    "text",
    [
        "Hello, thanks for calling. How can I help you today?",
        "The total is $5 million, due on the 8th at 7:30 p.m. Thanks!",
        "Dr. Ng met the Oxford team\n- first item\n- second item 😀 done",
        "A B2B code: A7X9... spelled S I O B H A N",
        "   leading and   wide   spaces  ",
    ],
)
def test_units_are_equal_when_text_comes_by_characters(
    front_end: EnglishFrontEnd, text: str
) -> None:
    whole = units_of(front_end, [text])
    assert units_of(front_end, text) == whole
    assert "".join(unit.text for unit in whole) == text


ALPHABET = st.sampled_from(
    [*list("aeIto AB.,'!?$5:17-/%()\n\t@#*é—😀"), "the ", "Dr. ", "pm ", "st"]
)


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(ALPHABET, max_size=40), cuts=st.randoms())
def test_any_text_survives_when_cut_anywhere(parts: list[str], cuts: object) -> None:
    front_end = EnglishFrontEnd(EMBEDDED_VOICE)
    text = "".join(parts)
    whole = units_of(front_end, [text])
    assert "".join(unit.text for unit in whole) == text
    assert units_of(front_end, parts) == whole
    assert units_of(front_end, text) == whole


def test_long_run_without_spaces_is_released(front_end: EnglishFrontEnd) -> None:
    stream = front_end.open()
    assert stream.push("a" * 1000)
    text = "x" * 1234
    assert units_of(front_end, text) == units_of(front_end, [text])


def test_first_word_is_released_when_the_second_is_complete(front_end: EnglishFrontEnd) -> None:
    stream = front_end.open()
    assert stream.push("Hello there") == []
    assert [unit.text for unit in stream.push(" ")] == ["Hello "]
    assert [unit.text for unit in front_end.open().push("Yes. I")] == ["Yes. "]


def test_unspeakable_text_has_no_rows(front_end: EnglishFrontEnd) -> None:
    for text in ("😀", "***", "   ", ""):
        assert all(not unit.token_ids for unit in units_of(front_end, [text]))


def test_word_rows_follow_one_another(front_end: EnglishFrontEnd) -> None:
    units = units_of(front_end, ["Your order number 4521 ships on March 3rd, today."])
    first_row, last_end = 0, 0.5
    for unit in units:
        assert unit.word_rows is not None
        start, end = (first_row + at for at in unit.word_rows)
        assert last_end <= start < end
        last_end = end
        first_row += len(unit.token_ids)
    assert last_end <= first_row + 1


def test_sentence_end_is_marked(front_end: EnglishFrontEnd) -> None:
    units = units_of(front_end, ["Dr. Lee is in. Come, please\nNow"])
    assert [unit.sentence_end for unit in units] == [False, False, False, True, False, True, True]


def test_rate_changes_length(front_end: EnglishFrontEnd) -> None:
    text = "The quick brown fox jumps over the lazy dog near the river bank."
    normal = sum(len(unit.token_ids) for unit in units_of(front_end, [text]))
    slow_end = EnglishFrontEnd(EMBEDDED_VOICE, rate=0.7)
    slow = sum(len(unit.token_ids) for unit in units_of(slow_end, [text]))
    assert 1.25 < slow / normal < 1.6


def test_rows_equal_the_checkpoint_tokenizer(front_end: EnglishFrontEnd) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(EMBEDDED_VOICE / "tokenizer.json"))
    units = units_of(front_end, ["Gate B17 closes at 11:35."])
    rows = [row for unit in units for row in unit.token_ids]
    assert tokenizer.encode(written(rows)).ids == rows


def test_speech_starts_with_the_second_frame(front_end: EnglishFrontEnd) -> None:
    first = units_of(front_end, ["Hello."])[0]
    assert first.word_rows is not None and first.word_rows[0] == 1.0
    sounds = sounds_of_rows([first])
    assert sounds[0] not in (SILENCE, *PAUSES)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="lexicon"):
        EnglishFrontEnd(tmp_path)
    (tmp_path / "lexicon.txt.gz").write_bytes((EMBEDDED_VOICE / "lexicon.txt.gz").read_bytes())
    with pytest.raises(CheckpointError, match="durations"):
        EnglishFrontEnd(tmp_path)


def test_durations_are_plausible(front_end: EnglishFrontEnd) -> None:
    units = units_of(front_end, ["Seventeen friendly elephants walked slowly to the old river."])
    num_sounds = len(sounds_of_rows(units))
    num_slots = 2 * sum(len(unit.token_ids) for unit in units)
    assert 1.2 < num_slots / num_sounds < 3.5
    assert np.isfinite(num_slots)
