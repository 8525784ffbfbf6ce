"""How a text of the embedded voice ends."""

from itertools import groupby

import pytest

from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.text.english.front_end import TAIL_SLOTS, EnglishFrontEnd
from playhead.engine.text.english.phonemes import NUM_SOUNDS, PAIR_BASE, PAUSE_IDS


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


@pytest.mark.parametrize("text", ["Nobody came.", "Nobody came", "Who came?", "One. Two."])
def test_pause_is_short_when_the_text_ends(front_end: EnglishFrontEnd, text: str) -> None:
    sound, num_slots = runs_of(front_end, text)[-1]
    assert sound in PAUSE_IDS
    assert num_slots <= TAIL_SLOTS + 1
