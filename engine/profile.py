"""Profile: every tunable of one engine, read once from YAML, frozen; unknown keys fail at load."""

import difflib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from playhead.engine.errors import ConfigError

PROFILE_FOLDER = Path(__file__).parent / "profiles"


@dataclass(frozen=True, slots=True)
class Profile:
    """Limits and targets of scheduling and execution; defaults are those of `cpu`."""

    name: str = "cpu"
    max_streams: int = 16
    """Slots: requests that may hold model state at once."""
    max_rows: int = 8
    """Most rows of one frame or codec batch."""
    flat_rows: int = 2
    """Rows up to which a batch costs about as much as one row: room for free riders."""
    low_s: float = 0.35
    """A live stream with less audio ahead of its listener asks for a step."""
    target_s: float = 1.0
    """Audio ahead of the listener beyond which nothing is generated."""
    guard_s: float = 0.16
    """Decoded audio ahead below which a stream's frames go through the codec now."""
    first_audio_budget_s: float = 0.3
    """Age past which a request without audio no longer outranks a stream about to run dry."""
    max_chunk_frames: int = 6
    """Most frames of one request in one codec batch."""
    busy_limit: float = 0.85
    """Predicted busy share above which a new request is refused."""
    segment_frames: int = 512
    """Most frames of one talker segment; KV is reserved for it."""
    max_text_chars: int = 100_000
    """Most characters of one request."""
    num_threads: int = 1
    """CPU threads of one model step; 0 leaves torch's own choice.

    More threads gain little at this size and spin against each other on a busy machine."""

    def __post_init__(self) -> None:
        """Refuse values no scheduler can honour."""
        ordered = 0 < self.guard_s <= self.low_s < self.target_s
        if not ordered:
            raise ConfigError(
                f"profile {self.name}: guard_s {self.guard_s}, low_s {self.low_s}, target_s "
                f"{self.target_s}; allowed is 0 < guard_s <= low_s < target_s"
            )
        for key in ("max_streams", "max_rows", "flat_rows", "max_chunk_frames", "segment_frames"):
            if getattr(self, key) < 1:
                raise ConfigError(f"profile {self.name}: {key} is {getattr(self, key)}, at least 1")
        if not 0 < self.busy_limit <= 1:
            raise ConfigError(f"profile {self.name}: busy_limit {self.busy_limit} is not in 0..1")


def load_profile(name_or_path: str = "cpu") -> Profile:
    """Read a built-in profile by name or a YAML file by path.

    Raises ConfigError for an unknown name, an unknown key (naming the nearest one), a value of
    the wrong type, or limits that contradict each other.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = PROFILE_FOLDER / f"{name_or_path}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in PROFILE_FOLDER.glob("*.yaml")))
            raise ConfigError(
                f"no profile {name_or_path!r}; built in are {known}; or give a .yaml file"
            )
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"profile {path}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"profile {path}: expected keys and values, got {type(values).__name__}")
    return _overlay(Profile(name=path.stem), values, path)


def _overlay(base: Profile, values: dict[str, Any], path: Path) -> Profile:
    kinds = {field.name: type(getattr(base, field.name)) for field in fields(Profile)}
    for key, value in values.items():
        if key not in kinds:
            near = difflib.get_close_matches(str(key), kinds, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known keys: {', '.join(kinds)}"
            raise ConfigError(f"profile {path}: unknown key {key!r}{hint}")
        wanted = kinds[key]
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            values[key] = float(value)
        elif type(value) is not wanted:
            raise ConfigError(f"profile {path}: {key} is {value!r}, expected {wanted.__name__}")
    return replace(base, **values)
