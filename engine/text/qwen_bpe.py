"""The Qwen2 byte-level BPE front end: text -> ids, released when later text can't change them.

BPE works inside pre-tokens, so the ids of a text are those of its pre-tokens joined, and only
the last pre-token (with the white space and combining marks at the end) is still open. Scripts
without spaces are cut inside their runs too, where no token reaches across (bpe_borders.py). Text a
caller writes never becomes a control token: added tokens are left out of the tokenizer, so
"<|im_end|>" is spoken as the characters it is. One tokenizer a folder, shared by all threads.
"""

import functools
import json
import re
import unicodedata
from itertools import pairwise
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
_ASCII_PATTERN = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]"
    r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    re.ASCII,
)
"""The same where all text is ASCII."""
KEPT_WORDS, MOST_KEPT_CHARS = 8192, 32
"""Pre-tokens whose ids are kept, and how long they may be: a call of the tokenizer costs as much
as a hundred look-ups."""
_LONGEST_CONTRACTION = 3
_SIMPLE_BELOW = "\u0530"
"""Latin, Greek and Cyrillic: letters that join their word whatever it is."""
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
        self._words = _WordIds(self._tokenizer) if _splits_as_known(self._tokenizer) else None

    def open(self) -> "QwenBpeStream":
        """Start a request's text."""
        return QwenBpeStream(self._tokenizer, self._borders, self._words)


class _WordIds:
    """Ids of one pre-token: nearly all text is made of the same few thousand."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._kept = functools.lru_cache(KEPT_WORDS)(self._encode)

    def __call__(self, word: str) -> tuple[int, ...]:
        return self._kept(word) if len(word) <= MOST_KEPT_CHARS else self._encode(word)

    def _encode(self, word: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(word, add_special_tokens=False).ids)


def _splits_as_known(tokenizer: Tokenizer) -> bool:
    """Say whether pre-tokens of ASCII are those of `_PATTERN`; a tokenizer.json may differ."""
    steps = str(tokenizer.pre_tokenizer).replace("trim_offsets=False", "trim_offsets=True")
    return steps == str(_pre_tokenizer()) and str(tokenizer.normalizer) in ("None", "NFC()")


class QwenBpeStream:
    """One request's text on its way to units; a unit is one pre-token, or a part of a long one."""

    def __init__(self, tokenizer: Tokenizer, borders: BpeBorders, words: _WordIds | None) -> None:
        """Start empty; `words` knows ids of ASCII, None where it is cut in some other way."""
        self._tokenizer = tokenizer
        self._borders = borders
        self._words = words
        self._held = ""
        self._one_word = False
        """What is held is a word, and letters to come are its own."""

    def push(self, text: str) -> list[TextUnit]:
        """Add text; return the units that later text can no longer change."""
        if self._one_word and text.isalpha() and max(text) < _SIMPLE_BELOW:
            self._held += text
            return []
        self._held += text
        starts, ids = self._pieces()
        keep = self._first_open(starts)
        end = starts[keep] if keep < len(starts) else len(self._held)
        units = self._units([*starts[:keep], end], ids)
        held = self._held = self._held[end:]
        self._one_word = (
            self._words is not None
            and keep + 1 == len(starts)
            and len(held) > _LONGEST_CONTRACTION
            and held[-1].isalpha()
            and held[-1] < _SIMPLE_BELOW
        )
        return units

    def linger(self) -> TextUnit | None:
        """Return None: these rows run ahead of the speech, so its last sound ends by itself."""
        return None

    def close(self) -> list[TextUnit]:
        """Return the rest; the joined texts of all units equal the pushed text."""
        starts, ids = self._pieces()
        units = self._units([*starts, len(self._held)], ids)
        self._held = ""
        self._one_word = False
        return units

    def _pieces(self) -> tuple[list[int], list[list[int]] | None]:
        """Return where pieces of the held text begin, and their ids; None: ask for each word's.

        A piece is a pre-token, or a part of it that is final by itself.
        """
        if self._words is not None and self._held.isascii():
            return [found.start() for found in _ASCII_PATTERN.finditer(self._held)], None
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
        return starts, ids

    def _is_cut(self, start: int, at: int) -> bool:
        return at > start and self._borders.cut_before(self._held, at)

    def _first_open(self, starts: list[int]) -> int:
        """Return the index of the first piece that later text may still change."""
        if not starts:
            return 0
        held = self._held
        first = len(starts) - 1
        # A newline to come would take in all white space at the end; the text before stays.
        while first > 0 and held[starts[first] :].isspace():
            if not held[starts[first - 1] : starts[first]].isspace():
                break
            first -= 1
        # A mark to come may combine with the last character that is no mark itself, and marks
        # are reordered before they combine: text is never cut between a character and its marks.
        while first > 0 and unicodedata.combining(held[starts[first]]):
            first -= 1
        return first

    def _units(self, bounds: list[int], ids: list[list[int]] | None) -> list[TextUnit]:
        held, words = self._held, self._words
        units: list[TextUnit] = []
        for at, (start, stop) in enumerate(pairwise(bounds)):
            text = held[start:stop]
            if ids is not None:
                token_ids = tuple(ids[at])
            else:
                assert words is not None, "pieces without ids are words"
                token_ids = words(text)
            units.append(TextUnit(text, token_ids, _ends_sentence(text, held[stop : stop + 1])))
        return units


def _ends_sentence(text: str, following: str) -> bool:
    # A wide mark may share its pre-token with the next word, so the word before it ends too.
    if following in _WIDE_SENTENCE_MARKS:
        return True
    if text[-1:].isalpha():
        return False
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
    tokenizer.pre_tokenizer = _pre_tokenizer()
    return tokenizer


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
