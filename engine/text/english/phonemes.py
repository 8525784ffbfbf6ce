"""The sounds a text row can name, and the rows themselves.

A row holds two slots of 40 ms, each the sound in it: `PAIR_BASE + first * NUM_SOUNDS + second`.
Sounds are silence, four pauses, the gap between words, 24 consonants and 17 vowels in three
stresses. A row can also be written as one character (an ideograph, so that any Qwen2 tokenizer
keeps runs of them together), which the checkpoint's tokenizer turns into the same id.
"""

import re

CONSONANTS = tuple("bdfhjklmnpstvwzðŋɡɹʃʒʤʧθ")
VOWELS = (*"AIOWYiuæɑɔəɛɪʊʌ", "ɜɹ", "əɹ")
PAUSES = (",", ".", "?", "!")
SILENCE = "_"
GAP = " "
SOUNDS = (
    SILENCE,
    *PAUSES,
    GAP,
    *CONSONANTS,
    *VOWELS,
    *(f"ˈ{vowel}" for vowel in VOWELS),
    *(f"ˌ{vowel}" for vowel in VOWELS),
)
NUM_SOUNDS = len(SOUNDS)
SOUND_IDS = {sound: index for index, sound in enumerate(SOUNDS)}
SILENCE_ID = SOUND_IDS[SILENCE]
GAP_ID = SOUND_IDS[GAP]
PAUSE_IDS = frozenset(SOUND_IDS[pause] for pause in PAUSES)
VOWEL_IDS = frozenset(SOUND_IDS[s + v] for v in VOWELS for s in ("", "ˈ", "ˌ"))
STRESSED_IDS = frozenset(SOUND_IDS["ˈ" + v] for v in VOWELS)
PAIR_BASE = 256
"""Text id of the row (silence, silence); ids below are the tokenizer's bytes."""
NUM_PAIRS = NUM_SOUNDS * NUM_SOUNDS
SOUNDS_OPEN, SOUNDS_CLOSE = "\ue000", "\ue001"
"""Stand around phonemes inside a text: private characters, which cleaned text does not hold."""
WRITTEN_BASE = 0x4E00
"""Code point of the character that stands for the row (silence, silence)."""

_SOUND = re.compile(r"([ˈˌ]?)(ɜɹ|əɹ|.)")


def sounds_of(pronunciation: str) -> list[int]:
    """Return the sound ids of one word's phonemes; characters outside the alphabet are skipped."""
    ids = []
    for stress, phoneme in _SOUND.findall(pronunciation):
        sound = SOUND_IDS.get(stress + phoneme, SOUND_IDS.get(phoneme))
        if sound is not None:
            ids.append(sound)
    return ids


def is_pronunciation(text: str) -> bool:
    """Say whether a word is made of this alphabet's phonemes, with stress before vowels only."""
    parts = ["".join(part) for part in _SOUND.findall(text)]
    return (
        bool(parts)
        and "".join(parts) == text
        and all(p in SOUND_IDS for p in parts)
        and not ({SILENCE, GAP, *PAUSES} & set(parts))
    )


def row_id(first: int, second: int) -> int:
    """Return the text id of the row whose two slots hold these sounds."""
    return PAIR_BASE + first * NUM_SOUNDS + second


def written(rows: list[int]) -> str:
    """Return rows as the string the checkpoint's tokenizer reads, one character each."""
    return "".join(chr(WRITTEN_BASE + row - PAIR_BASE) for row in rows)
