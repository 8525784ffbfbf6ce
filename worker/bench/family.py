"""`playhead bench family`: every model of the family at every precision, on this machine.

Each member is measured in a process of its own, so cold start and peak memory are its alone: the
first audio in four parts (text, acoustic, codec, end to end), streamed and full text, a 15 s
utterance, cold start (imports, census, tokenizer, weights, captures), peak memory, and for
quantized weights the error of the scores; for Base the first audio of a new and of a stored
clone. Checkpoints are random weights at the published shapes, generated when they are missing.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial

from playhead.engine.errors import ConfigError, EngineFailure
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.report import Report, add_common_arguments


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
    Member("tiny", "tiny"),
    Member("tiny_base", "tiny-base", cloned=True),
    Member("embedded", "embedded"),
)
ON_A_GPU = tuple(member.name for member in MEMBERS if member.shape[0].isdigit())
ON_A_CPU = ("embedded", "0b6")
"""In fp32; the 0.6B works there, far slower than speech."""
TAKES_S = {"cuda": 60.0, "cpu": 60.0}
"""A member's time that has to be left for it to begin."""
REQUESTS = {"cuda": 30, "cpu": 3}
FRAMES_15_S = 188
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
    return int(report.failed)


def _measure(member: Member, args: argparse.Namespace, report: Report, requests: int) -> None:
    """Write the member's checkpoint, measure it in a process, tell its figures."""
    folder = checkpoint(member.shape, args.checkpoints, device=report.device)
    profile = args.profile or ("ttfa" if report.device == "cuda" else "cpu")
    job = asdict(member) | {
        "folder": str(folder), "device": report.device, "profile": profile,
        "requests": requests, "frames": args.frames,
    }  # fmt: skip
    report.tell(named(member, told_by_process(job, max(report.left_s, 1.0))), member.name)


def told_by_process(job: Mapping[str, object], limit_s: float) -> dict[str, float]:
    """Run one member in a process of its own; return its figures by their plain names.

    Raises EngineFailure when it fails or takes longer than `limit_s`.
    """
    command = [sys.executable, "-m", "playhead.worker.bench.family_member"]
    try:
        done = subprocess.run(
            command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, timeout=limit_s,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise EngineFailure(f"it took longer than the {limit_s:.0f} s that were left") from None
    if done.returncode or not done.stdout.strip():
        raise EngineFailure("its process failed; the error is above")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def named(member: Member, figures: Mapping[str, float]) -> dict[str, float]:
    """Put the member's name behind each figure's."""
    names = {}
    for figure, value in figures.items():
        ending = member.first_audio if figure == "first_audio_ms" else ""
        plain = member.name == "1b7_base" and figure in UNNAMED
        names[figure if plain else f"{figure}_{ending or member.name}"] = value
    return names
