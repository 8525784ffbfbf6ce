"""Profiles: built in, from a file, and every way of getting one wrong."""

from pathlib import Path

import pytest

from playhead.engine.errors import ConfigError
from playhead.engine.profile import Profile, load_profile


def test_built_in_profile_loads_by_name() -> None:
    assert load_profile("cpu").name == "cpu"


def test_file_overlays_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("max_rows: 3\ntarget_s: 2\n")
    profile = load_profile(str(path))
    assert (profile.name, profile.max_rows, profile.target_s) == ("mine", 3, 2.0)
    assert profile.low_s == Profile().low_s


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_rowz: 3", "did you mean max_rows?"),
        ("max_rows: three", "expected int"),
        ("max_rows: 0", "at least 1"),
        ("max_rows: true", "expected int"),
        ("low_s: 3.0", "guard_s <= low_s < target_s"),
        ("busy_limit: 1.5", "busy_limit"),
        ("- a list", "expected keys and values"),
        ("a: [", "mine.yaml"),
    ],
)
def test_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
        load_profile(str(path))


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="built in are cpu"):
        load_profile("turbo")
