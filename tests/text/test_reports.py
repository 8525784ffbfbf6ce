"""The page that says which report is which test names tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "text.md").read_text(encoding="utf-8")


def test_every_test_the_page_names_is_there() -> None:
    table = PAGE.split("reported, as tests\n")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 14
    for row in rows:
        text = ""
        named = re.findall(r"`([^`]+)`", row.split("|")[2])
        for name in named:
            if name.startswith("tests/"):
                text = (ROOT / name).read_text(encoding="utf-8")
            elif re.fullmatch(r"[a-z_0-9]+(\.\.\.)?", name):
                whole = name.removesuffix("...") if name.endswith("...") else f"{name}("
                assert f"def test_{whole}" in text, name
        assert text, f"no file is named: {row}"
