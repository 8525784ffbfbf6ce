"""How long each sound lasts: a small network over a sound and its neighbours; NumPy, pure.

Trained on the teacher's own durations (training/fit_durations.py). A sound sees three sounds to
either side, but never more of the next word than its first sound, so that it can run while text
still arrives.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from playhead.engine.errors import CheckpointError
from playhead.engine.text.english.phonemes import (
    GAP_ID,
    NUM_SOUNDS,
    PAUSE_IDS,
    SILENCE_ID,
    SOUND_IDS,
    STRESSED_IDS,
    VOWEL_IDS,
)

DURATIONS_FILE = "durations.npz"
CONTEXT = (-3, -2, -1, 0, 1, 2, 3)
"""Neighbours a sound's duration depends on."""
UNKNOWN = NUM_SOUNDS
"""Stands for a neighbour that is not known yet."""
NUM_TRAITS = 19
MAX_SLOTS = 40.0
"""No sound or pause lasts longer than 1.6 s."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class History:
    """What a duration may depend on behind the current piece."""

    sounds: tuple[int, ...] = (SILENCE_ID,) * 3
    """The last three sounds."""
    words_since_pause: int = 0


def traits(sounds: list[int], ahead: list[int], history: History) -> Floats:
    """Describe each sound's place in its word and phrase: [n, NUM_TRAITS]."""
    out = np.zeros((len(sounds), NUM_TRAITS), np.float32)
    words = _word_spans(sounds)
    count = history.words_since_pause
    for start, end in words:
        if sounds[start] in PAUSE_IDS:
            out[start, 17] = min(count, 8) / 8
            out[start, 18] = 1.0
            count = 0
            continue
        if sounds[start] == GAP_ID:
            out[start, 16] = 1.0
            continue
        following = (sounds[end:] + ahead)[:1]
        vowels = [at for at in range(start, end) if sounds[at] in VOWEL_IDS]
        stressed = any(sounds[at] in STRESSED_IDS for at in range(start, end))
        for at in range(start, end):
            row = out[at]
            row[0] = min(at - start, 6) / 6
            row[1] = min(end - 1 - at, 6) / 6
            row[2 + min(len(vowels), 5)] = 1.0
            row[8] = float(stressed)
            row[9] = float(bool(vowels) and at >= vowels[-1])
            row[10] = float(at == end - 1)
            row[11] = min(count, 8) / 8
            row[12] = float(count == 0)
            if following and following[0] in PAUSE_IDS:
                row[13] = 1.0
                row[14] = float(following[0] != SOUND_IDS[","])
                row[15] = float(following[0] == SOUND_IDS["?"])
        count += 1
    return out


def _word_spans(sounds: list[int]) -> list[tuple[int, int]]:
    """Return the spans of words, and of each gap and pause between them."""
    spans: list[tuple[int, int]] = []
    start: int | None = None
    for at, sound in enumerate(sounds):
        if sound == GAP_ID or sound in PAUSE_IDS:
            if start is not None:
                spans.append((start, at))
            spans.append((at, at + 1))
            start = None
        elif start is None:
            start = at
    if start is not None:
        spans.append((start, len(sounds)))
    return spans


def neighbours(sounds: list[int], ahead: list[int], history: History) -> Ints:
    """Return each sound's neighbours as ids: [n, len(CONTEXT)], UNKNOWN where not known."""
    padded = [*history.sounds, *sounds, *ahead, *([UNKNOWN] * 3)]
    return np.array(
        [[padded[at + 3 + offset] for offset in CONTEXT] for at in range(len(sounds))], np.int64
    ).reshape(len(sounds), len(CONTEXT))


def advance(sounds: list[int], history: History) -> History:
    """Return the history behind these sounds."""
    count = history.words_since_pause
    for start, _ in _word_spans(sounds):
        if sounds[start] in PAUSE_IDS:
            count = 0
        elif sounds[start] != GAP_ID:
            count += 1
    return History((*history.sounds, *sounds)[-3:], count)


class DurationModel:
    """The network; one instance serves all streams."""

    def __init__(self, weights: dict[str, Floats]) -> None:
        """Take the arrays of durations.npz, as float32."""
        self._table = weights["table"]
        self._trait_weight = weights["trait_weight"]
        self._layers = [(weights[f"weight_{i}"], weights[f"bias_{i}"]) for i in (1, 2)]
        self._first_bias = weights["bias_0"]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load from a checkpoint folder; raises CheckpointError when the file is missing."""
        path = folder / DURATIONS_FILE
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: the front end needs its durations")
        with np.load(path) as arrays:
            return cls({name: arrays[name].astype(np.float32) for name in arrays.files})

    def slots(self, around: Ints, places: Floats) -> Floats:
        """Return how many 40 ms slots each sound lasts at rate 1, as reals: [n]."""
        hidden = self._first_bias + places @ self._trait_weight
        for index in range(around.shape[1]):
            hidden = hidden + self._table[index, around[:, index]]
        (weight_1, bias_1), (weight_2, bias_2) = self._layers
        hidden = np.maximum(hidden, 0.0) @ weight_1 + bias_1
        log_slots = np.maximum(hidden, 0.0) @ weight_2 + bias_2
        slots: Floats = np.exp(log_slots[:, 0]).clip(0.25, MAX_SLOTS)
        return slots
