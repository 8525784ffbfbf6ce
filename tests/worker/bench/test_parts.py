"""The table of parts: each is there, and none is loaded before it is chosen."""

import subprocess
import sys

import pytest

from playhead.worker import bench
from playhead.worker.cli import main


def test_help_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "--help"])
    assert exit_.value.code == 0
    told = capsys.readouterr().out
    assert all(name in told and what in told for name, what in bench.PARTS.items())


@pytest.mark.slow
@pytest.mark.parametrize("part", ["engine", "serve", "first-audio"])
def test_a_part_has_its_own_help(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["bench", part, "--help"])
    assert exit_.value.code == 0
    told = capsys.readouterr().out
    assert f"playhead bench {part}" in told and "--limit-s" in told


@pytest.mark.parametrize("given", [[], ["fly"]])
def test_an_unknown_part_is_a_usage_error(given: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["bench", *given])
    assert exit_.value.code == 2


@pytest.mark.slow
def test_no_part_is_loaded_for_other_commands() -> None:
    code = (
        "import sys; from playhead.worker.cli import build_parser; build_parser()\n"
        "sys.exit(any(m.startswith('playhead.worker.bench.') and m[22:] in ('engine', 'serve')"
        " or m == 'torch' for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
