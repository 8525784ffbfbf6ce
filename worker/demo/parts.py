"""Parts of the demo that are no Python packages: the LiveKit server and the page's client library.

Each is taken where it already is, else fetched once by module or package name into a cache folder.
Standard library only: set-up runs this module before anything else works.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SERVER_MODULE = "github.com/livekit/livekit-server/cmd/server@v1.9.11"
SERVER_NAME = "livekit-server"
PAGE_FOLDER = Path(__file__).resolve().parent.parent / "web"
CLIENT_BUNDLE = "livekit-client/dist/livekit-client.umd.js"
PACKAGE_FILES = ("package.json", "package-lock.json")
WAYS_TO_GET_A_SERVER = """No LiveKit server was found. Any one of these gives you one:
  - set LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET to use a server that runs already;
  - put `livekit-server` on PATH;
  - install Go and run this again: it is then built from its module."""


class PartMissing(Exception):
    """A part is neither here nor to be had; the message says how to get it."""


def cache_folder() -> Path:
    """Return the folder where fetched parts are kept."""
    return Path.home() / ".cache" / "playhead"


def find_server() -> Path | None:
    """Return the LiveKit server on PATH or in the cache."""
    on_path = shutil.which(SERVER_NAME)
    if on_path:
        return Path(on_path)
    cached = cache_folder() / "bin" / SERVER_NAME
    return cached if cached.exists() else None


def ensure_server() -> Path:
    """Return a LiveKit server, built by the Go toolchain if there is none."""
    found = find_server()
    if found:
        return found
    go = shutil.which("go")
    if go is None:
        raise PartMissing(WAYS_TO_GET_A_SERVER)
    print(
        "setup: building the LiveKit server with Go (about 100 MB of modules, 2 to 4 minutes)",
        flush=True,
    )
    target = cache_folder() / "bin" / SERVER_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        done = subprocess.run([go, "install", SERVER_MODULE], env={**os.environ, "GOBIN": folder})
        if done.returncode != 0:
            raise PartMissing(f"`go install {SERVER_MODULE}` failed.\n{WAYS_TO_GET_A_SERVER}")
        (Path(folder) / "server").rename(target)
    return target


def node_modules(*, tests: bool = False) -> Path:
    """Return the folder of npm packages that belongs to the page's lock; it may not exist yet."""
    digest = hashlib.sha256()
    for name in PACKAGE_FILES:
        digest.update((PAGE_FOLDER / name).read_bytes())
    kind = "tests" if tests else "page"
    return cache_folder() / f"npm-{kind}-{digest.hexdigest()[:12]}" / "node_modules"


def ensure_node_modules(*, tests: bool = False) -> Path:
    """Return the npm packages of the page (and of its browser test), installed if missing."""
    modules = node_modules(tests=tests)
    if modules.exists():
        return modules
    npm = shutil.which("npm")
    if npm is None:
        raise PartMissing("npm is not on PATH: install Node 20 or newer for the caller page.")
    print("setup: fetching the page's client library with npm (about 5 MB)", flush=True)
    modules.parent.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=modules.parent.parent) as folder:
        for name in PACKAGE_FILES:
            shutil.copy(PAGE_FOLDER / name, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run([*command, *([] if tests else ["--omit=dev"])], cwd=folder)
        if done.returncode != 0:
            raise PartMissing(f"`npm ci` failed in {PAGE_FOLDER}; the caller page needs it.")
        shutil.rmtree(modules.parent, ignore_errors=True)
        shutil.copytree(folder, modules.parent, symlinks=True)
    return modules


def page_and_tests() -> Path:
    """Return the npm packages of the page and of its browser test."""
    return ensure_node_modules(tests=True)


def client_bundle() -> Path | None:
    """Return livekit-client's browser bundle where it has been fetched."""
    for modules in (node_modules(), node_modules(tests=True)):
        if (modules / CLIENT_BUNDLE).exists():
            return modules / CLIENT_BUNDLE
    return None


def main() -> int:
    """Fetch what is missing; say what could not be had without failing the set-up for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-server", action="store_true", help="a server runs elsewhere")
    args = parser.parse_args()
    for wanted, ensure in ((True, page_and_tests), (not args.no_server, ensure_server)):
        try:
            if wanted:
                ensure()
        except PartMissing as missing:
            print(f"setup: {missing}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
