"""Write the locks and the download sizes beside them; needs uv and a package index (`make lock`).

Locks hold exact versions and hashes and name no index host: pip and uv take whatever index they
are set up for.
"""

import json
import re
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS: dict[str, list[str]] = {
    "base.txt": [],
    "engine.txt": ["--extra", "engine"],
    "dev.txt": ["--extra", "engine", "--extra", "demo", "--group", "dev"],
}
COMMON = ["--universal", "--python-version", "3.11", "-c", "requirements/pins.in", "--quiet"]


def compile_lock(arguments: list[str], output: str) -> None:
    """Resolve pyproject.toml into one lock."""
    command = ["uv", "pip", "compile", "pyproject.toml", *COMMON, *arguments, "-o", output]
    subprocess.run(command, cwd=ROOT, check=True)


def wheel_bytes(package: dict[str, Any]) -> int:
    """Return the size of the file that Linux x86-64 with CPython 3.11 takes."""
    wheels = package.get("wheels", [])
    for pattern in (r"cp311-.*manylinux.*x86_64", r"abi3.*manylinux.*x86_64", r"linux.*x86_64", ""):
        for wheel in wheels:
            if re.search(pattern, wheel["url"]):
                return int(wheel["size"])
    return int(package["sdist"]["size"])


def write_sizes(arguments: list[str]) -> None:
    """Note what each package of the largest lock costs to download."""
    with tempfile.TemporaryDirectory() as folder:
        output = f"{folder}/pylock.sizes.toml"
        compile_lock([*arguments, "--format", "pylock.toml"], output)
        packages = tomllib.loads(Path(output).read_text())["packages"]
    sizes = {package["name"]: wheel_bytes(package) for package in packages}
    document = {"platform": "Linux x86-64, CPython 3.11", "bytes": sizes}
    (ROOT / "requirements" / "sizes.json").write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    """Write every lock, then the sizes."""
    hashes = ["--generate-hashes", "--no-emit-index-url", "--no-annotate"]
    header = ["--custom-compile-command", "make lock"]
    for name, arguments in LOCKS.items():
        compile_lock([*hashes, *header, *arguments], f"requirements/{name}")
    write_sizes(LOCKS["dev.txt"])


if __name__ == "__main__":
    main()
