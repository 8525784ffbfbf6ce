"""How far the embedded voice's word times lie from a forced alignment of its own speech.

`python -m tests.bench.word_times` speaks held-out sentences and one text of over a minute through
the real engine and aligns the audio with PocketSphinx (HMM Viterbi, 10 ms frames, its own US
English model and dictionary; nothing is shared with the voice). The aligner's own bias is seen at
words behind a pause, whose sound begins where the energy does. No speed figure: it may run beside
anything.
"""

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pocketsphinx import Decoder

from playhead.engine.messages import Submit, Word
from playhead.engine.text.english.abbreviations import PAUSES
from playhead.engine.text.english.normalise import plain, spoken
from playhead.worker.demo.asr import ASR_RATE_HZ, to_asr_rate
from tests.engine.driver import Driver

HELD_OUT = Path(__file__).parents[2] / "training" / "heldout_agent.txt"
NUM_SENTENCES = 24
LONG_S = 60.0
ALIGNER_FRAME_S = 0.01
BLOCK_S = 0.005
PAUSE_BLOCKS = 20
SPEECH_RMS = 0.006
"""Blocks of 5 ms louder than this are sound; 100 ms without any are a pause."""
NEAR_S = 0.15
"""An onset belongs to the word said to start this near."""
Times = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timed:
    """Said and aligned times of the words of one utterance, in seconds."""

    said_starts: Times
    said_ends: Times
    true_starts: Times
    true_ends: Times

    @property
    def start_errors(self) -> Times:
        """Return by how much each word is said to start too late."""
        return self.said_starts - self.true_starts

    @property
    def end_errors(self) -> Times:
        """Return by how much each word is said to end too late."""
        return self.said_ends - self.true_ends

    def against(self, onsets: Times) -> tuple[list[float], list[float]]:
        """Return said and aligned starts less the onset of sound, for words behind a pause."""
        said: list[float] = []
        aligned: list[float] = []
        for onset in onsets:
            at = int(np.argmin(np.abs(self.said_starts - onset)))
            if abs(self.said_starts[at] - onset) < NEAR_S:
                said.append(float(self.said_starts[at] - onset))
                aligned.append(float(self.true_starts[at] - onset))
        return said, aligned


def onsets_of(pcm: npt.NDArray[np.int16]) -> Times:
    """Return when sound begins behind each pause, in seconds."""
    num_block = round(24_000 * BLOCK_S)
    blocks = pcm[: len(pcm) // num_block * num_block].reshape(-1, num_block) / 32_768
    loud = np.sqrt(np.mean(blocks**2, axis=1)) > SPEECH_RMS
    found = [
        at * BLOCK_S
        for at in range(PAUSE_BLOCKS, len(loud))
        if loud[at] and not loud[at - PAUSE_BLOCKS : at].any()
    ]
    return np.array(found, np.float64)


def spoken_of(words: tuple[Word, ...]) -> list[list[str]]:
    """Return the words that are said for each piece of a text."""
    cores = [plain(word.text) for word in words]
    said = [
        spoken(core, before, behind)
        for before, core, behind in zip(["", *cores], cores, [*cores[1:], ""], strict=False)
    ]
    return [[token.lower() for token in tokens if token not in PAUSES] for tokens in said]


class Aligner:
    """PocketSphinx, made once."""

    def __init__(self) -> None:
        """Load the packaged US English model and dictionary."""
        self._decoder = Decoder(samprate=ASR_RATE_HZ, loglevel="FATAL", lm=None, bestpath=False)

    def knows(self, words: tuple[Word, ...]) -> bool:
        """Say whether the dictionary has every word."""
        return all(
            self._decoder.lookup_word(each) is not None
            for said in spoken_of(words)
            for each in said
        )

    def align(self, words: tuple[Word, ...], pcm: npt.NDArray[np.int16]) -> Timed:
        """Align speech at 24 kHz with the pieces of its text that sound."""
        pieces = spoken_of(words)
        self._decoder.set_align_text(" ".join(each for said in pieces for each in said))
        sound = np.clip(to_asr_rate(pcm) * 32_768, -32_768, 32_767).astype("<i2")
        self._decoder.start_utt()
        self._decoder.process_raw(sound.tobytes(), full_utt=True)
        self._decoder.end_utt()
        found = [
            (segment.start_frame * ALIGNER_FRAME_S, (segment.end_frame + 1) * ALIGNER_FRAME_S)
            for segment in self._decoder.seg()
            if not segment.word.startswith(("<", "["))
        ]
        assert len(found) == sum(map(len, pieces)), "every word is found once"
        rows: list[tuple[float, float, float, float]] = []
        at = 0
        for word, said in zip(words, pieces, strict=True):
            if said:
                rows.append((word.start_s, word.end_s, found[at][0], found[at + len(said) - 1][1]))
                at += len(said)
        return Timed(*np.array(rows, np.float64).T)


def speak(text: str, seed: int = 0) -> tuple[tuple[Word, ...], npt.NDArray[np.int16]]:
    """Speak a text with the embedded voice; return its words and 24 kHz samples."""
    driver = Driver()
    driver.submit(Submit("r", text=text, closed=True, live=False, seed=seed))
    driver.finish("r", limit_s=1_000.0)
    words = tuple(driver.words("r"))
    assert "".join(word.text for word in words) == text
    return words, driver.pcm("r")


def is_monotonic(words: tuple[Word, ...]) -> bool:
    """Say whether no word starts before the one in front of it, or ends before it starts."""
    ordered = all(left.start_s <= right.start_s for left, right in pairwise(words))
    return ordered and all(word.start_s <= word.end_s for word in words)


def held_out(aligner: Aligner, most: int) -> list[str]:
    """Return the first held-out sentences whose words the aligner knows."""
    lines = HELD_OUT.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line and aligner.knows(pieces_as_words(line))]
    return kept[:most]


def pieces_as_words(text: str) -> tuple[Word, ...]:
    """Return a text's pieces as words without times."""
    return tuple(Word(piece, 0.0, 0.0) for piece in text.split())


def long_text(aligner: Aligner) -> str:
    """Return other held-out sentences in a row: more than a minute of speech."""
    return " ".join(held_out(aligner, 200)[NUM_SENTENCES : NUM_SENTENCES + 24])


def measure() -> dict[str, float]:
    """Return the figures: errors in ms, the drift of their median behind 50 s of speech."""
    aligner = Aligner()
    sentences = held_out(aligner, NUM_SENTENCES)
    spoken_ones = [speak(text, seed) for seed, text in enumerate(sentences)]
    timed = [aligner.align(*each) for each in spoken_ones]
    behind = [
        each.against(onsets_of(pcm)) for each, (_, pcm) in zip(timed, spoken_ones, strict=True)
    ]
    said = np.concatenate([each for each, _ in behind])
    aligned = np.concatenate([each for _, each in behind])
    long_words, long_pcm = speak(long_text(aligner))
    long = aligner.align(long_words, long_pcm)
    starts = np.concatenate([each.start_errors for each in timed])
    ends = np.concatenate([each.end_errors for each in timed])
    all_words = [words for words, _ in spoken_ones] + [long_words]
    return {
        "word_time_error_p50_ms": _ms(np.percentile(np.abs(starts), 50)),
        "word_time_error_p95_ms": _ms(np.percentile(np.abs(starts), 95)),
        "word_time_bias_ms": _ms(np.median(starts)),
        "word_end_error_p50_ms": _ms(np.percentile(np.abs(ends), 50)),
        "word_end_error_p95_ms": _ms(np.percentile(np.abs(ends), 95)),
        "onset_error_p50_ms": _ms(np.percentile(np.abs(said), 50)),
        "onset_bias_ms": _ms(np.median(said)),
        "aligner_onset_bias_ms": _ms(np.median(aligned)),
        "word_time_drift_60s_ms": _ms(drift_s(long)),
        "long_text_s": round(len(long_pcm) / 24_000, 1),
        "monotonic": float(all(is_monotonic(words) for words in all_words)),
        "num_words": float(len(starts)),
        "num_onsets": float(len(said)),
    }


def drift_s(long: Timed) -> float:
    """Return how much later words are said to start behind 50 s than in the first 15 s."""
    early, late = long.true_starts < 15.0, long.true_starts > LONG_S - 10.0
    assert late.sum() >= 10, "the text is too short to show a drift"
    return float(np.median(long.start_errors[late]) - np.median(long.start_errors[early]))


def _ms(seconds: float) -> float:
    return round(float(seconds) * 1000, 1)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
