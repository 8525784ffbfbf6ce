"""The prompt: which text id and which codec id stand in each row before the first frame.

Ids only, no torch. The row the first frame completes is not part of a prompt: it is E[bos] plus
the text id given to that frame (body[0] when text streams, tts_pad when all text is in the
prompt), so the prompt of a streamed request is the same for every text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from playhead.engine.errors import InputError, NotInstructable, UnknownLanguage, UnknownVoice
from playhead.engine.messages import TextMode
from playhead.engine.models.config import ModelConfig

if TYPE_CHECKING:
    from playhead.engine.models.loader import Model

AUTO = "auto"
NEWLINE_ID = 198
"""The newline of the byte-level vocabulary all checkpoints share (spec section 1.1)."""
_DIALECT_OVERRIDES = (AUTO, "chinese")
"""Languages for which a voice's dialect is used instead; never otherwise."""
NONE = -1
"""No id on this side of the row."""


@dataclass(frozen=True, slots=True)
class Clone:
    """A voice read out of a reference."""

    speaker: NDArray[np.float32]
    """[hidden]: the speaker encoder's vector."""
    codes: NDArray[np.int16] | None = None
    """[R, 16]: the reference's frames, to be continued in its manner; None: the vector alone."""
    transcript: str = ""
    """What the reference says; belongs to `codes`."""


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
    reference: NDArray[np.int16] | None = None
    """[R, 16]: frames of an in-context clone; all but the last add to the rows from
    `reference_row` on, the last starts the first frame."""
    reference_row: int = NONE
    trailing_ids: tuple[int, ...] = ()
    """Text ids of the first frames of a streamed in-context clone, the end included; then pad."""

    @property
    def num_rows(self) -> int:
        """Talker positions the prompt takes."""
        return len(self.text_ids)

    @property
    def constant_key(self) -> tuple[bytes, bytes, bytes]:
        """Identify the constant rows by what they hold."""
        n = self.num_constant_rows
        speaker = b"" if self.speaker is None else self.speaker.tobytes()
        reference = b"" if self.reference is None else self.reference.tobytes()
        return self.text_ids[:n].tobytes(), self.codec_ids[:n].tobytes(), speaker + reference


def build_prompt(
    model: "Model",
    *,
    voice: str | None,
    language: str,
    instruct: str | None,
    text_mode: TextMode,
    body: Sequence[int] = (),
    clone: Clone | None = None,
) -> Prompt:
    """Lay out the prompt of one talker segment (spec sections 3 and 7).

    `body` holds the text ids; it is used in "full" mode and by in-context clones, whose text must
    be complete. Raises UnknownVoice, UnknownLanguage, NotInstructable, or InputError for a clone
    the model cannot follow.
    """
    config = model.config
    voice_id = _voice_id(config, voice, clone)
    ids, text = config.codec_ids, config.text_ids
    role = (text.im_start, text.assistant, NEWLINE_ID)
    lead = (*_instruct_ids(model, instruct), *role)
    tags = _tags(config, voice, language)
    with_speaker = [NONE] if clone is not None else [] if voice_id is None else [voice_id]
    codec = [*tags, *with_speaker, ids.pad]
    text_side = [text.pad] * (len(codec) - 1) + [text.bos]
    text_rows = [*lead, *text_side]
    codec_rows = [NONE] * len(lead) + codec
    num_constant = len(text_rows)
    prompt = Prompt(
        text_ids=np.array(text_rows, np.int64),
        codec_ids=np.array(codec_rows, np.int64),
        num_constant_rows=num_constant,
        speaker=None if clone is None else clone.speaker,
        speaker_row=NONE if clone is None else len(lead) + len(tags),
    )
    if clone is not None and clone.codes is not None:
        return _in_context(model, prompt, clone.codes, clone.transcript, text_mode, body)
    if text_mode == "streaming":
        return prompt
    said = [*body, text.eos]
    return _longer(prompt, said, [ids.pad] * len(said))


def _in_context(
    model: "Model",
    prompt: Prompt,
    codes: NDArray[np.int16],
    transcript: str,
    text_mode: TextMode,
    body: Sequence[int],
) -> Prompt:
    """Append the reference: its transcript before the text, its frames before the new ones."""
    ids, text = model.config.codec_ids, model.config.text_ids
    reference = model.text_ids(transcript)
    said, num_frames = (*reference, *body, text.eos), len(codes)
    frames = [ids.bos] + [NONE] * (num_frames - 1)
    trailing: tuple[int, ...] = ()
    if text_mode == "full":
        longer = _longer(
            prompt,
            [*said, *[text.pad] * num_frames],
            [*[ids.pad] * len(said), *frames],
        )
        beside = len(reference)
    else:
        filled = [*said[:num_frames], *[text.pad] * (num_frames - len(said))]
        longer = _longer(prompt, filled, frames)
        beside, trailing = min(len(reference), num_frames), said[num_frames:]
    return replace(
        longer,
        num_constant_rows=prompt.num_constant_rows + beside,
        reference=codes,
        reference_row=longer.num_rows - num_frames + 1,
        trailing_ids=trailing,
    )


def _longer(prompt: Prompt, text_ids: Sequence[int], codec_ids: Sequence[int]) -> Prompt:
    return replace(
        prompt,
        text_ids=np.concatenate([prompt.text_ids, np.array(text_ids, np.int64)]),
        codec_ids=np.concatenate([prompt.codec_ids, np.array(codec_ids, np.int64)]),
    )


def _voice_id(config: ModelConfig, voice: str | None, clone: Clone | None) -> int | None:
    names = config.voices
    if clone is not None:
        if config.kind != "base" or clone.speaker.shape != (config.talker.hidden,):
            raise InputError(
                f"the voice is a clone of {clone.speaker.size} values, which this checkpoint "
                f"({config.kind}, {config.talker.hidden}) cannot speak; load the base checkpoint "
                "it was made with"
            )
        return None
    if not names:
        if voice is not None:
            raise UnknownVoice(
                f"voice {voice!r} is unknown: this checkpoint ({config.kind}) has no named "
                "voices; leave the voice out"
            )
        if config.kind == "base":
            raise InputError(
                "this checkpoint (base) speaks only with a cloned voice, and none was given; "
                "name a stored one (playhead voice add), or use a custom_voice or voice_design "
                "checkpoint"
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


def _instruct_ids(model: "Model", instruct: str | None) -> tuple[int, ...]:
    if not instruct:
        return ()
    config = model.config
    if config.kind == "custom_voice" and config.size_label == "0b6":
        raise NotInstructable(
            "instruct was given, but the 0.6B custom-voice model was not trained to follow one; "
            "leave it out or load a 1.7B checkpoint"
        )
    if config.kind == "base":
        raise NotInstructable(
            "instruct was given, but base checkpoints take their manner from the reference voice; "
            "leave it out, or load a custom_voice or voice_design checkpoint"
        )
    found = model.instruct_ids(instruct)
    if found is None:
        raise NotInstructable(
            f"instruct was given, but this checkpoint ({config.size_label or config.kind}) was not "
            "trained to follow one; leave it out or load a 1.7B checkpoint"
        )
    return found
