"""The prompt: which text id and which codec id stand in each row before the first frame.

Ids only, no torch. The row the first frame completes is not part of a prompt: it is E[bos] plus
the text id given to that frame (body[0] when text streams, tts_pad when all text is in the
prompt), so the prompt of a streamed request is the same for every text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from playhead.engine.errors import InputError, UnknownLanguage, UnknownVoice
from playhead.engine.messages import TextMode
from playhead.engine.models.config import ModelConfig
from playhead.engine.models.loader import Model

AUTO = "auto"
NEWLINE_ID = 198
"""The newline of the byte-level vocabulary all checkpoints share (spec section 1.1)."""
_DIALECT_OVERRIDES = (AUTO, "chinese")
"""Languages for which a voice's dialect is used instead; never otherwise."""
NONE = -1
"""No id on this side of the row."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Rows the talker runs before the first frame; -1 is no id on that side."""

    text_ids: NDArray[np.int64]
    """[T]"""
    codec_ids: NDArray[np.int64]
    """[T]"""
    num_constant_rows: int
    """Leading rows that are the same for every text of this voice, language and instruction."""
    speaker: NDArray[np.float32] | None = field(default=None)
    """Speaker vector [hidden] added to row `speaker_row`, for models without named voices."""
    speaker_row: int = NONE

    @property
    def num_rows(self) -> int:
        """Talker positions the prompt takes."""
        return len(self.text_ids)

    @property
    def constant_key(self) -> tuple[bytes, bytes, bytes]:
        """Identify the constant rows by what they hold."""
        n = self.num_constant_rows
        speaker = b"" if self.speaker is None else self.speaker.tobytes()
        return self.text_ids[:n].tobytes(), self.codec_ids[:n].tobytes(), speaker


def build_prompt(
    model: Model,
    *,
    voice: str | None,
    language: str,
    instruct: str | None,
    text_mode: TextMode,
    body: Sequence[int] = (),
    speaker: NDArray[np.float32] | None = None,
) -> Prompt:
    """Lay out the prompt of one talker segment (spec section 3).

    `body` holds the text ids and is used in "full" mode only. Raises UnknownVoice,
    UnknownLanguage, or InputError for an instruction the model cannot follow.
    """
    config = model.config
    voice_id = _voice_id(config, voice, speaker is not None)
    ids, text = config.codec_ids, config.text_ids
    role = (text.im_start, text.assistant, NEWLINE_ID)
    lead = (*_instruct_ids(model, instruct), *role)
    tags = _tags(config, voice, language)
    with_speaker = [NONE] if speaker is not None else [] if voice_id is None else [voice_id]
    codec = [*tags, *with_speaker, ids.pad]
    text_side = [text.pad] * (len(codec) - 1) + [text.bos]
    text_rows = [*lead, *text_side]
    codec_rows = [NONE] * len(lead) + codec
    num_constant = len(text_rows)
    if text_mode == "full":
        text_rows += [*body, text.eos]
        codec_rows += [ids.pad] * (len(body) + 1)
    return Prompt(
        text_ids=np.array(text_rows, np.int64),
        codec_ids=np.array(codec_rows, np.int64),
        num_constant_rows=num_constant,
        speaker=speaker,
        speaker_row=NONE if speaker is None else len(lead) + len(tags),
    )


def _voice_id(config: ModelConfig, voice: str | None, has_speaker: bool) -> int | None:
    names = config.voices
    if has_speaker:
        return None
    if not names:
        if voice is not None:
            raise UnknownVoice(
                f"voice {voice!r} is unknown: this checkpoint ({config.kind}) has no named "
                "voices; leave the voice out"
            )
        if config.kind == "base":
            raise InputError(
                "this checkpoint (base) speaks only with a reference voice, and none was given; "
                "use a custom_voice or voice_design checkpoint"
            )
        return None
    key = names[0] if voice is None else voice.lower()
    if key not in config.voice_ids:
        raise UnknownVoice(f"voice {voice!r} is unknown; choose one of {', '.join(names)}")
    return config.voice_ids[key]


def _tags(config: ModelConfig, voice: str | None, language: str) -> tuple[int, ...]:
    ids, key = config.codec_ids, language.lower()
    if key != AUTO and key not in config.language_ids:
        allowed = ", ".join((AUTO, *config.languages))
        raise UnknownLanguage(f"language {language!r} is unknown; choose one of {allowed}")
    speaker = voice.lower() if voice is not None else next(iter(config.voices), "")
    dialect = config.dialects.get(speaker)
    if dialect is not None and key in _DIALECT_OVERRIDES:
        key = dialect
    if key == AUTO:
        return (ids.nothink, ids.think_bos, ids.think_eos)
    return (ids.think, ids.think_bos, config.language_ids[key], ids.think_eos)


def _instruct_ids(model: Model, instruct: str | None) -> tuple[int, ...]:
    if not instruct:
        return ()
    config = model.config
    if config.kind == "custom_voice" and config.size_label == "0b6":
        raise InputError(
            "instruct was given, but the 0.6B custom-voice model was not trained to follow one; "
            "leave it out or load a 1.7B checkpoint"
        )
    found = model.instruct_ids(instruct)
    if found is None:
        raise InputError(
            f"instruct was given, but this checkpoint ({config.size_label or config.kind}) was not "
            "trained to follow one; leave it out or load a 1.7B checkpoint"
        )
    return found
