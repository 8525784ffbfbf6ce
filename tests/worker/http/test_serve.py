"""`playhead serve`: its arguments, its defaults, and how it ends."""

import argparse
import asyncio
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import psutil
import pytest
import torch
from aiohttp.test_utils import TestServer

from playhead.engine.errors import ConfigError
from playhead.engine.profile import load_profile, sha256
from playhead.worker.cli import build_parser
from playhead.worker.client import EngineClient
from playhead.worker.http.messages import PROTOCOL
from playhead.worker.http.options import HttpOptions
from playhead.worker.http.routes import build_app
from playhead.worker.http.service import Service
from playhead.worker.serve import add_arguments, options_of
from playhead.worker.thread_carrier import ThreadCarrier, engine_maker
from tests.worker.http.conftest import ALICE, BOB, LONG, SHORT, Launcher, Served

pytestmark = pytest.mark.slow


def options(*flags: str, **env: str) -> Any:
    parser = argparse.ArgumentParser()
    add_arguments(parser, env)
    return options_of(parser.parse_args(flags))


def test_defaults_are_this_machine_alone_and_an_engine_of_its_own() -> None:
    found = options()
    assert (found.http.host, found.carrier, found.http.cors_origins) == ("127.0.0.1", "process", ())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_machines_need_a_key(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--keys"):
        options("--host", host)
    keys = tmp_path / "keys"
    keys.write_text(f"alice {ALICE}\n")
    assert options("--host", host, "--keys", str(keys)).http.keys_file == keys
    assert options("--host", host, PLAYHEAD_API_KEYS=f"{ALICE}, {BOB}\n").http.keys == (ALICE, BOB)
    assert options("--host", host, "--allow-anonymous").http.host == host


def test_secrets_are_in_no_help_and_no_repr() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, {"PLAYHEAD_API_KEYS": ALICE, "PLAYHEAD_MODEL": "m"})
    assert ALICE not in parser.format_help() and "PLAYHEAD_API_KEYS" in parser.format_help()
    assert ALICE not in repr(options(PLAYHEAD_API_KEYS=ALICE))


def test_the_help_of_no_command_holds_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("LIVEKIT_API_KEY", "LIVEKIT_API_SECRET", "PLAYHEAD_API_KEYS", "HF_TOKEN")
    for name in names:
        monkeypatch.setenv(name, f"secret-{name}")
    (commands,) = [each for each in build_parser()._actions if each.dest == "command"]
    assert isinstance(commands.choices, dict)
    assert {"worker", "serve", "watch"} <= commands.choices.keys()
    for name, command in commands.choices.items():
        assert "secret-" not in command.format_help(), name


@pytest.mark.parametrize(
    "flags",
    [["--tls-key", "k"], ["--tls-cert", "/nowhere"], ["--idle-s", "0"], ["--voice-alias", "x"]],
)
def test_wrong_arguments_are_refused(flags: list[str]) -> None:
    with pytest.raises(ConfigError):
        options(*flags)


def test_a_wrong_profile_ends_it_before_anything_runs() -> None:
    command = [sys.executable, "-m", "playhead.worker.serve", "--port", "0", "--profile", "nope"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "no profile 'nope'" in done.stderr
    assert "listening" not in done.stderr and "child started" not in done.stderr


def test_a_gpu_profile_ends_it_where_there_is_no_gpu(launcher: Launcher) -> None:
    served = launcher.begin("no-gpu", "--profile", "ttfa")
    assert served.process.wait(60) == 2
    assert "is for a GPU" in served.log.read_text()
    assert served.log.read_text().count("child started") == 1


@pytest.mark.slow
async def test_sigterm_lets_live_streams_end_and_takes_no_new_ones(launcher: Launcher) -> None:
    served = launcher.ready(launcher.begin("drained", "--carrier", "threads"))
    body = {"input": LONG[:45], "response_format": "pcm"}
    url = f"{served.url}/v1/audio/speech"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(served.socket_url, protocols=[PROTOCOL]) as socket,
        session.post(url, json=body) as answer,
    ):
        assert (await socket.receive_json())["type"] == "session.created"
        heard = len(await answer.content.readany())
        served.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        async with session.post(url, json=body) as late, session.get(f"{served.url}/health") as up:
            assert (late.status, up.status) == (503, 200)
        await socket.send_json({"type": "utterance.start", "utterance": "a"})
        assert (await socket.receive_json())["error"]["code"] == "not_ready"
        heard += len(await answer.content.read())
        assert heard > 48_000 * 1.5, "more than was made before the signal"
        assert (await socket.receive(timeout=20)).data == 1001
    assert await asyncio.to_thread(served.process.wait, 20) == 0, served.log.read_text()


async def test_tls_files_serve_https(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    tls = options("--tls-cert", str(cert), "--tls-key", str(key)).tls
    service = Service(EngineClient(ThreadCarrier(engine_maker(None, "cpu"))), HttpOptions())
    server = TestServer(build_app(service), scheme="https")
    await server.start_server(ssl=tls)
    trusted = ssl.create_default_context(cafile=str(cert))
    async with (
        aiohttp.ClientSession() as session,
        session.get(server.make_url("/health"), ssl=trusted) as answer,
    ):
        assert answer.status == 200
    await server.close()


@pytest.mark.slow
async def test_a_killed_engine_ends_each_stream_once_and_comes_back(open_server: Served) -> None:
    await asyncio.to_thread(open_server.quiet)
    (engine,) = psutil.Process(open_server.process.pid).children()
    body = {"input": LONG, "response_format": "pcm", "stream_format": "sse"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{open_server.url}/v1/audio/speech", json=body) as answer,
    ):
        assert b"speech.audio.delta" in await answer.content.readline()
        engine.kill()
        rest = (await answer.content.read()).decode()
        assert rest.count('"type":"error"') == 1 and '"code":"engine_away"' in rest
        assert "speech.audio.done" not in rest
        async with session.get(f"{open_server.url}/ready") as ready:
            assert ready.status == 503 and "Retry-After" in ready.headers
    for _ in range(300):
        if (await asyncio.to_thread(httpx.get, f"{open_server.url}/ready")).status_code == 200:
            break
        await asyncio.sleep(0.1)
    body = {"input": SHORT, "response_format": "wav"}
    again = httpx.post(f"{open_server.url}/v1/audio/speech", json=body, timeout=30)
    assert again.status_code == 200
    assert open_server.process.poll() is None


def test_the_profile_is_printed_and_told_with_one_digest(open_server: Served) -> None:
    digest = sha256(load_profile("cpu"))
    assert f"profile cpu, sha256 {digest}: Profile(" in open_server.log.read_text()
    page = httpx.get(f"{open_server.url}/metrics").text
    assert f'playhead_config_info{{profile="cpu",sha256="{digest}"}} 1\n' in page


def test_several_engines_need_processes_and_gpus_must_exist() -> None:
    assert options("--engines", "3").engines == 3
    for flags in (["--engines", "0"], ["--engines", "2", "--carrier", "threads"]):
        with pytest.raises(ConfigError, match="--engines"):
            options(*flags)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="finds no GPU"):
            options("--gpus", "all")


def test_a_low_limit_of_open_files_is_raised_to_what_is_allowed() -> None:
    code = (
        "import resource as r; from playhead.worker.serve import allow_files\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, 900)); allow_files()\n"
        "print(*r.getrlimit(r.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["900", "900"], done.stderr
