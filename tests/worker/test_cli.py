"""The command line: parsing, exit codes, what it reads from the environment."""

import os
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from playhead.worker.cli import _passed_on, _worker_options, build_parser, main


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LIVEKIT_", "PLAYHEAD_"))}
    return subprocess.run(
        [sys.executable, "-m", "playhead.worker.cli", *arguments],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("worker", "say", "engine", "demo", "version"))
    assert "exit codes" in text


@pytest.mark.parametrize("arguments", [["worker", "--carrier", "pigeon"], ["fly"], ["engine"]])
def test_usage_error_is_two_when_arguments_are_wrong(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2


def test_no_command_prints_help_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().out


def test_worker_without_keys_says_what_to_set() -> None:
    done = run("worker")
    assert done.returncode == 2
    assert "LIVEKIT_API_KEY" in done.stderr and "playhead demo" in done.stderr


@pytest.mark.slow
def test_worker_is_not_restarted_when_its_profile_is_wrong() -> None:
    keys = {"LIVEKIT_API_KEY": "k", "LIVEKIT_API_SECRET": "s"}
    done = run("worker", "--profile", "nope", **keys)
    assert done.returncode == 2 and "no profile 'nope'" in done.stderr
    assert done.stderr.count("child started") == 1


def test_child_gets_every_option_and_no_secret_in_its_arguments() -> None:
    given = ["worker", "--url", "ws://x", "--api-key", "KEY", "--api-secret", "SECRET"]
    given += ["--agent-name", "bob", "--model", "m", "--profile", "cpu", "--carrier", "process"]
    given += ["--max-rooms", "3", "--allow", "a", "--allow", "b", "--idle-s", "5", "--port", "9"]
    given += ["--max-chars", "99", "--drain-s", "8", "--host", "::1", "--clock-events"]
    given += ["--no-routing", "--log-level", "DEBUG"]
    outer = build_parser().parse_args(given)
    passed = _passed_on(outer)
    assert "SECRET" not in passed and "KEY" not in passed
    keys = ["--api-key", "KEY", "--api-secret", "SECRET"]
    inner = build_parser().parse_args(["worker", *passed, *keys])
    assert inner.no_supervise and inner.log_level == "DEBUG"
    assert _worker_options(inner) == _worker_options(outer)
    assert "SECRET" not in repr(_worker_options(inner))


def test_environment_is_read_when_flags_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEKIT_URL", "ws://there")
    monkeypatch.setenv("LIVEKIT_API_KEY", "k")
    monkeypatch.setenv("LIVEKIT_API_SECRET", "s")
    monkeypatch.setenv("PLAYHEAD_MODEL", "folder")
    args = build_parser().parse_args(["worker"])
    options = _worker_options(args)
    assert (options.url, options.api_key, options.model) == ("ws://there", "k", "folder")


def test_version_names_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert "livekit-agents 1." in capsys.readouterr().out


def test_say_writes_a_wav_file(tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    assert main(["say", "Good morning.", "-o", str(out), "--seed", "3"]) == 0
    with wave.open(str(out)) as wav:
        assert (wav.getframerate(), wav.getnchannels(), wav.getsampwidth()) == (24000, 1, 2)
        assert wav.getnframes() > 12_000


def test_say_fails_as_usage_when_it_cannot_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["say", "Hello."]) == 2
    assert "-o FILE.wav" in capsys.readouterr().err
    assert main(["say", "Hello.", "-o", "/tmp/never.wav", "--voice", "nobody"]) == 2
