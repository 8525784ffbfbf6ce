"""`playhead serve`: its arguments, its defaults, and how it ends."""

import argparse
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from playhead.engine.errors import ConfigError
from playhead.worker.serve import add_arguments, options_of
from tests.worker.http.conftest import ALICE, LONG, Launcher


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
    assert options("--host", host, PLAYHEAD_API_KEYS=ALICE).http.keys == (ALICE,)
    assert options("--host", host, "--allow-anonymous").http.host == host


def test_secrets_are_in_no_help_and_no_repr() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, {"PLAYHEAD_API_KEYS": ALICE, "PLAYHEAD_MODEL": "m"})
    assert ALICE not in parser.format_help() and "PLAYHEAD_API_KEYS" in parser.format_help()
    assert ALICE not in repr(options(PLAYHEAD_API_KEYS=ALICE))


@pytest.mark.parametrize(
    "flags",
    [["--tls-key", "k"], ["--tls-cert", "/nowhere"], ["--idle-s", "0"], ["--voice-alias", "x"]],
)
def test_wrong_arguments_are_refused(flags: list[str]) -> None:
    with pytest.raises(ConfigError):
        options(*flags)


def test_a_wrong_profile_ends_it_with_its_reason(launcher: Launcher) -> None:
    served = launcher.begin("wrong", "--profile", "nope")
    assert served.process.wait(60) == 2
    assert "no profile 'nope'" in served.log.read_text()


def test_sigterm_lets_live_streams_end_and_takes_no_new_ones(launcher: Launcher) -> None:
    served = launcher.ready(launcher.begin("drained", "--carrier", "threads"))
    text = LONG[:130]
    body = {"input": text, "response_format": "pcm"}
    url = f"{served.url}/v1/audio/speech"
    with httpx.stream("POST", url, json=body, timeout=30) as answer:
        chunks = answer.iter_raw()
        heard = len(next(chunks))
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert httpx.post(url, json=body).status_code == 503
        assert httpx.get(f"{served.url}/health").status_code == 200
        heard += sum(len(chunk) for chunk in chunks)
    assert heard > 48_000 * 4, "about seven seconds of speech"
    assert served.process.wait(20) == 0, served.log.read_text()
