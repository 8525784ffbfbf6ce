"""Writes a benchmark's result file: what was measured, on what, by which command."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[2]


def write_result(
    benchmark: str, device: str, figures: dict[str, float], command: str = "make bench"
) -> Path:
    """Merge figures (name with its unit -> number) into `<benchmark>-<device>.json`."""
    path = FOLDER / f"{benchmark}-{device}.json"
    old = json.loads(path.read_text())["figures"] if path.exists() else {}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    record = {
        "benchmark": benchmark,
        "device": device,
        "commit": commit,
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "figures": dict(sorted((old | figures).items())),
    }
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path
