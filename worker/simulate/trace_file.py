"""TraceFile: a trace as JSON lines while an engine runs, and read again for a replay.

    {"trace": 1, "model": ..., "profile": {...}}                      first line: which engine
    ["clock", 12.5]  ["command", {...}]  ["ready", true]  ...         an answer, in order
    ["plan", prefill, frame, codec, wake_s]  ["published", ...]       what the engine made of them

Only a trace from the engine's first moment can be replayed, so a file that is full ends there and
the engine goes on. It holds the texts that were spoken: only its owner may read it. Samples of the
results stand as a hash; they are the codec's, which are kept whole. Written on the engine thread.
"""

import base64
import hashlib
import json
import logging
import os
import queue
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
from playhead.engine.errors import Busy, ConfigError, PlayheadError
from playhead.engine.messages import Command, Pcm, Result
from playhead.engine.profile import Profile
from playhead.engine.runner import CodecResult, FrameResult
from playhead.engine.scheduler import Plan
from playhead.engine.units import CODEBOOKS
from playhead.worker import wire
from playhead.worker.simulate.trace import Trace

logger = logging.getLogger(__name__)

VERSION = 1
MAX_BYTES = 256 << 20
"""About an hour of one stream: its samples are 64 kB a second."""
BUFFER_BYTES = 1 << 16


class TraceFile:
    """Takes what a Recorder notes; `engine-<pid>.jsonl` in a folder."""

    def __init__(
        self, folder: Path, model: str | None, profile: Profile, max_bytes: int = MAX_BYTES
    ) -> None:
        """Begin the file of this process; raises ConfigError where it can't be written."""
        self.path = folder / f"engine-{os.getpid()}.jsonl"
        self._left_bytes = max_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._file = os.fdopen(handle, "wb", BUFFER_BYTES)
        except OSError as error:
            raise ConfigError(f"--record {folder}: {error.strerror}; name another folder") from None
        self._write({"trace": VERSION, "model": model, "profile": asdict(profile)})

    def answer(self, what: str, value: Any) -> None:
        """Note an answer."""
        self._write([what, _plain(value)])

    def plan(self, plan: Plan) -> None:
        """Note a plan."""
        self._write(["plan", *_plan_line(plan)])

    def published(self, results: list[Result]) -> None:
        """Note results; the file is safe up to here."""
        for result in results:
            self._write(["published", *result_line(result)])
        if not self._file.closed:
            self._file.flush()

    def _write(self, line: Any) -> None:
        if self._file.closed:
            return
        try:
            data = json.dumps(line, separators=(",", ":"), default=_number).encode() + b"\n"
            self._left_bytes -= len(data)
            if self._left_bytes >= 0:
                self._file.write(data)
                return
            why = "it is full"
        except (OSError, TypeError, ValueError) as error:  # an engine never breaks of its trace
            why = f"{type(error).__name__}: {error}"
        logger.warning("trace %s ends here: %s", self.path, why)
        self._file.close()


@dataclass(slots=True)
class RecordedRun:
    """A file, read: whose engine it was, what it was told, what it published."""

    model: str | None
    """None: the embedded voice."""
    profile: Profile
    trace: Trace = field(default_factory=Trace)
    published: list[list[Any]] = field(default_factory=list)
    """As `result_line` gives them."""


def read_trace(path: Path) -> RecordedRun:
    """Read a file; a last line that was cut is left out. Raises ConfigError for anything else."""
    try:
        lines = _lines(path)
        head = next(lines)
        if head.get("trace") != VERSION:
            raise ValueError(f"trace version {head.get('trace')}, readable is {VERSION}")
        values: dict[str, Any] = head["profile"]
        tuples = {name: tuple(each) for name, each in values.items() if isinstance(each, list)}
        run = RecordedRun(head["model"], Profile(**{**values, **tuples}))
        for what, *rest in lines:
            if what == "plan":
                run.trace.plans.append(_plan_of(*rest))
            elif what == "published":
                run.published.append(rest)
            else:
                run.trace.answers.append((what, _value_of(what, rest[0])))
    except (OSError, LookupError, TypeError, ValueError, StopIteration, AttributeError) as error:
        raise ConfigError(f"{path} is no trace: {type(error).__name__}: {error}") from None
    return run


def _lines(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def result_line(result: Result) -> list[Any]:
    """Return a result as its fields and a hash of its samples."""
    if isinstance(result, Pcm):  # on the wire its header is no JSON
        header: dict[str, Any] = {"type": "Pcm", "request_id": result.request_id}
        header |= {"start_sample": result.start_sample, "pcm": len(result.pcm)}
        header["num_frames"], payload = result.num_frames, result.pcm
    else:
        header, payload = _parts(result)
    return [header, hashlib.sha256(payload).hexdigest()[:16] if payload else ""]


def _parts(message: Command | Result) -> tuple[dict[str, Any], bytes]:
    frame = wire.encode(message)
    end = 8 + int.from_bytes(frame[:4])
    return json.loads(frame[8:end]), frame[end:]


# -- plans


def _plan_line(plan: Plan) -> list[Any]:
    codec = [[row.row, row.num_frames] for row in plan.codec]
    wake_s = None if plan.wake_s == float("inf") else plan.wake_s
    return [list(plan.prefill), list(plan.frame), codec, wake_s]


def _plan_of(
    prefill: list[int], frame: list[int], codec: list[list[int]], wake_s: float | None
) -> Plan:
    rows, frames = tuple(row for row, _ in codec), tuple(num_frames for _, num_frames in codec)
    wake_s = float("inf") if wake_s is None else wake_s
    return Plan(tuple(prefill), tuple(frame), rows, frames, wake_s)


# -- answers


def _plain(value: Any) -> Any:
    """Return an answer as JSON takes it; `_value_of` is the way back."""
    if isinstance(value, Exception):
        error = {"error": type(value).__name__, "told": str(value)}
        return error | ({"retry_s": value.retry_s} if isinstance(value, Busy) else {})
    if isinstance(value, StepCosts):
        state = vars(value).items()  # what it has learned too
        return {name: asdict(each) if is_dataclass(each) else each for name, each in state}  # type: ignore[arg-type]
    if isinstance(value, FrameResult):
        return {"codes": _bytes64(value.codes), "ended": value.ended.tolist()}
    if isinstance(value, CodecResult):
        return {"pcm": _bytes64(value.pcm), "broken": value.broken.tolist()}
    if value is None or isinstance(value, bool | int | float | np.generic):
        return value
    header, payload = _parts(value)
    return {"message": header, "payload": base64.b64encode(payload).decode()}


def _value_of(what: str, plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    if "error" in plain:
        return _error_of(plain)
    if what == "costs":
        return _costs_of(plain)
    if "codes" in plain:
        codes = _array(plain["codes"]).reshape(len(plain["ended"]), CODEBOOKS)
        return FrameResult(codes, np.array(plain["ended"], np.bool_))
    if "pcm" in plain:
        pcm = _array(plain["pcm"]).reshape(len(plain["broken"]), -1)
        return CodecResult(pcm, np.array(plain["broken"], np.bool_))
    header = json.dumps(plain["message"]).encode()
    return wire.decode(header, base64.b64decode(plain["payload"]))


def _costs_of(plain: dict[str, Any]) -> StepCosts:
    costs = StepCosts()
    for name, value in plain.items():
        kind = type(getattr(costs, name))
        setattr(costs, name, kind(**value) if isinstance(value, dict) else value)
    return costs


def _error_of(plain: dict[str, Any]) -> Exception:
    name, told = plain["error"], plain["told"]
    if name == "Empty":
        return queue.Empty()
    if name == "Busy":
        return Busy(told, plain["retry_s"])
    kind = _kinds(PlayheadError).get(name) or type(name, (RuntimeError,), {})
    return cast(Exception, kind(told))


def _kinds(above: type[PlayheadError]) -> dict[str, type[PlayheadError]]:
    found = {above.__name__: above}
    for kind in above.__subclasses__():
        found |= _kinds(kind)
    return found


def _bytes64(values: NDArray[np.int16]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _array(text: str) -> NDArray[np.int16]:
    return np.frombuffer(base64.b64decode(text), np.int16)


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a trace")
