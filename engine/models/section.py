"""One JSON object of a checkpoint, read with errors that name the file, the key and what fits."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playhead.engine.errors import CheckpointError


class Section:
    """One JSON object whose reads name the file and the key when something is wrong."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        """Take an object and where it stands, for the messages."""
        self._values = values
        self._where = where

    def fail(self, key: str, found: object, allowed: str) -> CheckpointError:
        """Return the error that tells what a key holds and what it may."""
        return CheckpointError(
            f"{self._where}: {key} is {found!r}, expected {allowed}. "
            "Use a checkpoint of the Qwen3-TTS 12 Hz family, unchanged."
        )

    def section(self, key: str) -> "Section":
        """Return a nested object."""
        value = self._values.get(key)
        if not isinstance(value, dict):
            raise self.fail(key, value, "an object")
        return Section(value, f"{self._where}, {key}")

    def integer(self, key: str, low: int = 1, high: int = 1 << 31) -> int:
        """Return a whole number from `low` to `high - 1`."""
        value = self._values.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value < high:
            raise self.fail(key, value, f"a whole number from {low} to {high - 1}")
        return value

    def count(self, key: str, default: int) -> int:
        """Return a positive whole number, or the default where the key is missing."""
        return self.integer(key) if key in self._values else default

    def optional(self, key: str) -> "Section | None":
        """Return a nested object, or None where the key is missing."""
        return self.section(key) if self._values.get(key) is not None else None

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number of at least 0; a missing key without a default is an error."""
        value = self._values.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
            raise self.fail(key, value, "a number of at least 0")
        return float(value)

    def integers(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return a list of positive whole numbers; a missing key without a default is an error."""
        value = self._values.get(key, None if default is None else list(default))
        if not isinstance(value, list) or not all(isinstance(n, int) and n > 0 for n in value):
            raise self.fail(key, value, "a list of positive whole numbers")
        return tuple(value)

    def text(self, key: str, default: str) -> str:
        """Return a text, or the default where the key is missing."""
        return str(self._values.get(key, default))

    def flag(self, key: str) -> bool:
        """Return true or false; true where the key is missing."""
        value = self._values.get(key, True)
        if not isinstance(value, bool):
            raise self.fail(key, value, "true or false")
        return value

    def only(self, key: str, allowed: object, *, optional: bool = True) -> None:
        """Accept one value alone; an optional key may be missing."""
        if key not in self._values and optional:
            return
        if self._values.get(key) != allowed:
            raise self.fail(key, self._values.get(key), repr(allowed))

    def plain_rope(self) -> None:
        """Accept no scaling and the interleaved multi-axis kind, which equals plain rotation."""
        scaling = self._values.get("rope_scaling") or {}
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        if kind != "default":
            raise self.fail("rope_scaling.rope_type", kind, "'default'")

    def names(self, key: str, high: int) -> dict[str, int]:
        """Return lower-cased names to ids below `high`; empty where the key is missing."""
        found = self._values.get(key) or {}
        for name, value in found.items():
            if not isinstance(value, int) or not 0 <= value < high:
                raise self.fail(f"{key}[{name!r}]", value, f"an id from 0 to {high - 1}")
        return {name.lower(): value for name, value in found.items()}

    def flags(self, key: str) -> dict[str, object]:
        """Return lower-cased names to whatever they hold."""
        return {name.lower(): value for name, value in (self._values.get(key) or {}).items()}


def read_json(path: Path) -> Section:
    """Read a file that holds one JSON object."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing. A checkpoint folder holds config.json, generation_config.json, "
            "weights and speech_tokenizer/; download it again."
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON ({error}). Download it again.") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds {type(values).__name__}, expected an object.")
    return Section(values, str(path))
