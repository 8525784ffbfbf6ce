"""tools/audit.py with a stand-in for pip-audit: what it finds fails, and so does no answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLEAN = {"dependencies": [{"name": "a", "version": "1", "vulns": []}], "fixes": []}
KNOWN = {"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-2026-1"}]}]}


def audit(folder: Path, report: object, *flags: str) -> "subprocess.CompletedProcess[str]":
    """Run it with a `uv` that writes this report, or none and fails, as without a network."""
    stand_in = folder / "uv"
    write = f"cat > \"$out\" <<'END'\n{json.dumps(report)}\nEND\n" if report else "exit 1\n"
    stand_in.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/asked\nfor out in "$@"; do :; done\n{write}exit 1\n'
    )
    stand_in.chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, str(ROOT / "tools/audit.py"), *flags]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("report", "flags", "code"),
    [
        (CLEAN, (), 0),
        (KNOWN, (), 1),
        (KNOWN, ("--if-reachable",), 1),
        (None, (), 3),
        (None, ("--if-reachable",), 0),
    ],
)
def test_what_is_known_fails_and_no_answer_is_said(
    tmp_path: Path, report: object, flags: tuple[str, ...], code: int
) -> None:
    done = audit(tmp_path, report, *flags)
    assert done.returncode == code, done.stderr
    assert ("a 1: CVE-2026-1" in done.stdout) is (report is KNOWN)
    assert ("NOT DONE" in done.stderr) is (report is None)
    assert "pip-audit --strict" in (tmp_path / "asked").read_text()
    assert str(ROOT / "requirements/engine.txt") in (tmp_path / "asked").read_text()


def test_ci_audits_before_its_tests() -> None:
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert lines.index("python3 tools/audit.py --if-reachable") < lines.index("exec make test")
