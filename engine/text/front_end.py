"""Front ends turn text into TextUnits; the checkpoint names the one it was trained with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from playhead.engine.errors import CheckpointError
from playhead.engine.text.unit import TextUnit


class TextStream(Protocol):
    """One request's text on its way to units."""

    def push(self, text: str) -> list[TextUnit]:
        """Add text; return the units that later text can no longer change."""

    def linger(self) -> TextUnit | None:
        """Text is late: return rows that let the last sound end, None if none are needed."""

    def close(self) -> list[TextUnit]:
        """Return the rest; the joined texts of all units equal the pushed text."""


class FrontEnd(Protocol):
    """A loaded front end; opens a stream for each request."""

    def open(self) -> TextStream:
        """Start a request's text."""


@dataclass(frozen=True, slots=True)
class Traits:
    """How rows of a front end relate to frames of speech."""

    in_step: bool
    """Each row belongs to its own frame, so speech ends when the rows end."""
    frames_per_row: float
    exact_times: bool
    """Word times have a verified error bound."""
    reads_figures: bool
    """It reads numbers, abbreviations and signs itself, and takes phonemes."""


TRAITS = {
    "qwen_bpe": Traits(in_step=False, frames_per_row=3.6, exact_times=False, reads_figures=False),
    "english_in_step": Traits(
        in_step=True, frames_per_row=1.0, exact_times=True, reads_figures=True
    ),
}


def load_front_end(name: str, folder: Path) -> tuple[FrontEnd, Traits]:
    """Load the front end a checkpoint names, with its tokenizer files from the folder.

    Raises CheckpointError for a name this version does not know.
    """
    if name not in TRAITS:
        raise CheckpointError(
            f"{folder}: text front end {name!r} is unknown; known are {', '.join(TRAITS)}"
        )
    if name == "qwen_bpe":
        from playhead.engine.text.qwen_bpe import QwenBpeFrontEnd
        from playhead.engine.text.spoken.reader import load_languages

        load_languages()
        return QwenBpeFrontEnd(folder), TRAITS[name]
    from playhead.engine.text.english.front_end import EnglishFrontEnd

    return EnglishFrontEnd(folder), TRAITS[name]
