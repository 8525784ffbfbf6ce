"""Find a known recording again, piece by piece and in order, in what a listener heard; pure numpy.

The same seed gives the same samples, so what the engine made is known before it is played. Each
piece of it is looked for by normalised cross-correlation near the place where the last piece says
it must be: lost, swapped, repeated or foreign speech is not found there, and a pause that the
sender put in shows as a step of the offset.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from playhead.engine.units import SAMPLE_RATE_HZ

Samples = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

PIECE_S = 0.5
HOP_S = 0.1
MIN_CORRELATION = 0.6
"""Pieces through Opus and a jitter buffer measured 0.9 and more, foreign speech below 0.5."""
QUIET_RMS = 60.0
"""About -55 dBFS: a piece below it has too little of its own to be recognised."""
EARLY_S = 0.12
"""How far a jitter buffer may have shortened the audio between two pieces."""
LATE_S = 1.5
"""The longest pause that is still bridged; a longer one counts as lost."""
PAUSE_SHARE = 0.6
QUIET_SHARE = 0.05
"""A block below this share of the recording's loudness is silence."""
BLOCK_S = 0.005


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of the known recording and where it was heard."""

    reference_s: float
    """Where the piece begins in the known recording."""
    heard_s: float | None
    """Where it begins in what was heard; None if it was not found there."""
    correlation: float

    @property
    def offset_s(self) -> float | None:
        """Heard place less known place; a step of it is a pause or a cut."""
        return None if self.heard_s is None else self.heard_s - self.reference_s


@dataclass(frozen=True, slots=True)
class Step:
    """The offset changed between two pieces: later is positive, audio taken out negative."""

    reference_s: float
    duration_s: float
    silence_s: float
    """Silence heard around it that the known recording does not have there."""

    @property
    def is_pause(self) -> bool:
        """Say whether silence was put in; else a receiver stretched the sound unheard."""
        return self.silence_s >= PAUSE_SHARE * self.duration_s > 0


@dataclass(frozen=True, slots=True)
class Alignment:
    """All loud pieces in order of the known recording."""

    pieces: tuple[Piece, ...]
    piece_s: float
    known_quiet: Flags
    """Which blocks of 5 ms of the known recording are silent."""
    heard_quiet: Flags

    @property
    def found_share(self) -> float:
        """Return the share of loud pieces found at their place."""
        found = sum(piece.heard_s is not None for piece in self.pieces)
        return found / len(self.pieces) if self.pieces else 0.0

    def longest_loss_s(self) -> float:
        """Return the length of the longest stretch of which nothing was found."""
        longest = start = 0.0
        lost = False
        for piece in self.pieces:
            if piece.heard_s is not None:
                lost = False
                continue
            start = start if lost else piece.reference_s
            lost = True
            longest = max(longest, piece.reference_s - start + HOP_S)
        return longest

    def steps(self, least_s: float) -> list[Step]:
        """Return the changes of offset of at least `least_s` between pieces on either side."""
        found = [piece for piece in self.pieces if piece.heard_s is not None]
        steps: list[Step] = []
        for before, after in pairwise(found):
            assert before.heard_s is not None and after.heard_s is not None
            known_s = after.reference_s - before.reference_s
            change_s = after.heard_s - before.heard_s - known_s
            if abs(change_s) >= least_s:
                silence_s = _quiet_s(self.heard_quiet, before.heard_s, after.heard_s + self.piece_s)
                silence_s -= _quiet_s(
                    self.known_quiet, before.reference_s, after.reference_s + self.piece_s
                )
                steps.append(Step(after.reference_s, change_s, silence_s))
        return steps

    def pauses(self, least_s: float) -> list[Step]:
        """Return the silences of at least `least_s` that were put into the known recording."""
        return [step for step in self.steps(least_s) if step.is_pause]

    def heard_at_s(self, reference_s: float) -> float | None:
        """Return where a moment of the known recording was heard, by its nearest found piece."""
        found = [piece for piece in self.pieces if piece.heard_s is not None]
        if not found:
            return None
        middle_s = self.piece_s / 2
        nearest = min(found, key=lambda piece: abs(piece.reference_s + middle_s - reference_s))
        assert nearest.offset_s is not None
        return reference_s + nearest.offset_s


def align(reference: Samples, heard: Samples, *, piece_s: float = PIECE_S) -> Alignment:
    """Look for every loud piece of `reference` in `heard` (both 24 kHz mono), in order."""
    known, sound = reference.astype(np.float64), heard.astype(np.float64)
    num_piece = round(piece_s * SAMPLE_RATE_HZ)
    hop = round(HOP_S * SAMPLE_RATE_HZ)
    offset: int | None = None
    pieces: list[Piece] = []
    for start in range(0, max(len(known) - num_piece, 0) + 1, hop):
        piece = known[start : start + num_piece]
        if len(piece) < num_piece or np.sqrt(np.mean(piece**2)) < QUIET_RMS:
            continue
        first, last = _window(start, offset, num_piece, len(sound))
        place, correlation = _search(piece, sound[first:last])
        found = correlation >= MIN_CORRELATION
        if found:
            offset = first + place - start
        heard_s = (first + place) / SAMPLE_RATE_HZ if found else None
        pieces.append(Piece(start / SAMPLE_RATE_HZ, heard_s, correlation))
    loudness = float(np.sqrt(np.mean(known**2))) if len(known) else 0.0
    return Alignment(tuple(pieces), piece_s, _quiet(known, loudness), _quiet(sound, loudness))


def _quiet(sound: Floats, loudness: float) -> Flags:
    """Return which blocks of a sound are silent beside its usual loudness."""
    num_block = round(BLOCK_S * SAMPLE_RATE_HZ)
    blocks = sound[: len(sound) // num_block * num_block].reshape(-1, num_block)
    return np.asarray(np.sqrt(np.mean(blocks**2, axis=1)) < loudness * QUIET_SHARE)


def _quiet_s(quiet: Flags, first_s: float, last_s: float) -> float:
    return float(quiet[round(first_s / BLOCK_S) : round(last_s / BLOCK_S)].sum()) * BLOCK_S


def _window(start: int, offset: int | None, num_piece: int, num_heard: int) -> tuple[int, int]:
    """Return the part of the heard samples in which a piece may lie."""
    if offset is None:
        return 0, num_heard
    expected = start + offset
    first = max(expected - round(EARLY_S * SAMPLE_RATE_HZ), 0)
    return first, min(expected + num_piece + round(LATE_S * SAMPLE_RATE_HZ), num_heard)


def _search(piece: Floats, sound: Floats) -> tuple[int, float]:
    """Return the best place of a piece in a sound and its correlation there (0 if none fits)."""
    num_places = len(sound) - len(piece) + 1
    if num_places < 1:
        return 0, 0.0
    size = 1 << (len(sound) + len(piece) - 2).bit_length()
    spectrum = np.fft.rfft(sound, size) * np.conj(np.fft.rfft(piece, size))
    products = np.fft.irfft(spectrum, size)[:num_places]
    energy = np.concatenate(([0.0], np.cumsum(sound**2)))
    window_energy = energy[len(piece) :] - energy[: -len(piece)]
    floor = len(piece) * QUIET_RMS**2 / 16
    scores = products / np.sqrt(np.maximum(window_energy, floor) * np.sum(piece**2))
    place = int(np.argmax(scores))
    return place, float(scores[place])
