"""StepTimes: how long a device takes for a batch; read from a file whose numbers have a source.

A file is `engine/step_times/<name>.yaml`, or the `engine-<device>.json` that `playhead bench
engine` wrote. Torch-free.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from playhead.engine.errors import ConfigError

FOLDER = Path(__file__).parent / "step_times"
OVERLAP_SPEED = 0.7
"""Speed of each of frame and codec beside the other; benchmarks time them apart."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Costs of one device in milliseconds."""

    name: str
    frame_ms: tuple[tuple[int, float], ...]
    """(rows, ms) rising: at captured sizes if `padded`, else points of a line."""
    codec_fixed_ms: float
    codec_frame_ms: float
    """Of each frame of each row of a codec batch."""
    prefix_copy_ms: float = 0.0
    """Of a batch of joiners whose prompts are stored."""
    prompt_row_ms: float = 0.0
    host_ms: float = 0.0
    """Host time of an engine step that launches something; the simulator's to spend."""
    overlap_speed: float = OVERLAP_SPEED
    """Speed of each stream while both work; 1: they do not disturb each other."""
    padded: bool = True
    """A batch costs what the next larger size costs."""
    eager: bool = False
    """A launch returns when its work is done."""
    planned: bool = False
    """Assumed, not measured."""

    def frame_s(self, rows: int) -> float:
        """Return the time of a frame batch; beyond the largest size it grows with the rows."""
        sizes = [size for size, _ in self.frame_ms]
        values = [ms for _, ms in self.frame_ms]
        if rows > sizes[-1]:
            return values[-1] * rows / sizes[-1] / 1e3
        if self.padded:
            rows = _next_size(rows, sizes)
        return float(np.interp(rows, sizes, values)) / 1e3

    def codec_s(self, num_frames: int) -> float:
        """Return the time of a codec batch of so many frames over all its rows."""
        return (self.codec_fixed_ms + self.codec_frame_ms * num_frames) / 1e3

    def prefill_s(self, num_rows: int) -> float:
        """Return the time of a batch of joiners with so many prompt rows to run."""
        return (self.prefix_copy_ms + self.prompt_row_ms * num_rows) / 1e3

    def with_overlap(self, speed: float) -> "StepTimes":
        """Return the times of a device whose streams disturb each other so; 0.5: one stream."""
        return replace(self, overlap_speed=speed)

    def scaled(self, factor: float, name: str) -> "StepTimes":
        """Return the times of a device slower by a factor; host time stays."""
        return replace(
            self,
            name=name,
            frame_ms=tuple((rows, ms * factor) for rows, ms in self.frame_ms),
            codec_fixed_ms=self.codec_fixed_ms * factor,
            codec_frame_ms=self.codec_frame_ms * factor,
            prefix_copy_ms=self.prefix_copy_ms * factor,
            prompt_row_ms=self.prompt_row_ms * factor,
        )


CAPTURED_ROWS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Batch sizes a GPU engine captures."""


def _next_size(rows: int, sizes: list[int]) -> int:
    captured = [size for size in CAPTURED_ROWS if size >= rows]
    return max(captured[0] if captured else rows, sizes[0])


def names() -> tuple[str, ...]:
    """Return the step times that come with the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def load_times(name_or_path: str) -> StepTimes:
    """Read step times by name, or from a .yaml or a benchmark's .json file; raises ConfigError."""
    path = Path(name_or_path)
    try:
        if path.suffix == ".json":
            return _of_result(path.stem, json.loads(path.read_text(encoding="utf-8"))["figures"])
        if path.suffix not in (".yaml", ".yml"):
            if name_or_path not in names():
                raise ConfigError(
                    f"no step times {name_or_path!r}; there are {', '.join(names())}; or give a "
                    ".yaml file or the .json of a benchmark"
                )
            path = FOLDER / f"{name_or_path}.yaml"
        return _of_file(path.stem, yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(f"step times {path}: {type(error).__name__}: {error}") from error


def _of_file(name: str, values: Mapping[str, Any]) -> StepTimes:
    if "scaled_from" in values:
        base = load_times(values["scaled_from"])
        return replace(base.scaled(_sourced(values, "scale"), name), planned=True)
    frame, codec = _sourced(values, "frame_ms"), _sourced(values, "codec_ms")
    return StepTimes(
        name=name,
        frame_ms=tuple(sorted((int(rows), float(ms)) for rows, ms in frame.items())),
        codec_fixed_ms=float(codec["fixed"]),
        codec_frame_ms=float(codec["per_frame"]),
        prefix_copy_ms=float(_sourced(values, "prefix_copy_ms")),
        prompt_row_ms=float(_sourced(values, "prompt_row_ms")),
        host_ms=float(_sourced(values, "host_ms")),
        overlap_speed=float(_sourced(values, "overlap_speed")),
        padded=bool(values.get("padded", True)),
        eager=bool(values.get("eager", False)),
        planned=bool(values.get("planned", False)),
    )


def _sourced(values: Mapping[str, Any], key: str) -> Any:
    """Return a number that says where it is from; raises ValueError for one that does not."""
    entry = values[key]
    if not isinstance(entry, dict) or set(entry) != {"value", "from"}:
        raise ValueError(f"{key} needs a value and where it is from")
    return entry["value"]


def _of_result(name: str, figures: Mapping[str, float]) -> StepTimes:
    """Take what `playhead bench engine` measured; joins cost what 64 rows of them cost."""
    frames = {
        int(found[1]): ms
        for key, ms in figures.items()
        if (found := re.fullmatch(r"frame_ms_b(\d+)", key))
    }
    if not frames:
        raise ValueError("no frame_ms_b<rows> among the figures")
    copies = [ms for key, ms in figures.items() if key.startswith("prefix_copy_ms_b")]
    return StepTimes(
        name=name,
        frame_ms=tuple(sorted(frames.items())),
        codec_fixed_ms=figures["codec_ms_fixed"],
        codec_frame_ms=figures["codec_ms_per_frame"],
        prefix_copy_ms=max(copies, default=0.0),
        prompt_row_ms=frames[min(frames)] / 8,
        host_ms=figures.get("host_ms_per_step", 0.0),
        padded="cpu" not in name,
        eager="cpu" in name,
    )
