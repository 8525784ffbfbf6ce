"""Audit: known vulnerabilities of the packages that go into the image, by pip-audit.

    python tools/audit.py [--if-reachable]

Asks an advisory service on the network, so its answer changes with the day. Exit codes: 0 none is
known, 1 some are (each is named), 3 nobody answered; with --if-reachable that is 0, and said.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "engine.txt"
COMMAND = ["uv", "tool", "run", "pip-audit", "--strict", "--no-deps", "--disable-pip"]
EXIT_NONE, EXIT_SOME, EXIT_NO_ANSWER = 0, 1, 3
LIMIT_S = 300.0


def ask() -> list[str] | None:
    """Return a line for each known vulnerability of the lock; None where nobody answered."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        flags = ["-r", str(LOCK), "--format", "json", "--output", str(report)]
        try:
            subprocess.run([*COMMAND, *flags], timeout=LIMIT_S)
            found = json.loads(report.read_text())["dependencies"]
        except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
            return None  # the report is written last
    return [
        f"{each['name']} {each['version']}: {known['id']}"
        for each in found
        for known in each.get("vulns", ())
    ]


def main() -> int:
    """Ask and tell; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--if-reachable", action="store_true", help="no answer is no failure")
    args = parser.parse_args()
    found = ask()
    if found is None:
        print("audit: NOT DONE, no advisory service answered", file=sys.stderr)
        return EXIT_NONE if args.if_reachable else EXIT_NO_ANSWER
    print("\n".join(found) or f"audit: nothing known about {LOCK.name}")
    return EXIT_SOME if found else EXIT_NONE


if __name__ == "__main__":
    sys.exit(main())
