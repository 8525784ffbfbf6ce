"""Which engine a TTS speaks with: the one it was given, the one lent, a server, or its own."""

import os
from pathlib import Path
from typing import TypeVar

import aiohttp
from livekit.agents.types import NOT_GIVEN, NotGiven, NotGivenOr
from livekit.agents.utils import is_given
from livekit.plugins.playhead.remote import RemoteEngine
from livekit.plugins.playhead.shared_engine import (
    DEFAULT_PROFILE,
    EMBEDDED_MODEL,
    SharedEngine,
    given_engine,
    lent_engine,
    own_engine,
)

from playhead.worker.client import EngineClient

T = TypeVar("T")
MODEL_FAMILY = "qwen3-tts"
"""Model name where the engine was given: it alone knows which checkpoint it loaded."""


def choose_engine(
    engine: NotGivenOr[EngineClient | str | Path | None],
    base_url: NotGivenOr[str | None],
    api_key: NotGivenOr[str | None],
    http_session: aiohttp.ClientSession | None,
    model: NotGivenOr[str | None],
    profile: NotGivenOr[str | None],
) -> tuple[str, SharedEngine | RemoteEngine]:
    """Return the model's name and the engine, by the order TTS documents; raises ValueError.

    None is as good as not given: what `os.environ.get` returns may be passed on.
    """
    engine, base_url = _given(engine), _given(base_url)
    api_key, model, profile = _given(api_key), _given(model), _given(profile)
    own = is_given(model) or is_given(profile)
    if is_given(engine) + is_given(base_url) + own > 1:
        raise ValueError(
            "engine, base_url, and model with profile each choose an engine: give one of them"
        )
    if not isinstance(engine, NotGiven):
        if not isinstance(engine, EngineClient | str | Path) or engine == "":
            raise ValueError(f"engine is {engine!r}; give a started client or a socket path")
        return MODEL_FAMILY, given_engine(engine)
    lent = None if own or is_given(base_url) else lent_engine()
    if lent is not None:
        return MODEL_FAMILY, lent
    url = base_url if is_given(base_url) else os.environ.get("PLAYHEAD_URL", "")
    if is_given(base_url) or (url and not own):
        key = api_key if is_given(api_key) else os.environ.get("PLAYHEAD_API_KEY")
        return MODEL_FAMILY, RemoteEngine(url, key, http_session)
    name = model if is_given(model) else default_model()
    return name, own_engine(name, profile if is_given(profile) else DEFAULT_PROFILE)


def _given(value: NotGivenOr[T | None]) -> NotGivenOr[T]:
    return NOT_GIVEN if value is None else value


def default_model() -> str:
    """Return what an own engine loads where no model is named."""
    return os.environ.get("PLAYHEAD_MODEL") or EMBEDDED_MODEL
