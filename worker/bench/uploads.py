"""New clones as a client of the service gets them: upload a recording, speak with it, over HTTP.

From the first byte of the upload to the first sample of its speech, on loopback, one after another;
each recording is one that was never heard before.
"""

import asyncio
import io
import math
import os
import statistics
import tempfile
import time
import wave
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from playhead.engine.errors import EngineFailure
from playhead.engine.profile import load_profile
from playhead.engine.units import SAMPLE_BYTES, SAMPLE_RATE_HZ
from playhead.worker.bench.server import Served, parse_metrics

LIMIT_S = 120.0
"""Of one answer."""
REFERENCE_S = 3.0
PAUSE_S = 0.1
"""For the engine to end speech that its client left."""


def uploaded(
    model: Path, profile: str, most_streams: int, requests: int, text: str
) -> dict[str, float]:
    """Serve a base checkpoint and clone `requests` recordings, and one before that is not counted.

    Returns medians; the profile is cut down to `most_streams`. Raises EngineFailure with what the
    service says when it does not do it.
    """
    base = Path(profile).resolve() if Path(profile).suffix else profile
    whole = load_profile(profile)
    streams = min(most_streams, whole.max_streams)
    rows = min(streams, whole.max_rows)
    sizes = {"max_streams": streams, "max_rows": rows, "flat_rows": min(rows, whole.flat_rows)}
    with tempfile.TemporaryDirectory(prefix="playhead-bench-") as folder:
        cut = Path(folder) / "cut.yaml"
        lines = [f"extends: {base}", *(f"{key}: {size}" for key, size in sizes.items())]
        cut.write_text("\n".join(lines), encoding="utf-8")
        with Served(model, str(cut)) as served:
            waits_s = asyncio.run(_waits_s(served.url, requests, text))
    return {name: statistics.median(each[1:]) * 1e3 for name, each in waits_s.items()}


async def _waits_s(url: str, requests: int, text: str) -> dict[str, list[float]]:
    made, first, again = [], [], []
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=LIMIT_S)) as session:
        client = _Client(session, text)
        try:
            for number in range(requests + 1):
                name = f"bench-family-{os.getpid()}-http-{number}"
                # No two recordings are of one length, so nothing is planned ahead for them.
                recording = reference(113.0 + 7 * number, REFERENCE_S + number / 1000)
                began_s = time.perf_counter()
                await client.add(name, recording)
                made.append(time.perf_counter() - began_s)
                await client.first_pcm(name)
                first.append(time.perf_counter() - began_s)
                await client.settle()
                began_s = time.perf_counter()
                await client.first_pcm(name)
                again.append(time.perf_counter() - began_s)
                await client.settle()
        finally:
            await client.forget()
    return {
        "clone_new_http_made_ms": made,
        "clone_new_http_first_audio_ms": first,
        "clone_cached_http_first_audio_ms": again,
    }


@dataclass(slots=True)
class _Client:
    """One client on one connection."""

    session: aiohttp.ClientSession
    text: str
    names: list[str] = field(default_factory=list)
    """Of voices that have to go."""

    async def add(self, name: str, recording: bytes) -> None:
        """Upload a recording; returns once it is a voice."""
        form = aiohttp.FormData({"name": name, "consent": "a recording made up by a benchmark"})
        form.add_field("audio", recording, filename="reference.wav", content_type="audio/wav")
        async with self.session.post("/v1/voices", data=form) as answer:
            if answer.status != 201:
                raise EngineFailure(
                    f"the upload was answered {answer.status}: {await answer.text()}"
                )
        self.names.append(name)

    async def first_pcm(self, name: str) -> None:
        """Ask for speech in a voice; returns with its first samples and leaves."""
        body = {"input": self.text, "voice": name, "response_format": "pcm"}
        async with self.session.post("/v1/audio/speech", json=body) as answer:
            if answer.status != 200 or not await answer.content.readany():
                raise EngineFailure(f"speech was answered {answer.status}: {await answer.text()}")
            answer.close()  # the rest is cancelled

    async def settle(self) -> None:
        """Return once nothing is spoken any more. Raises TimeoutError."""
        async with asyncio.timeout(LIMIT_S):
            live = 1.0
            while live:
                await asyncio.sleep(PAUSE_S)
                async with self.session.get("/metrics") as answer:
                    live = parse_metrics(await answer.text())["http_live_utterances"]
            await asyncio.sleep(PAUSE_S)

    async def forget(self) -> None:
        """Delete the voices."""
        for name in self.names:
            async with self.session.delete(f"/v1/voices/{name}"):
                pass


def reference(pitch_hz: float, duration_s: float = REFERENCE_S) -> bytes:
    """Return a WAV file, 24 kHz: syllables of a harmonic tone with pauses."""
    import numpy as np  # a part of the cold start that family_member measures

    at_s = np.arange(int(duration_s * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    tone = sum(np.sin(2 * math.pi * pitch_hz * k * at_s) / k for k in range(1, 12))
    loud = np.clip(np.sin(2 * math.pi * 3 * at_s), 0, None)
    noise = np.random.default_rng(int(pitch_hz)).normal(size=len(at_s)) * 1e-4
    samples = (0.2 * tone * loud + noise).clip(-0.9, 0.9) * 32767
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(SAMPLE_BYTES)
        out.setframerate(SAMPLE_RATE_HZ)
        out.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()
