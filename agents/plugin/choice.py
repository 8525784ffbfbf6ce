"""Which engine a TTS speaks with: the one it was given, the one lent, a server, or its own."""

import os
from pathlib import Path

import aiohttp
from livekit.agents.types import NotGiven, NotGivenOr
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

MODEL_FAMILY = "qwen3-tts"
"""Model name where the engine was given: it alone knows which checkpoint it loaded."""


def choose_engine(
    engine: NotGivenOr[EngineClient | str | Path],
    base_url: NotGivenOr[str],
    api_key: NotGivenOr[str],
    http_session: aiohttp.ClientSession | None,
    model: NotGivenOr[str],
    profile: NotGivenOr[str],
) -> tuple[str, SharedEngine | RemoteEngine]:
    """Return the model's name and the engine, by the order TTS documents; raises ValueError."""
    own = is_given(model) or is_given(profile)
    if is_given(engine) + is_given(base_url) + own > 1:
        raise ValueError(
            "engine, base_url, and model with profile each choose an engine: give one of them"
        )
    if not isinstance(engine, NotGiven):
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


def default_model() -> str:
    """Return what an own engine loads where no model is named."""
    return os.environ.get("PLAYHEAD_MODEL") or EMBEDDED_MODEL
