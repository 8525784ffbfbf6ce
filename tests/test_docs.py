"""README and changelog: short, and every command in them is run by a test named here."""

import ast
import os
import re
import subprocess
import sys
import time
import wave
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PLAYHEAD = Path(sys.executable).parent / "playhead"

SAY = '.venv/bin/playhead say "Hello there." -o out.wav'
RUN_BY = {
    "make demo": "tests/e2e/test_demo.py::demo",
    "make test": "the run that this test is part of",
    "make setup": "tests/test_docs.py::test_setup_is_quick_and_offline_when_all_is_there",
    "make check": "tests/test_docs.py::test_make_runs_what_the_readme_says",
    "make fmt": "tests/test_docs.py::test_make_runs_what_the_readme_says",
    "make bench": "tests/test_docs.py::test_make_runs_what_the_readme_says",
    SAY: "tests/test_docs.py::test_say_writes_a_file",
    ".venv/bin/playhead worker": "tests/e2e/test_speech.py and test_worker_says_what_is_missing",
    ".venv/bin/playhead serve": "tests/worker/http/test_serve.py",
    ".venv/bin/playhead demo --help": "tests/test_docs.py::test_help_is_there",
    ".venv/bin/playhead simulate --help": "tests/test_docs.py::test_help_is_there",
    ".venv/bin/playhead doctor": "tests/worker/test_doctor.py",
}
RECIPES = {
    "demo": "playhead demo",
    "test": "/pytest",
    "check": "lint-imports",
    "fmt": "ruff format .",
    "bench": "tests.bench.room_cpu",
}


def commands() -> list[str]:
    """Return the command lines of the README's indented blocks."""
    lines = [line.strip() for line in README.splitlines() if line.startswith("    ")]
    told = [line for line in lines if re.match(r"(make|\.venv/bin/\w+|playhead)\b", line)]
    return [re.split(r"\s{2,}#", line)[0].strip() for line in told]


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("LIVEKIT_")}
    return subprocess.run(
        command, cwd=ROOT, env={**clean, **env}, capture_output=True, text=True, timeout=120
    )


def test_readme_is_short_and_leads_with_the_two_commands() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    first_screen = "\n".join(lines[:24])
    assert "make demo" in first_screen and "make test" in first_screen


def test_readme_says_that_published_weights_were_not_run() -> None:
    assert "have **not been run here**" in README


def test_every_readme_command_is_run_by_a_test() -> None:
    assert set(commands()) == set(RUN_BY), "name the test that runs the command"
    for where in RUN_BY.values():
        path, _, name = where.partition("::")
        if name:
            assert f"def {name}(" in (ROOT / path).read_text(), where


def test_every_file_the_readme_names_exists() -> None:
    for name in re.findall(
        r"`((?:docs|tests|engine|worker|agents|training|kernels)/[\w./]*)`", README
    ):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("target", RECIPES)
def test_make_runs_what_the_readme_says(target: str) -> None:
    done = run(["make", "--dry-run", target])
    assert done.returncode == 0 and RECIPES[target] in done.stdout, done.stderr


def test_ci_runs_the_readmes_test_command() -> None:
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("exec make test")
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_setup_is_quick_and_offline_when_all_is_there() -> None:
    started_s = time.monotonic()
    done = run(
        ["make", "setup"],
        UV_OFFLINE="1",
        PIP_NO_INDEX="1",
        GOPROXY="off",
        npm_config_offline="true",
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started_s < 5.0
    assert "to download" not in done.stdout


@pytest.mark.slow
def test_say_writes_a_file(tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    done = run([str(PLAYHEAD), "say", "Hello there.", "-o", str(out)])
    assert done.returncode == 0, done.stderr
    with wave.open(str(out)) as wav:
        assert wav.getframerate() == 24_000 and wav.getnframes() > 12_000


@pytest.mark.parametrize("arguments", [[], ["demo"], ["worker"], ["say"], ["simulate"], ["doctor"]])
def test_help_is_there(arguments: list[str]) -> None:
    done = run([str(PLAYHEAD), *arguments, "--help"])
    assert done.returncode == 0 and "usage: playhead" in done.stdout


def test_worker_says_what_is_missing() -> None:
    done = run([str(PLAYHEAD), "worker"])
    assert done.returncode == 2
    assert "LIVEKIT_API_KEY" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_library_example_speaks() -> None:
    (example,) = [block for block in python_blocks() if "open_model" in block]
    heard: list[bytes] = []
    code = compile(example.replace("        ...", "        heard.append(pcm)"), "README.md", "exec")
    exec(code, {"heard": heard})
    assert sum(map(len, heard)) > 24_000


def test_every_python_example_parses() -> None:
    for block in python_blocks():
        compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_changelog_has_an_unreleased_part() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in text and "### Added" in text


def test_product_files_name_no_index_host() -> None:
    listed = run(["git", "ls-files"]).stdout.split()
    hosts = re.compile(r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org|proxy\.golang\.org")
    for name in listed:
        path = ROOT / name
        if path.is_file() and path.stat().st_size < 1_000_000 and path.suffix != ".py":
            assert not hosts.search(path.read_text(errors="ignore")), name
