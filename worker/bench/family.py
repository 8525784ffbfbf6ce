"""`playhead bench family`: every model of the family at every precision, on this machine.

Each member is measured in a process of its own, so cold start and peak memory are its alone: the
first audio in four parts (text, acoustic, codec, end to end), streamed and full text, a 15 s
utterance, cold start (imports, census, tokenizer, weights, captures), peak memory, and for
quantized weights the error of the scores; for Base the first audio of a new and of a stored
clone, in process and over HTTP. Figures are written as they come. Where kernels had to be
compiled, a second process tells the cold start of a machine that has them. Checkpoints are random
weights at the published shapes, generated when they are missing.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import IO

from playhead.engine.errors import ConfigError, EngineFailure
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.report import Report, add_common_arguments
from playhead.worker.bench.uploads import uploaded


@dataclass(frozen=True, slots=True)
class Member:
    """A model at a precision."""

    name: str
    """In the names of its figures."""
    shape: str
    """Of the checkpoint."""
    weights: str = "auto"
    """As in a profile."""
    graphs: bool = True
    capability: float = 0.0
    """Assumed of the card; 0: its own."""
    cloned: bool = False
    """A Base checkpoint: it speaks with clones alone."""
    first_audio: str = ""
    """Another ending of the name of its first audio."""


MEMBERS = (
    Member("1b7", "1.7b", first_audio="1b7_customvoice"),
    Member("0b6", "0.6b", first_audio="0b6_customvoice"),
    Member("1b7_base", "1.7b-base", cloned=True),
    Member("0b6_base", "0.6b-base", cloned=True),
    Member("1b7_voicedesign", "1.7b-voicedesign"),
    Member("1b7_int8", "1.7b", "int8"),
    Member("1b7_fp8", "1.7b", "fp8"),
    Member("1b7_int4", "1.7b", "int4"),
    Member("fp16_nographs", "1.7b", "fp16", graphs=False),
    Member("1b7_twins", "1.7b", capability=7.5),
    Member("1b7_fp32", "1.7b", "fp32"),
    Member("tiny", "tiny"),
    Member("tiny_base", "tiny-base", cloned=True),
    Member("tiny_voicedesign", "tiny-voicedesign"),
    Member("embedded", "embedded"),
)
ON_A_GPU = tuple(member.name for member in MEMBERS if member.shape[0].isdigit())
ON_A_CPU = ("embedded", "0b6")
"""In fp32; the 0.6B works there, far slower than speech."""
TAKES_S = {"cuda": 60.0, "cpu": 60.0}
"""A member's time that has to be left for it to begin."""
REQUESTS = {"cuda": 30, "cpu": 3}
FRAMES_15_S = 188
STREAMS = 64
"""Most that a member has room for, whatever its profile."""
TEXT = "The evening train leaves from the main station at a quarter past nine."
COMPILED = "kernels_compiled"
"""What a process tells of its start beside figures: kernels that the compiler's cache lacked."""
TABLES = {
    "first audio, ms; an utterance of 15 s, s": {
        "text": "text_ms", "acoustic": "acoustic_ms", "codec": "codec_ms",
        "end to end": "first_audio_ms", "full text": "first_audio_full_ms", "15 s": "wall_s_15s",
    },
    "clones and designed voices, first audio, ms": {
        "new": "clone_new_first_audio_ms", "of that made in": "clone_new_made_ms",
        "stored": "clone_cached_first_audio_ms",
        "in context, new": "clone_new_in_context_first_audio_ms",
        "in context, stored": "clone_cached_in_context_first_audio_ms",
        "new, over HTTP": "clone_new_http_first_audio_ms",
        "stored, over HTTP": "clone_cached_http_first_audio_ms",
        "new description": "design_new_first_audio_ms",
        "vector's error": "clone_vector_error", "same codes": "clone_same_codes",
    },
    "start, s": {
        "cold": "cold_start_s", "imports": "cold_imports_s", "census": "cold_census_s",
        "tokenizer": "cold_tokenizer_s", "weights": "cold_weights_s",
        "captures": "cold_captures_s", "kernels compiled": "first_start_s",
    },
    "memory, GiB; error of the scores": {
        "peak": "peak_gib", "weights": "weights_gib", "keys and values": "keys_values_gib",
        "graphs": "graphs_gib", "voice process": "voice_process_gib", "error": "logit_error",
        "same best": "logit_same_best",
    },
}  # fmt: skip
"""What is printed at the end: title to columns, each with its figure's plain name."""
UNNAMED = ("clone_new_first_audio_ms", "clone_cached_first_audio_ms")
"""Figures of the 1.7B Base that have no ending."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `playhead bench family`."""
    parser.description = __doc__
    add_common_arguments(parser, "1.7b")
    names = ", ".join(member.name for member in MEMBERS)
    parser.add_argument(
        "--members",
        help=f"of {names}; default on a GPU all published sizes, on a CPU {', '.join(ON_A_CPU)}",
    )
    parser.add_argument("--profile", help="default: ttfa on a GPU, cpu on a CPU; 64 streams")
    parser.add_argument("--requests", type=int, help="first audios a median; default 30, 3 on CPU")
    parser.add_argument(
        "--frames", type=int, default=FRAMES_15_S, help="of the long utterance; default 188: 15 s"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when a member could not be measured."""
    known = {member.name: member for member in MEMBERS}
    report = Report("family", args)
    default = ON_A_GPU if report.device == "cuda" else ON_A_CPU
    asked = [n.strip() for n in args.members.split(",")] if args.members else list(default)
    unknown = [name for name in asked if name not in known]
    requests = args.requests or REQUESTS[report.device]
    if unknown or requests < 1 or args.frames < 1:
        raise ConfigError(
            f"members {', '.join(asked)}, {requests} requests, {args.frames} frames; allowed are "
            f"{', '.join(known)}, and 1 or more"
        )
    for name in asked:
        measure = partial(_measure, known[name], args, report, requests)
        report.part(name, TAKES_S[report.device], measure)
    if report.path:
        print(tables(json.loads(report.path.read_text(encoding="utf-8"))["figures"]))
    return int(report.failed)


def _measure(member: Member, args: argparse.Namespace, report: Report, requests: int) -> None:
    """Write the member's checkpoint, measure it in a process, tell its figures as they come."""
    folder = checkpoint(member.shape, args.checkpoints, device=report.device)
    profile = args.profile or ("ttfa" if report.device == "cuda" else "cpu")
    job = asdict(member) | {
        "folder": str(folder), "device": report.device, "profile": profile,
        "requests": requests, "frames": args.frames, "cold_only": False,
    }  # fmt: skip
    compiled = False

    def tell(figures: dict[str, float]) -> None:
        nonlocal compiled
        if figures.pop(COMPILED, 0) and not compiled:
            compiled, figures = True, first_start(figures)
        report.tell(named(member, figures), member.name)

    try:
        told_by_process(job, max(report.left_s, 1.0), tell)
    finally:
        if compiled:  # the compiler has them in its cache now
            told_by_process(job | {"cold_only": True}, max(report.left_s, 1.0), tell)
    if member.cloned:
        tell(uploaded(folder, profile, STREAMS, requests, TEXT))


def first_start(cold: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of a start that compiled kernels: under names of their own."""
    return {
        "first_start_s": cold["cold_start_s"],
        "first_captures_s": cold["cold_captures_s"],
    }


def told_by_process(
    job: Mapping[str, object], limit_s: float, tell: Callable[[dict[str, float]], None]
) -> None:
    """Run one member in a process of its own; pass on its figures as it tells them.

    Raises EngineFailure when it fails, or takes longer than `limit_s`: what it told stays told.
    """
    command = [sys.executable, "-m", "playhead.worker.bench.family_member"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit_s, end)
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended at once: its exit code tells
                _there(process.stdin).write(json.dumps(job))
                _there(process.stdin).close()
            for line in _there(process.stdout):
                tell(json.loads(line))
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
    if late.is_set():
        raise EngineFailure(f"it took longer than the {limit_s:.0f} s that were left")
    if code:
        raise EngineFailure("a part of it failed; the error is above")


def _there(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def named(member: Member, figures: Mapping[str, float]) -> dict[str, float]:
    """Put the member's name behind each figure's."""
    names = {}
    for figure, value in figures.items():
        ending = member.first_audio if figure == "first_audio_ms" else ""
        plain = member.name == "1b7_base" and figure in UNNAMED
        names[figure if plain else f"{figure}_{ending or member.name}"] = value
    return names


def tables(figures: Mapping[str, float]) -> str:
    """Lay the figures of a result file out, a row a member; what it lacks is left out."""
    lines: list[str] = []
    for title, columns in TABLES.items():
        rows = {
            member.name: [figures.get(*named(member, {plain: 0.0})) for plain in columns.values()]
            for member in MEMBERS
        }
        rows = {name: row for name, row in rows.items() if any(v is not None for v in row)}
        used = [i for i in range(len(columns)) if any(row[i] is not None for row in rows.values())]
        if not rows:
            continue
        heads = [head for i, head in enumerate(columns) if i in used]
        lines += ["", f"| {title} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for name, row in rows.items():
            cells = ["" if row[i] is None else f"{row[i]:.4g}" for i in used]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
