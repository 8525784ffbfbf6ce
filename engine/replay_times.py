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
SHORT_CONTEXT = 63
"""Positions behind each row where a frame takes what `frame_ms` says."""
GPU = "h200"
"""Whose overlap stands in where a benchmark timed frame and codec apart."""

Points = tuple[tuple[int, float], ...]
"""(rows, value), rows rising: a line through measured points, level beyond both ends."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Costs of one device in milliseconds."""

    name: str
    frame_ms: Points
    """At captured sizes if `padded`, else points of a line; all rows at SHORT_CONTEXT."""
    codec_fixed_ms: float
    codec_frame_ms: float
    """Of each frame of each row of a codec batch."""
    position_ms: Points = ((1, 0.0),)
    """What a frame takes more for each position of the rows' mean context."""
    prefix_copy_ms: Points = ((1, 0.0),)
    """Of a batch of so many joiners whose prompts are stored."""
    prompt_row_ms: float = 0.0
    host_ms: Points = ((1, 0.0),)
    """Host time of an engine step that launches so many rows; the simulator's to spend."""
    overlap_speed: Points = ((1, 1.0),)
    """Speed of frame and codec stream each while both work, by the rows of the frame batch; 1:
    they do not disturb each other, below 0.5: one after the other would be faster."""
    padded: bool = True
    """A batch costs what the next larger size costs."""
    eager: bool = False
    """A launch returns when its work is done."""
    planned: bool = False
    """Assumed, not measured."""

    def frame_s(self, rows: int, context: float = SHORT_CONTEXT) -> float:
        """Return the time of a frame batch; beyond the largest size it grows with the rows.

        `context`: mean of the positions that its rows look back on.
        """
        sizes = [size for size, _ in self.frame_ms]
        values = [ms for _, ms in self.frame_ms]
        more_ms = _at(self.position_ms, rows) * (context - SHORT_CONTEXT)
        if rows > sizes[-1]:
            return (values[-1] * rows / sizes[-1] + more_ms) / 1e3
        if self.padded:
            rows = _next_size(rows, sizes)
        return (_at(self.frame_ms, rows) + more_ms) / 1e3

    def codec_s(self, num_frames: int) -> float:
        """Return the time of a codec batch of so many frames over all its rows."""
        return (self.codec_fixed_ms + self.codec_frame_ms * num_frames) / 1e3

    def prefill_s(self, num_slots: int, num_rows: int) -> float:
        """Return the time of a batch of joiners with so many prompt rows to run."""
        return (_at(self.prefix_copy_ms, num_slots) + self.prompt_row_ms * num_rows) / 1e3

    def host_s(self, rows: int) -> float:
        """Return the host's time for a step that launches a frame of so many rows."""
        return _at(self.host_ms, rows) / 1e3

    def speed(self, rows: int) -> float:
        """Return how fast each stream goes while a frame of so many rows and a codec batch run."""
        return _at(self.overlap_speed, rows)

    def one_stream(self) -> "StepTimes":
        """Return the times of a device whose two streams share its time without loss."""
        return replace(self, overlap_speed=((1, 0.5),))

    def scaled(self, factor: float, name: str) -> "StepTimes":
        """Return the times of a device slower by a factor; host time and overlap stay."""
        return replace(
            self,
            name=name,
            frame_ms=_scaled(self.frame_ms, factor),
            position_ms=_scaled(self.position_ms, factor),
            codec_fixed_ms=self.codec_fixed_ms * factor,
            codec_frame_ms=self.codec_frame_ms * factor,
            prefix_copy_ms=_scaled(self.prefix_copy_ms, factor),
            prompt_row_ms=self.prompt_row_ms * factor,
        )


def _at(points: Points, rows: int) -> float:
    return float(np.interp(rows, [size for size, _ in points], [value for _, value in points]))


def _scaled(points: Points, factor: float) -> Points:
    return tuple((rows, value * factor) for rows, value in points)


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
    codec = _sourced(values, "codec_ms")
    return StepTimes(
        name=name,
        frame_ms=_points(_sourced(values, "frame_ms")),
        position_ms=_points(_sourced(values, "position_ms")),
        codec_fixed_ms=float(codec["fixed"]),
        codec_frame_ms=float(codec["per_frame"]),
        prefix_copy_ms=_points(_sourced(values, "prefix_copy_ms")),
        prompt_row_ms=float(_sourced(values, "prompt_row_ms")),
        host_ms=_points(_sourced(values, "host_ms")),
        overlap_speed=_points(_sourced(values, "overlap_speed")),
        padded=bool(values.get("padded", True)),
        eager=bool(values.get("eager", False)),
        planned=bool(values.get("planned", False)),
    )


def _points(values: Mapping[int, float]) -> Points:
    return tuple(sorted((int(rows), float(value)) for rows, value in values.items()))


def _sourced(values: Mapping[str, Any], key: str) -> Any:
    """Return a number that says where it is from; raises ValueError for one that does not."""
    entry = values[key]
    if not isinstance(entry, dict) or set(entry) != {"value", "from"}:
        raise ValueError(f"{key} needs a value and where it is from")
    return entry["value"]


def _of_result(name: str, figures: Mapping[str, float]) -> StepTimes:
    """Take what `playhead bench engine` measured; the overlap is the H200's."""
    frames = _by_rows(figures, r"frame_ms_b(\d+)")
    if not frames:
        raise ValueError("no frame_ms_b<rows> among the figures")
    on_gpu = "cpu" not in name
    return StepTimes(
        name=name,
        frame_ms=_points(frames),
        position_ms=_points(_position_ms(figures, frames) or {1: 0.0}),
        codec_fixed_ms=figures["codec_ms_fixed"],
        codec_frame_ms=figures["codec_ms_per_frame"],
        prefix_copy_ms=_points(_by_rows(figures, r"prefix_copy_ms_b(\d+)") or {1: 0.0}),
        prompt_row_ms=round(frames[min(frames)] / 8, 4),
        host_ms=_points(_host_ms(figures)),
        overlap_speed=load_times(GPU).overlap_speed if on_gpu else ((1, 1.0),),
        padded=on_gpu,
        eager=not on_gpu,
    )


def _by_rows(figures: Mapping[str, float], pattern: str) -> dict[int, float]:
    found = ((re.fullmatch(pattern, key), value) for key, value in figures.items())
    return {int(match[1]): value for match, value in found if match}


def _position_ms(figures: Mapping[str, float], frames: Mapping[int, float]) -> dict[int, float]:
    """Return what each size takes more for a position: from the longest context measured."""
    longest: dict[int, tuple[int, float]] = {}
    for key, ms in figures.items():
        if match := re.fullmatch(r"frame_ms_b(\d+)_ctx(\d+)", key):
            rows, context = int(match[1]), int(match[2])
            longest[rows] = max(longest.get(rows, (0, 0.0)), (context, ms))
    return {
        rows: round((ms - frames[rows]) / (context - SHORT_CONTEXT), 6)
        for rows, (context, ms) in longest.items()
        if rows in frames and context > SHORT_CONTEXT
    }


def _host_ms(figures: Mapping[str, float]) -> dict[int, float]:
    """Return the host's time by rows, of as many live streams where there are such figures."""
    found = {}
    if "host_ms_per_step" in figures:
        found[int(figures.get("host_rows", 1))] = figures["host_ms_per_step"]
    found |= _by_rows(figures, r"host_ms_per_step_b(\d+)")
    found |= _by_rows(figures, r"host_ms_per_step_b(\d+)_many")
    return found or {1: 0.0}
