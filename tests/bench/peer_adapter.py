"""A pytest plugin that runs LiveKit Agents' own `tests/test_tts.py`, as it is, against our TTS.

That file asks for seventeen providers, a container named toxiproxy and a speech recogniser behind
it. Here one provider's name stands for us, toxiproxy runs on loopback, and Whisper judges.
`PEER_URL` set: over the wire through toxiproxy; unset: the engine of this process.
"""

import os
import re
import socket
import sys
import types
from typing import Any

import pytest

PROVIDERS = (
    "aws azure bland cartesia deepgram elevenlabs google groq hume inworld lmnt mistralai "
    "neuphonic resemble rime speechify spitch"
).split()
ALIAS = "cartesia"
MAX_WER = 0.2
URL = os.environ.get("PEER_URL", "")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


PROXY_PORT = _free_port()


def _make_tts() -> Any:
    from livekit.plugins import playhead

    return playhead.TTS(base_url=f"http://127.0.0.1:{PROXY_PORT}") if URL else playhead.TTS()


def _stand_in(name: str, **members: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    for key, value in members.items():
        setattr(module, key, value)
    sys.modules[name] = module
    return module


class _Tokens:
    """Cuts text in pieces of a few letters; the real vocabulary would be downloaded."""

    def encode(self, text: str) -> list[str]:
        return re.findall(r"\s*\S{1,4}|\s+", text)

    def decode(self, tokens: list[str]) -> str:
        return "".join(tokens)


def pytest_configure() -> None:
    """Put stand-ins where the file looks for what is not here."""
    import livekit.plugins

    from playhead.worker import sdk_routing

    sdk_routing.touch()
    for provider in PROVIDERS:
        make = _make_tts if provider == ALIAS else None
        module = _stand_in(f"livekit.plugins.{provider}", TTS=make, TTSv2=make)
        setattr(livekit.plugins, provider, module)
    _stand_in("tiktoken", encoding_for_model=lambda _: _Tokens())
    if not URL:
        from livekit.plugins import playhead

        playhead.TTS().prewarm()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Point the file's proxies at loopback and its judge at the offline recogniser."""
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        if not hasattr(module, "Toxiproxy"):
            continue
        module.PROXY_LISTEN = f"127.0.0.1:{PROXY_PORT}"
        module.DG_STT_LISTEN = f"127.0.0.1:{_free_port()}"
        module.assert_valid_synthesized_audio = judge
        create = module.Toxiproxy.create
        module.Toxiproxy.host = "127.0.0.1"
        sys.modules[module.Toxiproxy.__module__].APIConsumer.host = "127.0.0.1"

        def redirect(
            self: Any, upstream: str, *rest: Any, _create: Any = create, **more: Any
        ) -> Any:
            return _create(self, URL.removeprefix("http://") or upstream, *rest, **more)

        module.Toxiproxy.create = redirect


async def judge(*, frames: Any, text: str, sample_rate: int, num_channels: int) -> None:
    """Stand for the file's own check, whose recogniser is a service."""
    import asyncio

    import numpy as np
    from livekit import rtc

    from playhead.worker.demo.asr import Transcriber, word_error_rate

    frame = rtc.combine_audio_frames(frames)
    assert (frame.sample_rate, frame.num_channels) == (sample_rate, num_channels) == (24_000, 1)
    samples = np.frombuffer(bytes(frame.data), "<i2")
    understood = await asyncio.to_thread(Transcriber(1).transcribe, samples)
    assert word_error_rate(text, understood) <= MAX_WER, understood
