"""Plain words are taken many at once: they come out as if every rule had been asked for each."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Encoding, Tokenizer

from playhead.engine.text.qwen_bpe import QwenBpeFrontEnd, QwenBpeStream, load_tokenizer
from playhead.engine.text.spoken import english
from playhead.engine.text.spoken.clean import Cleaner
from playhead.engine.text.spoken.reader import Reader
from playhead.engine.text.spoken.transducer import Transducer
from playhead.engine.text.staged import Span

pytest.importorskip("babel")
pytest.importorskip("unicode_rbnf")

QWEN_FOLDER = Path(__file__).parents[1] / "data" / "goldens" / "qwen_bpe"
WORD = st.sampled_from(
    "the and is are you that it we Henry act don't I'd o'clock well-known II V Dr St no am kg m s "
    "million der die das und nicht que les 5 10 $5 3rd ½ x² www http https ftp www.a.com "
    "http://b.c wh ft h W F café für что 今天 사과 NASA 😀 **b** `c` a_b".split()
)
BEHIND = st.sampled_from(
    [" "] * 12 + [", ", ". ", "? ", "! ", ": ", "; ", "\n", "\n- ", "\n| ", "\n1. ", "  ", "\t"]
    + [".", ",", "!", "![", ":)", ": )", "-", "’", "'", "(", ") ", "...", "”", "`", "|", "_", ""]
)  # fmt: skip
TEXTS = st.lists(st.tuples(WORD, BEHIND), max_size=16).map(
    lambda pairs: "".join(word + behind for word, behind in pairs)
)
CUTS = st.lists(st.integers(0, 12), max_size=12)


class RulesAlone(Cleaner):
    """Asks its rules at every place."""

    def _prose(self, text: str, at: int) -> Span | None:
        return None


class PiecesAlone(Reader):
    """Looks at every piece of English by itself."""

    def _end_of_plain(self, text: str, at: int) -> int:
        return at


class CountingTokenizer:
    """Counts the characters it is given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.num_chars = 0

    def encode(self, text: str, add_special_tokens: bool) -> Encoding:
        self.num_chars += len(text)
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)


def cut(text: str, sizes: list[int]) -> list[str]:
    parts, at = [], 0
    for size in sizes:
        parts.append(text[at : at + size])
        at += size
    return [*parts, text[at:]]


def pushed(stage: Transducer, parts: list[str]) -> list[list[Span]]:
    return [*(stage.push(part) for part in parts), stage.close()]


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, sizes=CUTS)
@example(text="so www.a.com", sizes=[4])
@example(text="| a | b |\n", sizes=[])
def test_prose_is_cleaned_as_by_the_rules(text: str, sizes: list[int]) -> None:
    parts = cut(text, sizes)
    assert pushed(Cleaner(), parts) == pushed(RulesAlone(), parts)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, sizes=CUTS, language=st.sampled_from(["en", None]))
@example(text="the and is 5 kg of it", sizes=[], language="en")
@example(text="you are at Henry II. and the Dr. Who", sizes=[], language=None)
@example(text="the and der-die das nicht und mit z. B. 5", sizes=[], language=None)
def test_english_words_are_read_as_piece_by_piece(
    text: str, sizes: list[int], language: str | None
) -> None:
    parts = cut(text, sizes)
    assert pushed(Reader(language), parts) == pushed(PiecesAlone(language), parts)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_a_plain_word_is_never_one_that_is_said_otherwise(text: str) -> None:
    end = english.plain_end(text, 0)
    before = ""
    for piece in text[:end].split():
        assert not english.is_written(piece, before), piece
        before = piece


def test_plain_words_are_taken_to_the_full_stop() -> None:
    text = "We don't know, do you? A well-known one. Then"
    assert text[: english.plain_end(text, 0)] == text[: text.index("Then")]
    assert english.plain_end("it is Mr. X ", 0) == len("it is ")


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.sampled_from("abT's l12 .,!-#\n\r\t\x0b\x1c|<"), max_size=40), sizes=CUTS)
def test_ids_of_words_are_those_of_the_text(text: str, sizes: list[int]) -> None:
    front_end = QwenBpeFrontEnd(QWEN_FOLDER)
    assert front_end._words is not None
    whole = QwenBpeStream(front_end._tokenizer, front_end._borders, None)
    words = front_end.open()
    for part in cut(text, sizes):
        assert words.push(part) == whole.push(part)
    assert words.close() == whole.close()


def test_a_tokenizer_that_cuts_otherwise_is_asked_for_all(tmp_path: Path) -> None:
    values = json.loads(load_tokenizer(QWEN_FOLDER).to_str())
    split = values["pre_tokenizer"]["pretokenizers"][0]
    split["pattern"]["Regex"] = split["pattern"]["Regex"].replace(r"\p{N}", r"\p{N}{1,3}")
    (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    stream = QwenBpeFrontEnd(tmp_path).open()
    units = stream.push("In 2024 we") + stream.close()
    assert [unit.text for unit in units] == ["In", " ", "202", "4", " we"]


@pytest.mark.parametrize("letters", ["äöüßéèàç", "абвгдежз"])
def test_a_word_without_end_is_not_read_again_for_every_part(letters: str) -> None:
    front_end = QwenBpeFrontEnd(QWEN_FOLDER)
    tokenizer = CountingTokenizer(front_end._tokenizer)
    stream = QwenBpeStream(tokenizer, front_end._borders, front_end._words)  # type: ignore[arg-type]
    units = [unit for _ in range(500) for unit in stream.push(letters)] + stream.close()
    assert [unit.text for unit in units] == [letters * 500]
    assert tokenizer.num_chars <= len(letters) * 501
