"""Where a request's text enters: the stages in front of its checkpoint's front end."""

from collections.abc import Sequence

from playhead.engine.text.front_end import FrontEnd, TextStream, Traits
from playhead.engine.text.pronunciations import spoken_entries
from playhead.engine.text.spoken.clean import Cleaner
from playhead.engine.text.spoken.guess import LANGUAGES
from playhead.engine.text.spoken.reader import Pronouncer, Reader
from playhead.engine.text.staged import StagedStream

AUTO = "auto"


def open_text(
    front_end: FrontEnd,
    traits: Traits,
    language: str,
    normalize: bool,
    pronunciations: Sequence[tuple[str, str]],
) -> TextStream:
    """Open a request's text: cleaned, said as the caller wants, figures as words.

    Languages the reader does not know keep their figures: the model reads them itself.
    """
    stream = front_end.open()
    known = LANGUAGES.get(language)
    if normalize and not traits.reads_figures and (language == AUTO or known is not None):
        stream = StagedStream(Reader(known), stream)
    if pronunciations:
        stream = StagedStream(Pronouncer(spoken_entries(pronunciations)), stream)
    if normalize:
        stream = StagedStream(Cleaner(), stream)
    return stream
