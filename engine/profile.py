"""Profile: every tunable of one engine, read once from YAML, frozen; unknown keys fail at load.

A file holds only what differs from its base: `extends:` names a built-in profile or a file beside
it, and without one the base is the defaults below. Torch-free, so that a command can refuse a
wrong profile before a model is touched.
"""

import difflib
import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from playhead.engine.errors import ConfigError

PROFILE_FOLDER = Path(__file__).parent / "profiles"
EXTENDS = "extends"
DEVICES = ("cpu", "cuda")
AUTO = "auto"
WEIGHTS = (AUTO, "bf16", "fp16", "fp32", "int8", "fp8", "int4")
CAPABILITIES = (7.0, 9.9)
MAX_FILE_BYTES = 64 << 10
MAX_BATCH_ROWS = 256
MAX_TARGET_S = 4.0
"""Frames that wait for the codec have room for this."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Limits and targets of scheduling and execution; defaults are those of `cpu`."""

    name: str = "cpu"
    device: str = "cpu"
    """What the tuning is for: `cpu`, or `cuda`, which a machine without a GPU refuses at start."""
    weights: str = AUTO
    """Precision of talker and code predictor: `auto` is what suits the device (bf16, fp16 below
    capability 8.0, fp32 on a CPU); int8, fp8 and int4 keep the matrices so and compute in bf16."""
    graphs: bool = True
    """Capture CUDA graphs at start; off: each launch is made by the host, slow, to find faults."""
    capability: float = 0.0
    """Run as if the GPU had only this compute capability, such as 7.5; 0: what it has."""
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
    chunk_frames: tuple[int, ...] = (1, 2, 3, 4, 6)
    """Frames of one request in one codec batch: the sizes allowed, rising from 1."""
    frame_batches: tuple[int, ...] = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    """Rows of the frame graphs captured on a GPU, rising; a batch is padded to the next one.

    With a single size every batch takes the same route, so a seed gives the same codes alone and
    among others. Below 8 the library's products are slower, not faster."""
    launch_ahead: bool = True
    """Queue the next frame batch shortly before the last one is done, where a device runs apart."""
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
        if self.device not in DEVICES:
            raise ConfigError(
                f"profile {self.name}: device {self.device!r}, allowed: {', '.join(DEVICES)}"
            )
        self._check_precision()
        if not ordered:
            raise ConfigError(
                f"profile {self.name}: guard_s {self.guard_s}, low_s {self.low_s}, target_s "
                f"{self.target_s}; allowed is 0 < guard_s <= low_s < target_s"
            )
        for key in ("max_streams", "max_rows", "flat_rows", "segment_frames"):
            if getattr(self, key) < 1:
                raise ConfigError(f"profile {self.name}: {key} is {getattr(self, key)}, at least 1")
        if self.target_s > MAX_TARGET_S:
            raise ConfigError(
                f"profile {self.name}: target_s {self.target_s}, allowed is up to {MAX_TARGET_S}"
            )
        sizes = self.chunk_frames
        if not sizes or sizes[0] != 1 or list(sizes) != sorted(set(sizes)):
            raise ConfigError(
                f"profile {self.name}: chunk_frames {list(sizes)}; sizes must rise from 1"
            )
        batches = self.frame_batches
        if not batches or list(batches) != sorted(set(batches)) or batches[0] % 8:
            raise ConfigError(
                f"profile {self.name}: frame_batches {list(batches)}; allowed are rising sizes of "
                "at least 8, the first one a multiple of 8"
            )
        if not self.max_rows <= batches[-1] <= MAX_BATCH_ROWS:
            raise ConfigError(
                f"profile {self.name}: frame_batches end at {batches[-1]}, max_rows is "
                f"{self.max_rows}; the last must hold max_rows and be at most {MAX_BATCH_ROWS}"
            )
        if not 0 < self.busy_limit <= 1:
            raise ConfigError(f"profile {self.name}: busy_limit {self.busy_limit} is not in 0..1")
        if not 0 <= self.first_audio_budget_s < 60:
            raise ConfigError(
                f"profile {self.name}: first_audio_budget_s {self.first_audio_budget_s} is not "
                "in 0..60"
            )
        for key, least in (("max_text_chars", 1), ("num_threads", 0)):
            if getattr(self, key) < least:
                raise ConfigError(
                    f"profile {self.name}: {key} is {getattr(self, key)}, at least {least}"
                )

    def _check_precision(self) -> None:
        if self.weights not in WEIGHTS:
            near = difflib.get_close_matches(self.weights, WEIGHTS, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]}?" if near else f"; allowed: {', '.join(WEIGHTS)}"
            raise ConfigError(f"profile {self.name}: weights {self.weights!r}{hint}")
        least, most = CAPABILITIES
        if self.capability and not least <= self.capability <= most:
            raise ConfigError(
                f"profile {self.name}: capability {self.capability}; allowed are {least} to "
                f"{most}, or 0 for what the GPU has"
            )


def load_profile(name_or_path: str = "cpu") -> Profile:
    """Read a built-in profile by name or a YAML file by path, its bases first.

    Raises ConfigError for an unknown name, an unknown key (naming the nearest one), a value of
    the wrong type, bases that lead back to the file, or limits that contradict each other.
    """
    path = _path_of(name_or_path, Path())
    values = {key: value for layer in _layers(path) for key, value in layer.items()}
    return replace(Profile(), **{"name": path.stem, **values})


def names() -> tuple[str, ...]:
    """Return the built-in profiles."""
    return tuple(sorted(path.stem for path in PROFILE_FOLDER.glob("*.yaml")))


def sha256(profile: Profile) -> str:
    """Return the digest of every resolved value: two engines with the same one are tuned alike."""
    return hashlib.sha256(json.dumps(asdict(profile), sort_keys=True).encode()).hexdigest()


def _path_of(name_or_path: str, folder: Path) -> Path:
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        return folder / path
    if name_or_path not in names():
        raise ConfigError(
            f"no profile {name_or_path!r}; built in are {', '.join(names())}; or give a .yaml file"
        )
    return PROFILE_FOLDER / f"{name_or_path}.yaml"


def _layers(path: Path, above: tuple[Path, ...] = ()) -> list[dict[str, Any]]:
    """Return the checked values of a file's bases, first base first, then its own."""
    here = path.resolve()
    if here in above:
        circle = " -> ".join(each.name for each in (*above[above.index(here) :], here))
        raise ConfigError(f"profile {above[0]}: {EXTENDS} goes in a circle: {circle}")
    values = _read(path)
    base = values.pop(EXTENDS, None)
    own = {key: _checked(key, value, path) for key, value in values.items()}
    if base is None:
        return [own]
    if not isinstance(base, str):
        raise ConfigError(f"profile {path}: {EXTENDS} is {base!r}, expected a name or a .yaml file")
    return [*_layers(_path_of(base, path.parent), (*above, here)), own]


def _read(path: Path) -> dict[Any, Any]:
    try:
        text = path.read_bytes()[: MAX_FILE_BYTES + 1]
        if len(text) > MAX_FILE_BYTES:
            raise ConfigError(f"profile {path}: more than {MAX_FILE_BYTES} bytes, no profile is")
        values = yaml.load(text, Loader=_StrictLoader) or {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"profile {path}: {type(error).__name__}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"profile {path}: expected keys and values, got {type(values).__name__}")
    return values


def _checked(key: Any, value: Any, path: Path) -> Any:
    """Return the value as its field's type, by the field's default; raises ConfigError."""
    defaults = {field.name: field.default for field in fields(Profile)}
    if key not in defaults:
        near = difflib.get_close_matches(str(key)[:80], [*defaults, EXTENDS], n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; known keys: {', '.join(defaults)}"
        raise ConfigError(f"profile {path}: unknown key {str(key)[:80]!r}{hint}")
    default = defaults[key]
    if isinstance(default, float) and type(value) is int and abs(value) < 1 << 53:
        return float(value)
    if isinstance(default, tuple) and isinstance(value, list):
        if all(type(each) is int for each in value):
            return tuple(value)
    elif type(value) is type(default):
        return value
    wanted = "a list of int" if isinstance(default, tuple) else type(default).__name__
    raise ConfigError(f"profile {path}: {key} is {str(value)[:80]!r}, expected {wanted}")


class _StrictLoader(yaml.SafeLoader):
    """YAML without repeated keys and without aliases, which make small files huge."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed in a profile")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = [key.value for key, _ in node.value]
        for key in seen:
            if seen.count(key) > 1:
                raise yaml.YAMLError(f"{key} stands there twice")
        return super().construct_mapping(node, deep=deep)
