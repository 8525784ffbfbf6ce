"""What a wheel holds, and what works where torch is not installed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_DATA = (
    "playhead/py.typed",
    "playhead/engine/profiles/cpu.yaml",
    "playhead/engine/voice/config.json",
    "playhead/engine/voice/lexicon.txt.gz",
    "playhead/engine/voice/tokenizer.json",
    "playhead/engine/voice/speech_tokenizer/model.safetensors",
    "playhead/worker/web/index.html",
    "playhead/worker/web/app.js",
    "playhead/worker/web/playhead-receiver.js",
    "playhead/worker/web/package-lock.json",
    "livekit/plugins/playhead/py.typed",
)
HEAVY = ("torch", "transformers", "triton", "huggingface_hub", "safetensors")
BLOCKER = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed", name=name)
sys.meta_path.insert(0, Blocker())
"""


def run_python(code: str, path: Path | None = None) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    env = {**os.environ, "PYTHONSAFEPATH": "1"}
    if path is not None:
        env["PYTHONPATH"] = str(path)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel through the sdist, with the build tools that are installed."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(folder), "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the wheel the way an installer would."""
    folder = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.mark.slow
def test_wheel_holds_two_import_names(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"playhead", "livekit"}


@pytest.mark.slow
def test_wheel_holds_every_module_of_the_rooms(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    rooms = {room: f"playhead/{room}" for room in ("engine", "worker", "kernels")}
    rooms["agents/plugin"] = "livekit/plugins/playhead"
    wanted = {
        f"{target}/{path.relative_to(ROOT / room)}"
        for room, target in rooms.items()
        for path in (ROOT / room).rglob("*.py")
    }
    assert wanted <= held, sorted(wanted - held)


@pytest.mark.slow
def test_wheel_holds_voice_profiles_and_page(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in PACKAGE_DATA if name not in held]
    assert not missing
    assert not [name for name in held if "node_modules" in name or name.endswith(".pyc")]


@pytest.mark.slow
def test_installed_wheel_finds_its_page_and_command(unpacked: Path) -> None:
    code = (
        "import playhead.worker.demo.parts as parts, playhead.worker.cli as cli;"
        "print(parts.PAGE_FOLDER); assert (parts.PAGE_FOLDER / 'index.html').is_file();"
        "assert callable(cli.main)"
    )
    assert run_python(code, unpacked).startswith(str(unpacked))


@pytest.mark.slow
def test_plugin_and_client_import_when_torch_is_absent(unpacked: Path) -> None:
    code = BLOCKER + (
        "import livekit.plugins.playhead as plugin, playhead.worker.client;"
        "print(plugin.TTS.__name__)"
    )
    assert run_python(code, unpacked) == "TTS"


@pytest.mark.parametrize(
    "name", ["playhead", "playhead.engine", "playhead.worker", "playhead.worker.client"]
)
def test_import_leaves_torch_out(name: str) -> None:
    code = f"import sys, {name}; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run_python(code) == "[]"


def test_locks_name_no_host_and_hold_hashes() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        text = lock.read_text()
        assert "://" not in text and "--index-url" not in text, lock
        pins = [line for line in text.splitlines() if line and line[0].isalnum()]
        assert len(pins) > 20
        assert text.count("--hash=sha256:") >= len(pins)
        assert all("==" in line for line in pins), lock


def test_page_lock_names_no_registry() -> None:
    assert "resolved" not in (ROOT / "agents/web/package-lock.json").read_text()
