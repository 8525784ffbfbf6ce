"""Front end of the first voice: one phoneme a row, at the speech's own pace (not in step)."""

import re
from pathlib import Path

from tokenizers import Tokenizer

from playhead.engine.text.english.front_end import pieces_of
from playhead.engine.text.english.lexicon import Lexicon, load_lexicon
from playhead.engine.text.english.normalise import PAUSES, plain, spoken
from playhead.engine.text.unit import TextUnit

_SYMBOL = re.compile(r"( ?)([ˈˌ]?)(ɜɹ|əɹ|[^\W\d_])|([.,!?])")
_VOWELS = frozenset([*"AIOWYiuæɑɔəɛɪʊʌ", "ɜɹ", "əɹ"])
_PAUSE_ROWS = {",": 3, ".": 4, "!": 4, "?": 4}


class PhonemeFrontEnd:
    """Loads the lexicon and the one-token-a-phoneme tokenizer of a checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        """Raise CheckpointError when a file is missing."""
        self._lexicon = load_lexicon(folder)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def open(self) -> "PhonemeStream":
        """Start a request's text."""
        return PhonemeStream(self._lexicon, self._tokenizer)


class PhonemeStream:
    """One request's text; a word is a unit once the next word has begun."""

    def __init__(self, lexicon: Lexicon, tokenizer: Tokenizer) -> None:
        """Start with no text."""
        self._lexicon, self._tokenizer = lexicon, tokenizer
        self._text = self._before = ""
        self._spoke = False

    def push(self, text: str) -> list[TextUnit]:
        """Add text; hold back the last two words, which later text may still change."""
        self._text += text
        pieces = pieces_of(self._text)
        done = pieces[:-2]
        self._text = "".join(piece for piece, _ in pieces[len(done) :])
        return [self._unit(piece, following) for piece, following in done]

    def close(self) -> list[TextUnit]:
        """Return the rest."""
        pieces, self._text = pieces_of(self._text), ""
        return [self._unit(piece, following) for piece, following in pieces]

    def _unit(self, piece: str, following: str) -> TextUnit:
        core = plain(piece)
        tokens = spoken(core, self._before, following)
        self._before = core or self._before
        symbols = ""
        for token in tokens:
            if token in PAUSES:
                symbols += token if self._spoke else ""
                continue
            for part in self._lexicon.pronounce(token, False):
                symbols += (" " if self._spoke else "") + part
                self._spoke = True
        rows = _rows_text(symbols)
        ids = self._tokenizer.encode(rows, add_special_tokens=False).ids if rows else []
        return TextUnit(piece, tuple(ids), bool(tokens) and tokens[-1] in ".?!")


def _rows_text(symbols: str) -> str:
    out = ""
    for match in _SYMBOL.finditer(symbols):
        if match.group(4):
            out += match.group(4) * _PAUSE_ROWS[match.group(4)]
        else:
            stress = "ˈ" if match.group(2) == "ˈ" and match.group(3) in _VOWELS else ""
            out += match.group(1) + stress + match.group(3)
    return out
