"""A clean Debian root in which deploy/install.sh runs as the Dockerfile would run it."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
UID = "10001"
SUITE = "bookworm"


def missing() -> str:
    """Return what keeps a root from being made here, or nothing."""
    if os.geteuid() != 0:
        return "only root may make a root file system"
    for tool in ("mmdebstrap", "unshare", "uv"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not (uv_cache() / "wheels-v5").exists() and not any(uv_cache().glob("archive-v0/*")):
        return "uv has no cached packages: gigabytes would be downloaded"
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    return "" if probe.returncode == 0 else "no mount namespaces here"


def uv_cache() -> Path:
    done = subprocess.run(["uv", "cache", "dir"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def uv_binary() -> Path:
    """Return the program itself, not a shim of a version manager."""
    code = "import uv; print(uv.find_uv_bin())"
    for python in ("python3", "python"):
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
        if done.returncode == 0:
            return Path(done.stdout.strip())
    return Path(shutil.which("uv") or "uv")


class CleanRoot:
    """Debian in a folder; commands run in it behind mounts that end with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder.with_name("cache")
        self.cache.mkdir()
        os.chown(self.cache, int(UID), int(UID))
        self.cache.chmod(0o700)

    def bootstrap(self) -> None:
        command = ["mmdebstrap", "--variant=minbase", "--quiet", SUITE, str(self.folder)]
        subprocess.run(command, check=True, timeout=300)
        shutil.copy(uv_binary(), self.folder / "usr/local/bin/uv")

    def copy_sources(self) -> None:
        """Copy what `COPY . .` would."""
        lines = (ROOT / ".dockerignore").read_text().split()
        left_out = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines))
        shutil.copytree(ROOT, self.folder / "src", symlinks=True, ignore=left_out)

    def install(self, step: str) -> None:
        """Run one step of install.sh with uv's cache of this machine at hand."""
        env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "UV_CACHE_DIR": "/uv-cache",
            "UV_LINK_MODE": "symlink",
            "SSL_CERT_FILE": "/host-certificates.crt",
        }
        binds = [(uv_cache(), "uv-cache")]
        if CERTIFICATES.exists():
            shutil.copy(CERTIFICATES, self.folder / "host-certificates.crt")
        command = self._enter(["sh", "deploy/install.sh", step], binds, "/src", read_only=False)
        subprocess.run(command, env=env, check=True, timeout=400)

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return a command line that runs as the image would: its user, its root read-only."""
        as_user = ["setpriv", "--reuid", UID, "--regid", UID, "--clear-groups", "--no-new-privs"]
        binds = [(self.cache, "cache"), (uv_cache(), "uv-cache")]
        return self._enter([*as_user, *arguments], binds, "/", read_only=True)

    def _enter(
        self, command: Sequence[str], binds: Sequence[tuple[Path, str]], cwd: str, read_only: bool
    ) -> list[str]:
        """Mount, then enter; positional parameters keep every argument as it is."""
        root = str(self.folder)
        lines = [f"mount --bind {root} {root}"]
        for source, name in binds:
            (self.folder / name).mkdir(exist_ok=True)
            lines.append(f"mount --bind {source} {root}/{name}")
        lines.append(f"mount -t proc proc {root}/proc")
        lines.append(f"mount --bind /dev {root}/dev")
        lines.append(f"cp /etc/resolv.conf {root}/etc/resolv.conf")
        if read_only:
            lines[-1] = f"mount -o remount,ro,bind {root}"
            lines.append(f"mount -o remount,ro,bind {root}/uv-cache")
        lines.append(f'exec /usr/sbin/chroot {root} sh -c \'cd "$0" && exec "$@"\' {cwd} "$@"')
        script = " && ".join(lines)
        return ["unshare", "-m", "sh", "-c", script, "sh", *command]
