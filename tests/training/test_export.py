"""What training writes beside the weights is what the shipped voice holds, byte for byte."""

from pathlib import Path

import numpy as np
import pytest
from training.evaluate import end_is_missing, judge_all
from training.export import GENERATION, codec_config, model_config, write_json
from training.sizes import SIZES
from training.tokenizer import write_tokenizer

from playhead.engine.library import EMBEDDED_VOICE


def test_files_beside_the_weights_are_those_of_the_voice(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "speech_tokenizer").mkdir()
    write_json(tmp_path / "config.json", model_config(SIZES))
    write_json(tmp_path / "speech_tokenizer" / "config.json", codec_config(SIZES))
    write_json(tmp_path / "generation_config.json", GENERATION)
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 7
    for name in written:
        assert (tmp_path / name).read_bytes() == (EMBEDDED_VOICE / name).read_bytes(), name


@pytest.mark.slow
def test_a_judge_counts_words_that_were_not_said() -> None:
    silence = np.zeros(48_000, np.float32)
    found = judge_all(["hello there"], [silence], show=False)
    assert (found.total, found.lines, found.wrong, found.lost_ends) == (2, 1, 1, 1)
    assert found.errors >= 2 and found.wer >= 100.0


@pytest.mark.parametrize(
    ("heard", "missing"),
    [
        ("every candle was lit", False),
        ("every candle was lid", False),  # another word stands in its place
        ("every candle was a lit", False),
        ("every candle was lit up", False),  # more was heard behind it
        ("every candle was lid up", False),
        ("every candle was", True),
        ("every candle", True),
        ("", True),
    ],
)
def test_a_last_word_is_missing_when_nothing_stands_in_its_place(heard: str, missing: bool) -> None:
    assert end_is_missing("every candle was lit".split(), heard.split()) is missing
