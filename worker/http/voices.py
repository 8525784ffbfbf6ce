"""Voices and models as clients name them: the checkpoint's own, and aliases such as OpenAI's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from playhead.engine.errors import ConfigError, UnknownLanguage, UnknownVoice
from playhead.worker.http.problem import Problem

if TYPE_CHECKING:  # the store needs what a client of the service has not
    from playhead.worker.http.stored_voices import OwnVoices

OPENAI_VOICES = tuple(
    "alloy ash ballad cedar coral echo fable marin nova onyx sage shimmer verse".split()
)
"""Names that clients made for OpenAI insist on."""
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
EMBEDDED_MODEL = "playhead-english"
AUTO = "auto"


class Voices:
    """Which names are spoken with which speaker of the checkpoint."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        """Take configured aliases; OpenAI's names without one go round the checkpoint's voices."""
        self._aliases = {name.lower(): voice.lower() for name, voice in aliases.items()}

    def aliases(self, voices: Sequence[str]) -> dict[str, str]:
        """Return alias -> speaker; a speaker's own name is never an alias."""
        if not voices:
            return {}
        names = {name: voices[i % len(voices)] for i, name in enumerate(OPENAI_VOICES)}
        names |= {name: voice for name, voice in self._aliases.items() if voice in voices}
        return {name: voice for name, voice in names.items() if name not in voices}

    def unknown(self, voices: Sequence[str]) -> list[str]:
        """Return configured aliases whose speaker the checkpoint does not have."""
        return [name for name, voice in self._aliases.items() if voice not in voices]

    def names(self, voices: Sequence[str]) -> list[str]:
        """Return every name that may be asked for."""
        return [*voices, *self.aliases(voices)] if voices else list(OPENAI_VOICES)

    def resolve(
        self, name: str | None, voices: Sequence[str], stored: "OwnVoices | None" = None
    ) -> str | None:
        """Return the speaker for a name, or the id of a stored voice; None takes the first.

        Raises UnknownVoice, and Problem 500 when the store can't be read.
        """
        if name is None:
            return None
        key = name.lower()
        speaker = key if key in voices else self.aliases(voices).get(key)
        if speaker is None and stored is not None:
            speaker = stored.find(self._aliases.get(key, key))
        if speaker is not None:
            return speaker
        if not voices and key in OPENAI_VOICES:
            return None  # a checkpoint without speakers: its one voice answers to these names
        allowed = self.names(voices)
        if stored is not None:
            allowed = [voice.name for voice, _ in stored.listed()] + allowed
        raise UnknownVoice(f"no such voice; choose one of {', '.join(allowed)}")


def check_language(name: str, languages: Sequence[str]) -> str:
    """Return the language as the engine names it; raises UnknownLanguage."""
    key = name.lower()
    if key != AUTO and key not in languages:
        raise UnknownLanguage(f"no such language; choose one of {', '.join((AUTO, *languages))}")
    return key


class Models:
    """Names under which the loaded checkpoint may be asked for."""

    def __init__(self, model: str | None, aliases: Sequence[str] = OPENAI_MODELS) -> None:
        """`model` is the folder or hub name given to the engine; None is the embedded voice."""
        self.name = EMBEDDED_MODEL if model is None else Path(model).name
        self.names = (self.name, *(name for name in aliases if name != self.name))

    def check(self, name: str) -> None:
        """Raise Problem 404 for a model that is not served here."""
        if name not in self.names:
            raise Problem(
                404,
                "model_not_found",
                f"no such model; served here: {', '.join(self.names)}",
                param="model",
            )

    def entry(self, name: str) -> dict[str, object]:
        """Return one model as OpenAI lists it."""
        return {"id": name, "object": "model", "created": 0, "owned_by": "playhead"}


def read_aliases(pairs: Sequence[str]) -> dict[str, str]:
    """Return NAME=VOICE pairs as a mapping; raises ConfigError."""
    aliases: dict[str, str] = {}
    for pair in pairs:
        name, found, voice = pair.partition("=")
        if not (found and name.strip() and voice.strip()):
            raise ConfigError(f"voice alias {pair!r}; allowed is NAME=VOICE, as in nova=vivian")
        aliases[name.strip()] = voice.strip()
    return aliases
