"""The parts of the set-up script that a test can run without a network."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LOCK = """# a comment
one-pack==1.0 \\
    --hash=sha256:aa
torch==2.11.0 \\
    --hash=sha256:bb
nvidia-thing==13.0 ; sys_platform == 'linux' \\
    --hash=sha256:cc
old==1 ; python_full_version < '3.8' \\
    --hash=sha256:dd
new==2 ; python_full_version >= '3.8' \\
    --hash=sha256:ee
"""


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "tools/bootstrap.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bootstrap"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder of packages with a torch in it and nothing else named torch on the path."""
    site = tmp_path / "base"
    (site / "torch").mkdir(parents=True)
    (site / "torchgen").mkdir()
    (site / "torch/__init__.py").write_text("")
    (site / "torch/version.py").write_text("cuda: str | None = None\nhip: str | None = None\n")
    (site / "torch-2.12.0+cpu.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return site


def make_venv(folder: Path) -> Path:
    site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    return site


def test_lock_is_read_with_markers(bootstrap: ModuleType, tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(LOCK)
    pins = bootstrap.read_lock(lock)
    assert [pin.name for pin in pins] == ["one-pack", "torch", "nvidia-thing", "old", "new"]
    assert [pin.name for pin in pins if pin.applies()] == [
        "one-pack",
        "torch",
        "nvidia-thing",
        "new",
    ]
    assert all("--hash" in pin.lines for pin in pins)


def test_only_missing_pins_are_asked_for(bootstrap: ModuleType, tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(LOCK)
    site = make_venv(tmp_path / "venv")
    (site / "one_pack-1.0.dist-info").mkdir()
    (site / "torch-2.10.0.dist-info").mkdir()
    missing = bootstrap.missing_pins(bootstrap.read_lock(lock), tmp_path / "venv")
    assert [pin.name for pin in missing] == ["torch", "nvidia-thing", "new"]


def test_installed_cpu_torch_is_linked_and_unlinked(
    bootstrap: ModuleType, base: Path, tmp_path: Path
) -> None:
    site = make_venv(tmp_path / "venv")
    torch = bootstrap.installed_torch(tmp_path / "venv")
    assert torch.version == "2.12.0+cpu"
    assert bootstrap.link_torch(tmp_path / "venv", torch)
    assert {path.name for path in site.iterdir()} == {
        "torch",
        "torchgen",
        "torch-2.12.0+cpu.dist-info",
    }
    assert (site / "torch/__init__.py").exists()
    bootstrap.unlink_torch(tmp_path / "venv")
    assert list(site.iterdir()) == []
    assert (base / "torch/__init__.py").exists()


@pytest.mark.parametrize(
    ("name", "version_file"),
    [
        ("torch-2.10.1+cpu", "cuda = None\nhip = None\n"),
        ("torch-2.12.0", "cuda: Optional[str] = '13.0'\nhip = None\n"),
        ("torch-2.12.0", "cuda = None\nhip: Optional[str] = '6.4'\n"),
    ],
)
def test_torch_is_not_taken_when_it_is_old_or_for_a_gpu(
    bootstrap: ModuleType, base: Path, tmp_path: Path, name: str, version_file: str
) -> None:
    (base / "torch-2.12.0+cpu.dist-info").rename(base / f"{name}.dist-info")
    (base / "torch/version.py").write_text(version_file)
    assert bootstrap.installed_torch(tmp_path / "venv") is None


def test_torch_of_the_environment_itself_is_not_taken(
    bootstrap: ModuleType, base: Path, tmp_path: Path
) -> None:
    assert bootstrap.installed_torch(base.parent) is None


def test_every_pin_of_the_lock_has_a_size(bootstrap: ModuleType) -> None:
    import json

    sizes = json.loads((ROOT / "requirements/sizes.json").read_text())["bytes"]
    pins = bootstrap.read_lock(ROOT / "requirements/dev.txt")
    assert len(pins) > 100 and {pin.name for pin in pins} <= set(sizes)


def test_dev_lock_holds_the_gpu_machines_versions(bootstrap: ModuleType) -> None:
    held = {pin.name: pin.version for pin in bootstrap.read_lock(ROOT / "requirements/dev.txt")}
    assert held["torch"] == "2.11.0" and held["triton"] == "3.6.0"
    assert held["transformers"] == "5.17.0"
