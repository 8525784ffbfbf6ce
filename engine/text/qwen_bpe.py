"""The Qwen2 byte-level BPE front end: text -> ids, released when later text can't change them.

BPE works inside pre-tokens, so the ids of a text are those of its pre-tokens joined, and only
the last pre-token (with the white space and combining marks at the end) is still open. Scripts
without spaces are cut inside their runs too, where no token reaches across (bpe_borders.py). Text a
caller writes never becomes a control token: added tokens are left out of the tokenizer, so
"<|im_end|>" is spoken as the characters it is. One tokenizer a folder, shared by all threads.
"""

import functools
import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE

from playhead.engine.errors import CheckpointError
from playhead.engine.text.bpe_borders import BpeBorders
from playhead.engine.text.unit import TextUnit

_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen2's pre-tokens: contractions, words with one mark before, single digits, marks, space."""
_SENTENCE_MARKS = frozenset(".!?…")
"""End a sentence when white space or nothing follows."""
_WIDE_SENTENCE_MARKS = frozenset("。！？｡։؟।॥።")
"""End a sentence wherever they stand."""
_CLOSERS = "\"'”’»)]}›」』）】\r\n"
"""May stand between the mark and the end of the sentence."""


class QwenBpeFrontEnd:
    """The front end of checkpoints that read Qwen2 text ids."""

    def __init__(self, folder: Path) -> None:
        """Load tokenizer.json, or vocab.json and merges.txt, of a checkpoint folder."""
        self._tokenizer = load_tokenizer(folder)
        self._borders = load_borders(folder)

    def open(self) -> "QwenBpeStream":
        """Start a request's text."""
        return QwenBpeStream(self._tokenizer, self._borders)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One pre-token of the held text, or a part of it that is final by itself."""

    start: int
    ids: tuple[int, ...]


class QwenBpeStream:
    """One request's text on its way to units; a unit is one pre-token, or a part of a long one."""

    def __init__(self, tokenizer: Tokenizer, borders: BpeBorders) -> None:
        """Start empty."""
        self._tokenizer = tokenizer
        self._borders = borders
        self._held = ""

    def push(self, text: str) -> list[TextUnit]:
        """Add text; return the units that later text can no longer change."""
        self._held += text
        pieces = self._pieces()
        keep = self._first_open(pieces)
        end = pieces[keep].start if keep < len(pieces) else len(self._held)
        units = self._units(pieces[:keep], end)
        self._held = self._held[end:]
        return units

    def linger(self) -> TextUnit | None:
        """Return None: these rows run ahead of the speech, so its last sound ends by itself."""
        return None

    def close(self) -> list[TextUnit]:
        """Return the rest; the joined texts of all units equal the pushed text."""
        units = self._units(self._pieces(), len(self._held))
        self._held = ""
        return units

    def _pieces(self) -> list[_Piece]:
        encoded = self._tokenizer.encode(self._held, add_special_tokens=False)
        starts: list[int] = []
        ids: list[list[int]] = []
        last_word: int | None = None
        for token, word, offsets in zip(
            encoded.ids, encoded.word_ids, encoded.offsets, strict=True
        ):
            if word != last_word or self._is_cut(starts[-1], offsets[0]):
                starts.append(offsets[0])
                ids.append([])
                last_word = word
            ids[-1].append(token)
        if starts:
            starts[0] = 0  # text that normalises to nothing goes with what follows
        return [_Piece(start, tuple(i)) for start, i in zip(starts, ids, strict=True)]

    def _is_cut(self, start: int, at: int) -> bool:
        return at > start and self._borders.cut_before(self._held, at)

    def _first_open(self, pieces: list[_Piece]) -> int:
        """Return the index of the first piece that later text may still change."""
        if not pieces:
            return 0
        held = self._held
        first = len(pieces) - 1
        # A newline to come would take in all white space at the end; the text before stays.
        while first > 0 and held[pieces[first].start :].isspace():
            if not held[pieces[first - 1].start : pieces[first].start].isspace():
                break
            first -= 1
        # A mark to come may combine with the last character that is no mark itself, and marks
        # are reordered before they combine: text is never cut between a character and its marks.
        while first > 0 and unicodedata.combining(held[pieces[first].start]):
            first -= 1
        return first

    def _units(self, pieces: list[_Piece], end: int) -> list[TextUnit]:
        bounds = [piece.start for piece in pieces] + [end]
        units: list[TextUnit] = []
        for piece, start, stop in zip(pieces, bounds, bounds[1:], strict=False):
            text, following = self._held[start:stop], self._held[stop : stop + 1]
            units.append(TextUnit(text, piece.ids, _ends_sentence(text, following)))
        return units


def _ends_sentence(text: str, following: str) -> bool:
    # A wide mark may share its pre-token with the next word, so the word before it ends too.
    if following in _WIDE_SENTENCE_MARKS:
        return True
    stripped = text.rstrip(_CLOSERS)
    if not stripped:
        return False
    if stripped[-1] in _WIDE_SENTENCE_MARKS:
        return True
    followed = text[-1].isspace() or not following or following.isspace()
    return stripped[-1] in _SENTENCE_MARKS and followed


def instruct_ids(folder: Path, im_start: int, im_end: int, instruct: str) -> tuple[int, ...]:
    """Return the ids of an instruction as a whole user turn of the chat format."""
    tokenizer = load_tokenizer(folder)
    said = tokenizer.encode(f"user\n{instruct}", add_special_tokens=False).ids
    return (im_start, *said, im_end, *tokenizer.encode("\n", add_special_tokens=False).ids)


@functools.cache
def load_borders(folder: Path) -> BpeBorders:
    """Return where runs of a folder's tokenizer can be cut; raises CheckpointError."""
    return BpeBorders(load_tokenizer(folder))


@functools.cache
def load_tokenizer(folder: Path) -> Tokenizer:
    """Load a folder's tokenizer without its added tokens; raises CheckpointError."""
    whole = folder / "tokenizer.json"
    try:
        if whole.is_file():
            values = json.loads(whole.read_text(encoding="utf-8"))
            values["added_tokens"] = []
            return Tokenizer.from_str(json.dumps(values))
        tokenizer = Tokenizer(BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    except Exception as error:  # the library raises bare Exceptions on damaged files
        raise CheckpointError(
            f"{folder}: no readable tokenizer ({error}). A checkpoint holds vocab.json and "
            "merges.txt, or tokenizer.json; download it again."
        ) from error
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer
