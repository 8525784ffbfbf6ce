"""SpeechOptions: how a text is spoken, checked where the caller gives it; pure."""

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

from livekit.agents.utils import is_given

from playhead.engine.errors import InputError
from playhead.engine.messages import Sampling, Submit
from playhead.engine.text.pronunciations import check_pronunciations
from playhead.engine.text.spoken.guess import LANGUAGES
from playhead.worker.http.fields import (
    MAX_INSTRUCTION_CHARS,
    MAX_SEED,
    TEMPERATURE,
    TOP_K,
    TOP_P,
)
from playhead.worker.http.problem import Problem
from playhead.worker.http.schema import Schema, check_object

_NAME: Schema = {"type": "string", "maxLength": 200}
_TEXTS: Schema = {
    "type": "object",
    "maxProperties": math.inf,  # check_pronunciations counts, in words of its own
    "additionalProperties": {"type": "string"},
}
_SCHEMA: Schema = {
    "properties": {
        "voice": _NAME,
        "language": _NAME,
        "instructions": {"type": "string", "maxLength": MAX_INSTRUCTION_CHARS},
        "temperature": TEMPERATURE,
        "top_k": TOP_K,
        "top_p": TOP_P,
        "repetition_penalty": {"type": "number", "minimum": 0.01, "maximum": 100},
        "seed": {"type": "integer", "minimum": 0, "maximum": MAX_SEED},
        "normalize": {"type": "boolean"},
        "pronunciations": _TEXTS,
    }
}
"""As the service checks the same fields; which voices and languages there are the engine knows."""
_SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty")
_NAMES_BY_CODE = {code: name for name, code in reversed(LANGUAGES.items())}
_LANGUAGE_TAG = re.compile(r"([A-Za-z]{2})(?:[-_]\w+)*")


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """How a text is spoken; a stream keeps the options it was opened with."""

    voice: str | None = None
    language: str = "auto"
    instructions: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    normalize: bool = True
    pronunciations: tuple[tuple[str, str], ...] = ()

    def changed(self, **options: Any) -> "SpeechOptions":
        """Return these with the options that are given; None takes the default again.

        Raises ValueError that says what was given and what is allowed.
        """
        given = {name: value for name, value in options.items() if is_given(value)}
        checked = _check({name: value for name, value in given.items() if value is not None})
        defaults = SpeechOptions()
        sampling = {name: checked.get(name) for name in _SAMPLING if name in given}
        rest = {
            name: checked.get(name, getattr(defaults, name))
            for name in given
            if name not in _SAMPLING
        }
        return replace(self, sampling=replace(self.sampling, **sampling), **rest)

    def submit(self, request_id: str, text: str, *, closed: bool, live: bool) -> Submit:
        """Ask for a text in this way of speaking."""
        return Submit(
            request_id=request_id,
            voice=self.voice,
            language=self.language,
            instruct=self.instructions,
            text=text,
            closed=closed,
            live=live,
            sampling=self.sampling,
            seed=self.seed,
            normalize=self.normalize,
            pronunciations=self.pronunciations,
        )


def _check(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options as SpeechOptions keeps them; raises ValueError."""
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}, allowed are numbers")
    if "pronunciations" in given:
        try:
            given["pronunciations"] = dict(given["pronunciations"])
        except (TypeError, ValueError):
            kind = type(given["pronunciations"]).__name__
            raise ValueError(f"pronunciations: got {kind}, allowed: a mapping") from None
    try:
        checked = check_object(given, _SCHEMA)
        spelled = checked.get("pronunciations", {})
        pairs = tuple((word.strip(), said) for word, said in spelled.items())
        check_pronunciations(pairs)
    except (Problem, InputError) as error:
        raise ValueError(str(error)) from None
    if "pronunciations" in checked:
        checked["pronunciations"] = pairs
    if "language" in checked:
        checked["language"] = _language(checked["language"])
    return checked


def _language(given: str) -> str:
    """Return a language as checkpoints name it: `de` and `de-AT` are german."""
    tag = _LANGUAGE_TAG.fullmatch(given)
    return _NAMES_BY_CODE.get(tag[1].lower(), given) if tag else given
