"""Where an engine's process listens: a private folder whose path a socket can have."""

import asyncio
import stat
import tempfile
from pathlib import Path

import pytest

from playhead.engine.errors import ConfigError
from playhead.engine.messages import Done, Submit
from playhead.worker.engine_process import EngineProcess, socket_folder
from playhead.worker.engine_server import MAX_PATH_BYTES, EngineServer
from playhead.worker.socket_carrier import SocketCarrier
from playhead.worker.thread_carrier import ThreadCarrier
from tests.fakes import ScriptedEngine
from tests.worker.conftest import ServedEngine
from tests.worker.test_carriers import Line


def deep(folder: Path, num_chars: int) -> Path:
    """Make a folder below another whose path has so many characters."""
    made = folder
    while (left := num_chars - len(str(made))) > 0:
        made /= "d" * (min(left, 100) - 1)
    made.mkdir(parents=True)
    return made


@pytest.fixture
def deep_tmpdir(private_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files go to a folder whose path alone is longer than a socket's may be."""
    folder = deep(private_folder, MAX_PATH_BYTES + 1)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_engine_is_reached_when_tmpdir_is_too_deep_for_a_socket(deep_tmpdir: Path) -> None:
    process = EngineProcess(None, "cpu")
    try:
        assert stat.S_IMODE(process.path.parent.stat().st_mode) == 0o700
        served = ServedEngine(ScriptedEngine, process.path)
        served.start()
        line = Line(SocketCarrier(process.path), [])
        line.carrier.send(Submit("a", text="one", closed=True, live=False))
        assert isinstance(line.until_over("a")[-1], Done)
        line.carrier.close()
        served.stop()
    finally:
        process._folder.cleanup()
    assert not list(deep_tmpdir.iterdir()), "what was too deep is gone"


def test_nothing_is_made_when_no_place_is_short_enough(deep_tmpdir: Path) -> None:
    with pytest.raises(ConfigError, match=rf"takes {MAX_PATH_BYTES}: {deep_tmpdir}.*TMPDIR"):
        socket_folder(short_folder=str(deep_tmpdir / "missing"))
    assert not list(deep_tmpdir.iterdir())


def test_server_takes_the_longest_path_there_is_and_refuses_a_longer_one(
    private_folder: Path,
) -> None:
    folder = deep(private_folder, MAX_PATH_BYTES - 10)
    folder.chmod(0o700)
    served = ServedEngine(ScriptedEngine, folder / ("s" * 9))
    served.start()
    assert served.path.is_socket() and len(str(served.path)) == MAX_PATH_BYTES
    served.stop()
    longer = EngineServer(ThreadCarrier(ScriptedEngine), folder / ("s" * 10))
    told = f"has {MAX_PATH_BYTES + 1} bytes, this system takes {MAX_PATH_BYTES}: {folder}"
    with pytest.raises(ConfigError, match=told):
        asyncio.run(longer.serve(lambda: None))
