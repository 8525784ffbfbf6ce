"""Result files of benchmarks: what was measured, on what, by which command, at which commit.

    {"benchmark", "device", "commit", "command", "date", "figures": {name with unit: number}}

Figures are merged into what the file holds, so that parts may run apart, or side by side: several
processes may write to one folder at a time. A figure that an earlier commit measured stays and is
named with that commit under `older`.
"""

import contextlib
import fcntl
import json
import math
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
"""The folder above `worker/`: a checkout, or wherever the package was installed."""
_NO_COMMIT = "unknown"


def default_folder() -> Path:
    """Return `tests/bench/results` of a checkout, else the current folder."""
    inside = CHECKOUT / "tests" / "bench"
    return inside / "results" if inside.is_dir() else Path.cwd()


def write_result(
    benchmark: str,
    device: str,
    figures: Mapping[str, float],
    command: str = "make bench",
    folder: Path | None = None,
) -> Path:
    """Merge figures (name with its unit -> number) into `<benchmark>-<device>.json`.

    Raises ValueError for a figure that is no finite number: a result file is never half true.
    """
    wrong = [name for name, value in figures.items() if not math.isfinite(value)]
    if wrong:
        raise ValueError(f"figures {', '.join(wrong)} are no finite numbers")
    folder = default_folder() if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark}-{device}.json"
    with locked(folder):
        old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        record = _merged(old, {"benchmark": benchmark, "device": device}, figures, command)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        fresh.replace(path)  # one that is killed here leaves the old file whole
    return path


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes that ask for the same folder waiting."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _merged(
    old: dict[str, Any], head: dict[str, str], figures: Mapping[str, float], command: str
) -> dict[str, Any]:
    """Return what a file that holds `old` holds with new figures."""
    commit = current_commit()
    older = dict(old.get("older", {}))
    if old and old["commit"] != commit:
        older |= dict.fromkeys(
            old["figures"].keys() - older.keys(), f"{old['commit']} {old['date']}"
        )
    merged = {**old.get("figures", {}), **figures}
    record: dict[str, Any] = {
        **head,
        "commit": commit,
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "figures": dict(sorted(merged.items())),
    }
    older = {name: origin for name, origin in sorted(older.items()) if name not in figures}
    if older:
        record["older"] = older
    return record


def current_commit() -> str:
    """Return the checkout's short commit, with a plus sign where tracked files differ from it."""
    commit = _git("rev-parse", "--short", "HEAD")
    if not commit:
        return _NO_COMMIT
    own = ":(exclude)tests/bench/results"  # writing a result does not change what was measured
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", own)
    return f"{commit}+" if changed else commit


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
    except OSError:  # no git here
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def device_label(name: str) -> str:
    """Return the file-name part of a device: "NVIDIA H200" -> "h200", "cpu" -> "cpu"."""
    words = re.sub(r"nvidia|tesla|geforce", " ", name.lower()).split()
    series = 2 if words and words[0] in ("rtx", "gtx", "quadro") else 1
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words[:series])).strip("-") or "cuda"
