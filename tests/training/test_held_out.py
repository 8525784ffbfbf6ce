"""The held-out lines share no template with the training text, and the voice stays small."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from training import sentences, vocabulary

from playhead.engine.library import EMBEDDED_VOICE

ROOT = Path(__file__).parents[2] / "training"
HELD_OUT = ("heldout_clean", "heldout_agent")
WORD = r"[^\W_](?:[\w'.-]*\w)?"
ANYTHING = r"\S(?:.*\S)?"
PHRASES = {"person", "thing", "when"}
"""Slots that are templates themselves."""
JOINTS = re.compile("|".join(re.escape(joint) for joint in vocabulary.JOINTS))
MOST_BYTES = 25 * 10**6
MOST_FILE_BYTES = 15 << 20


def pattern(template: str, wildcard: str) -> str:
    """Return a template as an expression: phrases spelled out, `wildcard` for any other slot."""
    made = []
    for at, piece in enumerate(re.split(r"{(\w+)}", template)):
        if at % 2 == 0:
            made.append(re.escape(piece))
        elif piece in PHRASES:
            made.append(f"(?:{'|'.join(dict.fromkeys(phrases(piece, wildcard)))})")
        else:
            made.append(wildcard)
    return "".join(made)


def phrases(name: str, wildcard: str) -> Iterator[str]:
    """Yield what may stand for a phrase; one that is a slot alone has the words of its list."""
    for each in vocabulary.LISTS[name]:
        if own_words(each):
            yield pattern(each, wildcard)
        else:
            yield from map(re.escape, vocabulary.LISTS[each.strip("{}")])


def own_words(template: str) -> list[str]:
    return re.findall(WORD, re.sub(r"{\w+}", " ", template))


def sentences_of(line: str) -> list[str]:
    return [line, *re.split(r"(?<=[.?!])\s+", line)]


def either(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in patterns), re.IGNORECASE)


def whole_sentences() -> re.Pattern[str]:
    """Templates of whole sentences, and their single sentences; a slot is anything.

    One without two words of its own would match nearly all: there a slot is one word.
    """
    whole = [*vocabulary.AGENT, *vocabulary.FIGURES, *vocabulary.SHORT]
    found = {each for template in whole for each in sentences_of(template)}
    heads = [pattern(each, WORD) + " " + ANYTHING for each in vocabulary.QUESTION_HEADS]
    return either(
        [
            pattern(each, ANYTHING if len(own_words(each)) > 1 else WORD)
            for each in sorted(found)
            if own_words(each)
        ]
        + heads
    )


SENTENCE = whole_sentences()
CLAUSE = either([pattern(each, WORD) for each in vocabulary.CLAUSES])
MIXTURE = either([pattern(each, WORD) for each in vocabulary.MIXTURES if own_words(each)])


def shares_a_template(line: str) -> bool:
    """Tell whether a line, or a sentence of it, could come from a template with other words."""
    for sentence in sentences_of(line):
        bare = sentence.rstrip(".?!")
        clauses = [piece for piece in JOINTS.split(bare) if piece]
        if (
            SENTENCE.fullmatch(sentence)
            or all(CLAUSE.fullmatch(clause) for clause in clauses)
            or MIXTURE.fullmatch(bare)
        ):
            return True
    return False


@pytest.mark.parametrize("name", HELD_OUT)
def test_held_out_lines_share_no_template(name: str) -> None:
    lines = (ROOT / f"{name}.txt").read_text().splitlines()
    assert len(lines) == 50
    assert [line for line in lines if shares_a_template(line)] == []


@pytest.mark.parametrize(
    "planted",
    [
        "Your appointment with Dr. Zhao is on Sunday, August 7th, at 6:05 PM.",
        "Thanks for holding. The total comes to $12.",
        "Do you think that the plumber was late?",
        "The plumber was late and grumpy.",
        "We painted the attic before Easter, but the cellar will be damp in Lima.",
        "Some owls are loud but crows are louder.",
    ],
)
def test_a_line_from_a_template_is_found_when_its_words_are_new(planted: str) -> None:
    assert shares_a_template(planted)


def test_lines_of_the_training_text_are_found() -> None:
    maker = sentences.Maker(["apple", "river", "stone"], seed=5)
    lines = [maker.line() for _ in range(400)]
    # The rest are mixtures of words alone, or of two kinds.
    assert sum(map(shares_a_template, lines)) > 0.75 * len(lines)


def test_the_voice_is_small() -> None:
    sizes = {path: path.stat().st_size for path in EMBEDDED_VOICE.rglob("*") if path.is_file()}
    assert [path.name for path, size in sizes.items() if size >= MOST_FILE_BYTES] == []
    assert sum(sizes.values()) <= MOST_BYTES
