"""Fixed sentences through the engine: does speech come, is it as long as its text, does it end?

Word errors are counted by the optional recogniser, in the language it knows.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from playhead.engine.device import profile_tier
from playhead.engine.engine import Engine
from playhead.engine.messages import Done, Failed, Pcm, Refused, Result, Submit
from playhead.engine.models.loader import Model
from playhead.engine.profile import Profile
from playhead.engine.units import SAMPLE_RATE_HZ

Judged = tuple[str, bool | None, str]
"""(check, passed or None where it was skipped, what was found)."""
LETTERS_PER_S, LETTERS_PER_WIDE = 14.6, 3.0
"""Mean speaking rate; a Chinese, Japanese or Korean character takes as long as three letters."""
SHORTEST, LONGEST, EXTRA_S = 0.4, 2.5, 1.5
"""Speech may take so many times its expected length; the longest and a little more."""
QUIET = 0.01
"""Share of full scale below which a window holds no speech."""
MAX_SILENCE_S = 2.0
MAX_WER = 0.15
ASR_LANGUAGE = "english"
_WINDOW = SAMPLE_RATE_HZ // 50


def speech_lines(
    model: Model,
    sentences: Mapping[str, Sequence[str]],
    profile: Profile,
    voice: str | None,
    instruct: str | None,
) -> Iterator[Judged]:
    """Speak every sentence as the profile does; yield what spoke, a line a language, and one for
    word errors. Raises ConfigError for a device that can't run the checkpoint."""
    if model.config.kind == "base" and voice is None:
        yield "speech", None, "base checkpoints speak with a cloned voice; give --voice"
        return
    results: list[Result] = []
    engine = Engine(model.folder, profile, results.extend)
    tier = profile_tier(profile, model.config)
    kept = tier.quantized or tier.dtype
    yield "engine", True, f"profile {profile.name}, {tier.device}, {kept}: {tier.why}"
    heard: dict[str, list[NDArray[np.int16]]] = {}
    for language, texts in sentences.items():
        spoken = []
        findings: list[str] = [] if texts else ["no sentences are stored for it"]
        asked = language if language in model.config.languages else "auto"
        for text in texts:
            submit = Submit(
                "verify", voice, asked, text=text, instruct=instruct, closed=True, live=False
            )
            pcm, told = _speak(engine, results, submit)
            spoken.append(pcm)
            findings += [f"{text[:24]!r} {what}" for what in (told, *faults(text, pcm)) if what]
        heard[language] = spoken
        total_s = sum(map(len, spoken)) / SAMPLE_RATE_HZ
        fine = f"{len(texts)} sentences, {total_s:.1f} s of speech"
        yield f"speech {language}", not findings, "; ".join(findings[:3]) or fine
    yield _word_errors(sentences.get(ASR_LANGUAGE, ()), heard.get(ASR_LANGUAGE, []))


def _speak(engine: Engine, results: list[Result], submit: Submit) -> tuple[NDArray[np.int16], str]:
    """Return the speech of a request, and what went wrong with it as a whole."""
    results.clear()
    engine.post(submit)
    ends: list[Done | Failed | Refused] = []
    while not ends:
        engine.step()
        ends = [r for r in results if isinstance(r, Done | Failed | Refused)]
    pcm = np.frombuffer(b"".join(r.pcm for r in results if isinstance(r, Pcm)), "<i2")
    end = ends[0]
    if isinstance(end, Done):
        return pcm, "" if end.reason == "stop" else f"did not end by itself ({end.reason})"
    return pcm, end.message


def faults(text: str, pcm: NDArray[np.int16]) -> Iterator[str]:
    """Yield what is wrong with the length and the silences of a text's speech [N] at 24 kHz."""
    letters = sum(LETTERS_PER_WIDE if ord(c) >= 0x2E80 else 1.0 for c in text)
    expected_s, found_s = letters / LETTERS_PER_S, len(pcm) / SAMPLE_RATE_HZ
    if not SHORTEST * expected_s <= found_s <= LONGEST * expected_s + EXTRA_S:
        yield f"took {found_s:.1f} s, about {expected_s:.1f} s were expected"
    windows = np.abs(pcm[: len(pcm) // _WINDOW * _WINDOW].reshape(-1, _WINDOW)).max(1, initial=0)
    loud = np.flatnonzero(windows > QUIET * 32768)
    if len(loud) == 0:
        yield "is silent"
        return
    gaps = np.diff(np.concatenate([[-1], loud, [len(windows)]]))
    if gaps.max() * _WINDOW / SAMPLE_RATE_HZ > MAX_SILENCE_S:
        yield f"holds {gaps.max() * _WINDOW / SAMPLE_RATE_HZ:.1f} s of silence"


def _word_errors(texts: Sequence[str], heard: Sequence[NDArray[np.int16]]) -> Judged:
    check = "word errors"
    if not texts:
        return check, None, f"the recogniser knows {ASR_LANGUAGE} alone, which was not spoken"
    try:
        from playhead.worker.demo.asr import Transcriber, word_error_rate

        recogniser = Transcriber()
        understood = " ".join(recogniser.transcribe(pcm) for pcm in heard)
    except ImportError as error:
        return check, None, f"the recogniser is not installed ({error.name}); extra: demo"
    rate = word_error_rate(" ".join(texts), understood)
    return check, rate <= MAX_WER, f"{100 * rate:.1f} % in {len(texts)} {ASR_LANGUAGE} sentences"
