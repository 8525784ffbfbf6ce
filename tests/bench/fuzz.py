"""Fuzz: random input to every surface that strangers reach, for as long as told; nothing may break.

    python -m tests.bench.fuzz --seconds 600 [--only websocket]

Surfaces: the WebSocket protocol, the text front end, profile files, reference recordings. A crash
is any error that the surface does not name; its smallest input is printed. Then Schemathesis holds
a running service against its own OpenAPI document. Writes `fuzz_crashes`, `schemathesis_failures`.
"""

import argparse
import asyncio
import contextlib
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.test_utils import TestServer
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from playhead.engine.errors import ConfigError, InputError
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.profile import Profile, load_profile
from playhead.engine.reference_audio import read_reference
from playhead.engine.text.english.front_end import EnglishFrontEnd
from playhead.worker.client import EngineClient
from playhead.worker.http.messages import PROTOCOL, TYPES
from playhead.worker.http.options import HttpOptions
from playhead.worker.http.routes import build_app
from playhead.worker.http.service import Service
from playhead.worker.thread_carrier import ThreadCarrier
from tests.bench.result import write_result
from tests.bench.soak import service
from tests.fakes import ScriptedEngine

ROUND_EXAMPLES = 50
Check = Callable[[Any], None]


def fuzz(inputs: st.SearchStrategy[Any], check: Check, limit_s: float) -> tuple[int, list[str]]:
    """Run rounds of examples until the time is up; return their number and what broke."""
    end_s = time.monotonic() + limit_s
    crashes: list[str] = []
    tried = 0

    def counted(data: Any) -> None:
        nonlocal tried
        tried += 1
        if time.monotonic() < end_s:
            check(data)

    for number in itertools.count():
        if time.monotonic() >= end_s or len(crashes) >= 5:
            return tried, crashes
        test = settings(
            max_examples=ROUND_EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )(seed(number)(given(inputs)(counted)))
        try:
            test()
        except Exception as error:
            notes = " ".join(getattr(error, "__notes__", ()))
            crashes.append(f"{type(error).__name__}: {error} {notes}"[:2000])
    raise AssertionError


# -- surfaces

_ANY_TEXT = st.text(max_size=200) | st.text("aZ9 .,!?$%&'\"-\n1234567890@/:", max_size=300)
TEXTS = st.lists(_ANY_TEXT, max_size=8)

_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_KEYS = st.sampled_from([*Profile.__dataclass_fields__, "extends"]) | st.text(max_size=12)
_YAML = st.dictionaries(_KEYS, _VALUES | st.lists(_VALUES, max_size=4), max_size=6)
PROFILES = st.binary(max_size=300) | _YAML.map(lambda each: json.dumps(each).encode())

_NAMES = st.sampled_from(["a", "b", "c", "", "x" * 65, "a b"])
_MESSAGES = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)},
    optional={
        "utterance": _NAMES,
        "sequence": st.integers(-1, 4) | _VALUES,
        "text": _ANY_TEXT,
        "voice": st.sampled_from(["tone", "nova", "nobody"]) | _VALUES,
        "played_samples": st.integers(-5, 90_000) | _VALUES,
        "state": st.sampled_from(["playing", "paused", "upside down"]),
        "id": _NAMES,
        "seed": st.integers(-1, 1 << 60),
        "temperature": _VALUES,
    },
)
_JSON = st.recursive(
    _VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
)
TALKS = st.lists(
    _MESSAGES.map(json.dumps) | _JSON.map(json.dumps) | st.text(max_size=40) | st.binary(),
    max_size=25,
)


def _wav(rate_hz: int, channels: int, width: int, samples: bytes, cut: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate_hz)
        file.writeframes(samples * (rate_hz // max(len(samples), 1)))
    return out.getvalue()[: cut or None]


_HEADS = st.sampled_from(
    [b"RIFF\xff\xff\xff\xffWAVEfmt ", b"ID3", b"OggS", b"fLaC", b"\0\0\0\x20ftypM4A ", b"\xff\xfb"]
)
RECORDINGS = (
    st.builds(
        _wav,
        st.sampled_from([1, 7_999, 8_000, 24_000, 48_000]),
        st.integers(1, 3),
        st.integers(1, 4),
        st.binary(min_size=1, max_size=600),
        st.integers(0, 60_000),
    )
    | st.builds(bytes.__add__, _HEADS, st.binary(max_size=400))
    | st.binary(max_size=200)
)


def check_text(parts: list[str]) -> None:
    """Units joined are the text, however it came; nothing but an InputError stops it."""
    stream = _front_end().open()
    try:
        units = [unit for part in parts for unit in stream.push(part)] + stream.close()
    except InputError:
        return
    assert "".join(unit.text for unit in units) == "".join(parts)


def check_profile(data: bytes) -> None:
    """A file is a profile, or a ConfigError says why not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.yaml"
        path.write_bytes(data)
        with contextlib.suppress(ConfigError):
            load_profile(str(path))


def check_recording(data: bytes) -> None:
    """A recording is usable, or an InputError says why not."""
    with contextlib.suppress(InputError):
        read_reference(data)


_loaded: list[EnglishFrontEnd] = []


def _front_end() -> EnglishFrontEnd:
    if not _loaded:
        _loaded.append(EnglishFrontEnd(EMBEDDED_VOICE))
    return _loaded[0]


class Talker:
    """A real service on a real socket over a scripted engine; one connection an example."""

    def __init__(self) -> None:
        """Start the service."""
        self._loop = asyncio.new_event_loop()
        self._engines: list[ScriptedEngine] = []
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        def make(on_results: Any) -> Any:
            self._engines.append(ScriptedEngine(on_results))
            return self._engines[-1]

        client = EngineClient(ThreadCarrier(make))
        self._service = Service(client, HttpOptions(max_chars=2_000, idle_s=20.0))
        self._server = TestServer(build_app(self._service))
        await self._server.start_server()
        await self._loop.run_in_executor(None, client.start)
        self._warm = asyncio.create_task(self._service.keep_warm())
        while not self._service.ready:
            await asyncio.sleep(0.02)
        self._session = aiohttp.ClientSession()

    def close(self) -> None:
        """Stop everything; every utterance must have ended."""
        self._loop.run_until_complete(self._close())

    async def _close(self) -> None:
        async with asyncio.timeout(10):
            while self._service.counters.live_utterances:
                await asyncio.sleep(0.05)
        self._warm.cancel()
        await self._session.close()
        await self._server.close()
        await asyncio.to_thread(self._service.client.close)

    def check(self, frames: list[str | bytes]) -> None:
        """Say everything; then a ping is answered, or the server closed for a named reason."""
        self._loop.run_until_complete(self._talk(frames))

    async def _talk(self, frames: list[str | bytes]) -> None:
        url = self._server.make_url("/v1/audio/speech/ws")
        events: list[dict[str, Any]] = []
        async with self._session.ws_connect(url, protocols=[PROTOCOL]) as socket:
            for frame in frames:
                if isinstance(frame, bytes):
                    await socket.send_bytes(frame)
                else:
                    await socket.send_str(frame)
            await socket.send_json({"type": "ping", "id": "the-last-one"})
            async with asyncio.timeout(20):
                async for message in socket:
                    if message.type is not aiohttp.WSMsgType.TEXT:
                        continue
                    events.append(message.json())
                    if events[-1].get("id") == "the-last-one":
                        break
            closed = socket.close_code
        answered = bool(events) and events[-1].get("id") == "the-last-one"
        assert answered or closed in (1007, 1008, 1009), (closed, events[-3:])
        for event in events:
            if event["type"] == "error":
                assert event["error"]["code"] not in ("internal", "engine_failure"), event
        ended = [each["utterance"] for each in events if each["type"] == "utterance.done"]
        made = [each["utterance"] for each in events if each["type"] == "utterance.created"]
        for name in set(ended):
            assert ended.count(name) <= made.count(name), events


def surfaces() -> dict[str, tuple[st.SearchStrategy[Any], Check]]:
    """Return what can be fuzzed without a server."""
    return {
        "text": (TEXTS, check_text),
        "profile": (PROFILES, check_profile),
        "recording": (RECORDINGS, check_recording),
    }


def fuzz_surface(name: str, limit_s: float) -> tuple[int, list[str]]:
    """Fuzz one surface by name; return the number of inputs and what broke."""
    if name != "websocket":
        return fuzz(*surfaces()[name], limit_s)
    talker = Talker()
    try:
        return fuzz(TALKS, talker.check, limit_s)
    finally:
        talker.close()


SURFACES = ("websocket", "text", "profile", "recording")
SCHEMATHESIS_CONFIG = """[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "406", "413", "415", "422"]
"""


def schemathesis(url: str, max_examples: int, limit_s: float) -> tuple[int, int, str]:
    """Run it against a service; return the requests made, the failures found, and its report."""
    here = str(Path(sys.executable).parent)
    command = shutil.which("schemathesis", path=f"{here}{os.pathsep}{os.environ['PATH']}")
    assert command is not None, "schemathesis is not installed: it is part of the dev group"
    flags = ["--max-examples", str(max_examples), "--phases", "coverage,fuzzing", "--seed", "1"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "schemathesis.toml").write_text(SCHEMATHESIS_CONFIG)
        done = subprocess.run(
            [command, "run", f"{url}/openapi.json", *flags],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
    report = done.stdout
    counted = re.search(
        r"(\d+) generated, (?:(\d+) found (\d+) unique failures?|\d+ passed)", report
    )
    assert counted is not None, report[-4000:] + done.stderr[-2000:]
    failures = int(counted[3] or 0)
    return int(counted[1]), max(failures, int(done.returncode != 0)), report


def main() -> int:
    """Fuzz every surface in turn; return 1 if anything broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for each surface")
    parser.add_argument("--only", choices=SURFACES)
    parser.add_argument("--examples", type=int, default=20, help="Schemathesis', per operation")
    parser.add_argument("--write", action="store_true", help="write the result file")
    args = parser.parse_args()
    crashes = 0
    for name in (args.only,) if args.only else SURFACES:
        tried, broken = fuzz_surface(name, args.seconds)
        print(f"{name}: {tried} inputs, {len(broken)} crashes", flush=True)
        print("\n".join(broken), flush=True)
        crashes += len(broken)
    figures = {"fuzz_crashes": float(crashes), "fuzz_s_per_surface": args.seconds}
    failures = 0
    if not args.only:
        with service("--carrier", "threads", "--max-chars", "20") as (url, _):
            made, failures, report = schemathesis(url, args.examples, 3600)
        print(f"schemathesis: {made} requests, {failures} failures", flush=True)
        print(report if failures else "", flush=True)
        figures |= {"schemathesis_failures": float(failures), "schemathesis_requests": float(made)}
    if args.write:
        write_result("service", "cpu", figures, "make fuzz")
    return 1 if crashes or failures else 0


if __name__ == "__main__":
    sys.exit(main())
