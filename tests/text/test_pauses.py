"""Where the embedded voice's sounds end and its pauses begin."""

from itertools import groupby

import pytest

from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.text.english.front_end import TAIL_SLOTS, EnglishFrontEnd
from playhead.engine.text.english.phonemes import NUM_SOUNDS, PAIR_BASE, PAUSE_IDS

LONGEST_END_SLOTS = 6
"""240 ms: no last sound is held longer."""
SHORTEST_PAUSE_SLOTS = 5


@pytest.fixture(scope="module")
def front_end() -> EnglishFrontEnd:
    return EnglishFrontEnd(EMBEDDED_VOICE)


def runs_of(front_end: EnglishFrontEnd, text: str) -> list[tuple[int, int]]:
    """Return each sound of a text with its slots of 40 ms."""
    stream = front_end.open()
    units = stream.push(text) + stream.close()
    rows = [row - PAIR_BASE for unit in units for row in unit.token_ids]
    slots = [half for row in rows for half in divmod(row, NUM_SOUNDS)]
    return [(sound, len(list(same))) for sound, same in groupby(slots)]


@pytest.mark.parametrize(
    "text",
    [
        "The library closed early that period. Nobody came.",
        "It takes about an hour and a half. Is that all right?",
        "Have you seen this issue? It is new.",
        "It was cold this morning! We left.",
    ],
)
def test_silence_is_the_pause_when_a_sentence_ends(front_end: EnglishFrontEnd, text: str) -> None:
    runs = runs_of(front_end, text)
    at = next(at for at, (sound, _) in enumerate(runs) if sound in PAUSE_IDS)
    assert runs[at - 1][1] <= LONGEST_END_SLOTS
    assert runs[at][1] >= SHORTEST_PAUSE_SLOTS


@pytest.mark.parametrize("text", ["Nobody came.", "Nobody came", "Who came?", "One. Two."])
def test_pause_is_short_when_the_text_ends(front_end: EnglishFrontEnd, text: str) -> None:
    sound, num_slots = runs_of(front_end, text)[-1]
    assert sound in PAUSE_IDS
    assert 1 < num_slots <= TAIL_SLOTS + 1
