"""Which sound is in which 40 ms slot of the teacher's speech.

The teacher reads one character at a time and reports how long each took. Sounds of the front end
are one to three of its characters. Here its times become slots in which every sound has at least
one, moved as little as possible (isotonic regression).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from playhead.engine.text.english.durations import Floats, Ints
from playhead.engine.text.english.front_end import LEAD_SLOTS, OPTIONAL, Reader, pieces_of
from playhead.engine.text.english.lexicon import Lexicon
from playhead.engine.text.english.phonemes import (
    NUM_SOUNDS,
    PAIR_BASE,
    PAUSE_IDS,
    SILENCE_ID,
    SOUNDS,
)

SLOT_SAMPLES = 960
SPEECH_RMS = 0.006
"""Blocks of 5 ms louder than this are sound."""
BLOCK_SAMPLES = 120
LEAST_PAUSE_BLOCKS = 8
"""A pause is quiet for at least 40 ms."""


@dataclass(frozen=True, slots=True)
class Script:
    """A line as the teacher reads it."""

    sounds: list[int]
    around: Ints
    places: Floats
    characters: str
    first_character: list[int]
    """Index of each sound's first character."""


def script_of(line: str, lexicon: Lexicon) -> Script:
    """Read a line with the product's front end."""
    reader = Reader(lexicon)
    readings = [reader.read(piece, following) for piece, following in pieces_of(line)]
    sounds = [sound for reading in readings for sound in reading.sounds]
    characters, first_character = "", []
    for index, sound in enumerate(sounds):
        first_character.append(len(characters))
        characters += SOUNDS[sound]
        if sound in PAUSE_IDS and index + 1 < len(sounds):
            characters += " "
    return Script(
        sounds,
        np.concatenate([reading.around for reading in readings]),
        np.concatenate([reading.places for reading in readings]),
        characters,
        first_character,
    )


def loud_blocks(audio: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Tell which 5 ms blocks hold sound."""
    blocks = audio[: len(audio) // BLOCK_SAMPLES * BLOCK_SAMPLES].reshape(-1, BLOCK_SAMPLES)
    return np.asarray(np.sqrt((blocks**2).mean(1)) > SPEECH_RMS)


def longest_quiet(loud: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Return the first block and the length of the longest stretch without sound."""
    edges = np.flatnonzero(np.diff(np.concatenate([[1], loud.astype(np.int8), [1]])))
    if not len(edges):
        return 0, 0
    begins, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - begins))
    return int(begins[longest]), int(ends[longest] - begins[longest])


def settle_pauses(
    starts: npt.NDArray[np.float64], sounds: list[int], loud: npt.NDArray[np.bool_], end: int
) -> npt.NDArray[np.float64]:
    """Move each pause's start to where the speech before it falls silent.

    The teacher counts most of a pause to the sound before it, which would stretch word ends. The
    silence is the longest quiet stretch between that sound and the one behind: a stop is silent
    before its burst, and the next word is heard some 30 ms before its own time. Where no stretch
    is long enough, the mark is hardly a pause: it gets the end of the span.
    """
    moved = starts.copy()
    for at in range(1, len(sounds)):
        if sounds[at] not in PAUSE_IDS:
            continue
        first = int(moved[at - 1])
        behind = int(starts[at + 1]) if at + 1 < len(sounds) else end
        quiet, length = longest_quiet(loud[first // BLOCK_SAMPLES : behind // BLOCK_SAMPLES])
        silent = behind
        if length >= LEAST_PAUSE_BLOCKS:
            silent = first + (quiet + 1) * BLOCK_SAMPLES
        moved[at] = min(max(silent, first + SLOT_SAMPLES // 2), max(behind - 600, first + 1))
    return moved


def isotonic(values: list[float]) -> list[float]:
    """Return the nondecreasing sequence nearest to the values (pool adjacent violators)."""
    means: list[float] = []
    sizes: list[int] = []
    for value in values:
        mean, size = value, 1
        while means and means[-1] > mean:
            mean = (mean * size + means[-1] * sizes[-1]) / (size + sizes[-1])
            size += sizes.pop()
            means.pop()
        means.append(mean)
        sizes.append(size)
    return [mean for mean, size in zip(means, sizes, strict=True) for _ in range(size)]


def slot_starts(
    starts: npt.NDArray[np.float64], sounds: list[int], origin: float
) -> npt.NDArray[np.int64]:
    """Return the slot in which each sound begins, counted from sample `origin`."""
    least = np.array([0 if sound in OPTIONAL else 1 for sound in sounds])
    before = np.concatenate([[0], np.cumsum(least)[:-1]])
    real = np.maximum((starts - origin) / SLOT_SAMPLES, LEAD_SLOTS)
    fitted = np.maximum(isotonic((real - before).tolist()), LEAD_SLOTS)
    return np.asarray(np.floor(fitted + 0.5).astype(np.int64) + before)


def rows_of(
    starts: npt.NDArray[np.int64], sounds: list[int], num_frames: int
) -> npt.NDArray[np.int16]:
    """Return the text row of each frame: the two sounds of the frame behind it."""
    slots = np.full(2 * num_frames + LEAD_SLOTS, sounds[-1], np.int64)
    slots[: starts[0]] = SILENCE_ID
    for sound, start, end in zip(sounds, starts, [*starts[1:], len(slots)], strict=True):
        slots[start:end] = sound
    pairs = slots[LEAD_SLOTS:].reshape(-1, 2)
    return np.asarray((PAIR_BASE + pairs[:, 0] * NUM_SOUNDS + pairs[:, 1]).astype(np.int16))
