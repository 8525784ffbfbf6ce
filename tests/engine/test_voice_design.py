"""Designed voices through a real engine: one description and seed are one voice, run once."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from playhead.engine.messages import Failed, Refused, Submit
from playhead.engine.models.synthetic import write_checkpoint
from tests.engine.clone_speaker import NUM_FRAMES, TEXT, Speaker

OLD_MAN = "a test of speech, you hear that, the world. " * 12
"""About 150 rows of prompt: more than one captured piece holds."""
CHILD = OLD_MAN.replace("you", "we")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        yield write_checkpoint(home / "model", "tiny-voicedesign", dtype=torch.float32)


@pytest.fixture
def speaker(folder: Path) -> Speaker:
    return Speaker(folder)


def said(speaker: Speaker, request_id: str, instruct: str | None, seed: int) -> NDArray[np.int16]:
    speaker.engine.post(
        Submit(
            request_id, text=TEXT, instruct=instruct, closed=True, live=False, seed=seed,
            max_frames=NUM_FRAMES,
        )
    )  # fmt: skip
    speaker.finish(request_id)
    made = speaker.runner.codes.pop(seed)
    return np.stack(made)[:NUM_FRAMES]


def test_voice_when_described_again(speaker: Speaker, folder: Path) -> None:
    first = said(speaker, "first", OLD_MAN, 3)
    assert (said(speaker, "again", OLD_MAN, 3) == first).all(), "from the stored prompt"
    assert (said(Speaker(folder), "anew", OLD_MAN, 3) == first).all(), "after a restart"
    assert (said(speaker, "other seed", OLD_MAN, 4) != first).any()
    assert (said(speaker, "other words", CHILD, 3) != first).any()
    assert (said(speaker, "none", None, 3) != first).any()


def test_prompt_when_the_description_was_heard_before(speaker: Speaker) -> None:
    for number, instruct in enumerate((OLD_MAN, OLD_MAN, CHILD, OLD_MAN)):
        said(speaker, f"r{number}", instruct, number)
    first, again, other, third = speaker.runner.rows_to_run
    assert first > 100, "a long description"
    assert (again, third) == (0, 0), "it is copied, whatever was said in between"
    assert other > 100
    digests = speaker.runner.digests
    assert digests[0] == digests[1] == digests[3] != digests[2]


def test_description_when_it_leaves_no_room(speaker: Speaker) -> None:
    speaker.engine.post(
        Submit("r", text=TEXT, instruct=OLD_MAN * 9, closed=True, live=False, max_frames=4)
    )
    speaker.finish("r")
    end = speaker.end("r")
    assert isinstance(end, Refused | Failed)
    assert "shorten the instruction" in end.message
