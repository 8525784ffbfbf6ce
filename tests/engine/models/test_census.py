"""The census: published checkpoints hold exactly the tensors that their configuration describes."""

import math
from pathlib import Path

import pytest

from playhead.engine.models.census import main_shapes, speech_shapes
from playhead.engine.models.config import read_config
from playhead.engine.models.published import PUBLISHED, PUBLISHED_SPEECH_TOKENIZER, SHORT_NAMES
from playhead.engine.models.synthetic import write_config

UNREAD_PROJECTIONS = 2, 2 * 256 * 512
"""Tensors and values of the decoder's input projections, which nothing reads."""


@pytest.mark.parametrize("short", SHORT_NAMES)
def test_shapes_when_summed_are_the_published_census(tmp_path: Path, short: str) -> None:
    config = read_config(write_config(tmp_path, short))
    shapes = main_shapes(config)
    count = len(shapes), sum(math.prod(shape) for shape in shapes.values())
    assert count == PUBLISHED[SHORT_NAMES[short]]
    if config.kind != "base":
        return
    speech = speech_shapes(config)
    values = sum(math.prod(shape) for shape in speech.values())
    found = len(speech) + UNREAD_PROJECTIONS[0], values + UNREAD_PROJECTIONS[1]
    assert found == PUBLISHED_SPEECH_TOKENIZER


def test_names_when_short() -> None:
    assert SHORT_NAMES["1.7b-base"] == "Qwen/Qwen3-TTS-12Hz-1.7B-Base"
    assert len(SHORT_NAMES) == 5
