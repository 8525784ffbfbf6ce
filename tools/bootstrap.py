"""Make .venv with the `playhead` command from the locks; standard library only, safe to run again.

Takes uv where it is on PATH and pip elsewhere, and an installed CPU build of torch of the running
Python (>= 2.11) in place of a download. A stamp keyed by everything that decides the result makes
the next run instant and offline.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
MIN_PYTHON = (3, 11)
MIN_TORCH = (2, 11)
TORCH_FOLDERS = ("torch", "torchgen", "functorch", "torch.libs")
TORCH_FAMILY = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)$")
"""What a CUDA build of torch brings along; a linked CPU build needs none of it."""
STAMP_NAME = "playhead-setup.json"


@dataclass(frozen=True, slots=True)
class InstalledTorch:
    """A CPU build of torch that the running Python already has."""

    version: str
    paths: tuple[Path, ...]
    """Package folders and the dist-info folder, to be linked into the environment."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock: its name, version and the lines that state it."""

    name: str
    version: str
    marker: str
    lines: str

    def applies(self) -> bool:
        """Say whether this platform takes it (the locks use few markers)."""
        if "sys_platform == 'linux'" in self.marker and sys.platform != "linux":
            return False
        if "sys_platform == 'emscripten'" in self.marker:
            return False
        older = re.search(r"python_full_version < '3\.(\d+)'", self.marker)
        newer = re.search(r"python_full_version >= '3\.(\d+)'", self.marker)
        minor = sys.version_info.minor
        return not (older and minor >= int(older[1])) and not (newer and minor < int(newer[1]))


def read_lock(path: Path) -> list[Pin]:
    """Return the pins of a lock file."""
    pins: list[Pin] = []
    for block in re.split(r"\n(?=[A-Za-z0-9])", path.read_text()):
        head = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)\s*(?:;\s*([^\\\n]*))?", block)
        if head:
            pins.append(Pin(head[1], head[2], (head[3] or "").strip(), block.rstrip("\n")))
    return pins


def installed_torch(venv: Path) -> InstalledTorch | None:
    """Find a CPU build of torch that the running Python has, new enough to be taken."""
    spec = util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    site = Path(spec.origin).resolve().parent.parent
    build = site / "torch" / "version.py"
    infos = sorted(site.glob("torch-*.dist-info"))
    if venv in site.parents or not build.exists() or len(infos) != 1:
        return None
    version = infos[0].name.removesuffix(".dist-info").removeprefix("torch-")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < MIN_TORCH:
        return None
    if re.search(r"^(cuda|hip)\b.*= *['\"]", build.read_text(), re.MULTILINE):
        return None  # a GPU build needs its libraries, which are packages of their own
    folders = [site / name for name in TORCH_FOLDERS if (site / name).exists()]
    return InstalledTorch(version, (*folders, infos[0]))


def setup_key(lock: Path, torch: InstalledTorch | None) -> str:
    """Return a digest of everything that decides what the environment holds."""
    digest = hashlib.sha256()
    for path in (lock, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    digest.update(f"{ROOT} {sys.version} {sys.platform}".encode())
    digest.update(repr(torch).encode())
    return digest.hexdigest()


def venv_python(venv: Path) -> Path:
    """Return the interpreter inside an environment."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def site_packages(venv: Path) -> Path:
    """Return the folder where an environment keeps its packages."""
    if os.name == "nt":
        return venv / "Lib" / "site-packages"
    return venv / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def run(command: list[str]) -> None:
    """Run a step; end with its command line if it fails."""
    code = subprocess.call(command, cwd=ROOT)
    if code != 0:
        sys.exit(f"setup: this step failed (exit {code}): {' '.join(command)}")


def make_venv(venv: Path, uv: str | None) -> None:
    """Create the environment, or make it anew if it belongs to another Python."""
    if venv_python(venv).exists() and site_packages(venv).is_dir():
        return
    if venv.exists():
        print(f"setup: {venv} belongs to another Python, making it anew")
        shutil.rmtree(venv)
    if uv:
        run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
        return
    if util.find_spec("ensurepip") is None:
        sys.exit("setup: this Python has no venv module (Debian: apt-get install python3-venv)")
    run([sys.executable, "-m", "venv", str(venv)])


def link_torch(venv: Path, torch: InstalledTorch) -> bool:
    """Link an installed torch into the environment; False (and no trace) if it won't work there."""
    site = site_packages(venv)
    links = [site / path.name for path in torch.paths]
    for link, path in zip(links, torch.paths, strict=True):
        if link.is_symlink():
            link.unlink()
        if link.exists():
            return False
        link.symlink_to(path, target_is_directory=True)
    return True


def unlink_torch(venv: Path) -> None:
    """Remove links that an earlier run made, so that a download can take their place."""
    site = site_packages(venv)
    for path in [*(site / name for name in TORCH_FOLDERS), *site.glob("torch-*.dist-info")]:
        if path.is_symlink():
            path.unlink()


def torch_works(venv: Path) -> bool:
    """Say whether torch computes inside the environment."""
    code = "import torch; assert float((torch.ones(2) + 1).sum()) == 4.0"
    done = subprocess.run([str(venv_python(venv)), "-P", "-c", code], capture_output=True)
    return done.returncode == 0


def missing_pins(pins: list[Pin], venv: Path) -> list[Pin]:
    """Return the pins that the environment does not hold yet."""
    held = set()
    for info in site_packages(venv).glob("*.dist-info"):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        held.add((name.replace("_", "-").lower(), version))
    return [
        pin
        for pin in pins
        if pin.applies() and (re.sub(r"[._]", "-", pin.name).lower(), pin.version) not in held
    ]


def announce(pins: list[Pin]) -> None:
    """Say how much will be downloaded at most, from the sizes measured when the lock was made."""
    sizes: dict[str, int] = json.loads((REQUIREMENTS / "sizes.json").read_text())["bytes"]

    def total_mb(chosen: list[Pin]) -> float:
        return sum(sizes.get(pin.name, 0) for pin in chosen) / 1e6

    family = [pin for pin in pins if TORCH_FAMILY.match(pin.name)]
    print(f"setup: {len(pins)} packages, at most {total_mb(pins):,.0f} MB to download", flush=True)
    if family:
        print(
            f"setup: {total_mb(family):,.0f} MB of it are torch with its CUDA libraries "
            f"({total_mb([p for p in pins if p not in family]):,.0f} MB the rest).\n"
            "       A CPU build of torch that this Python already has is taken in its place: "
            f"install one into {sys.executable} first to save this.",
            flush=True,
        )


def install(pins: list[Pin], venv: Path, uv: str | None) -> None:
    """Install pins by hash, then this project as an editable package."""
    python = str(venv_python(venv))
    pip = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    quiet = ["--quiet"] if uv and not sys.stdout.isatty() else []
    if pins:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as chosen:
            chosen.write("\n".join(pin.lines for pin in pins) + "\n")
            chosen.flush()
            run([*pip, *quiet, "--no-deps", "--require-hashes", "-r", chosen.name])
    run([*pip, "--quiet", "--no-deps", "--no-build-isolation", "-e", str(ROOT)])


def set_up(venv: Path, lock: Path) -> None:
    """Bring the environment to what the lock says."""
    torch = installed_torch(venv)
    stamp = venv / STAMP_NAME
    key = setup_key(lock, torch)
    if stamp.exists() and json.loads(stamp.read_text())["key"] == key:
        return
    uv = shutil.which("uv")
    print(f"setup: environment {venv} for Python {sys.version.split()[0]}", flush=True)
    make_venv(venv, uv)
    pins = read_lock(lock)
    unlink_torch(venv)
    if torch and link_torch(venv, torch):
        print(f"setup: taking the installed torch {torch.version} ({torch.paths[0]})", flush=True)
        pins = [pin for pin in pins if not TORCH_FAMILY.match(pin.name)]
    else:
        torch = None
    missing = missing_pins(pins, venv)
    if missing:
        announce(missing)
    install(missing, venv, uv)
    if torch and not torch_works(venv):
        print(f"setup: torch {torch.version} does not work there, downloading the locked one")
        unlink_torch(venv)
        missing = missing_pins(read_lock(lock), venv)
        announce(missing)
        install(missing, venv, uv)
    stamp.write_text(json.dumps({"key": key, "torch": torch.version if torch else "locked"}))


def main() -> None:
    """Parse the arguments and set up."""
    if sys.version_info < MIN_PYTHON:
        sys.exit(f"setup: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="folder to make")
    parser.add_argument(
        "--lock", type=Path, default=REQUIREMENTS / "dev.txt", help="which lock to follow"
    )
    parser.add_argument("--python-only", action="store_true", help="leave server and page parts")
    args = parser.parse_args()
    set_up(args.venv.absolute(), args.lock)
    if not args.python_only:
        elsewhere = ["--no-server"] if os.environ.get("LIVEKIT_URL") else []
        python = str(venv_python(args.venv.absolute()))
        run([python, "-P", "-m", "playhead.worker.demo.parts", *elsewhere])


if __name__ == "__main__":
    main()
