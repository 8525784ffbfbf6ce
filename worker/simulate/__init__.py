"""`playhead simulate`: the real engine in virtual time, on step times of a device.

Heavy imports are inside: the command line stays quick.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from playhead.engine.errors import ConfigError

PARTS = ("policies", "interruptions", "mixed", "overload", "fleet", "trace", "measured")


def add_arguments(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Run the real scheduler, admission and clocks in virtual time, against the step times of "
        "a device: what would callers hear? Needs no GPU."
    )
    parser.add_argument(
        "--parts",
        default=",".join(part for part in PARTS if part != "fleet"),
        help=f"of {', '.join(PARTS)}; default: all but fleet",
    )
    parser.add_argument(
        "--times",
        default="h200",
        help="step times: a name, a .yaml file, or the engine-*.json of a benchmark; default "
        "h200, measured on one H200",
    )
    parser.add_argument("--profile", default="balanced", help="default balanced")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same figures; default 0")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="measured window, after 8 s; default 20"
    )
    parser.add_argument("--gpus", type=int, default=100, help="engines of the fleet; default 100")
    parser.add_argument(
        "--rate", type=float, default=20.0, help="requests/s of each engine; default 20"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes of the fleet; default 2")
    parser.add_argument(
        "--measured", type=Path, metavar="FILE", help="serve-*.json of a benchmark to compare with"
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="the part trace replays this file of a worker or service run with --record",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="result files; default tests/bench/results"
    )
    parser.set_defaults(log_level="ERROR")


def run(args: argparse.Namespace) -> int:
    """Run the chosen parts; print and write their figures. Raises ConfigError."""
    from playhead.engine.profile import load_profile
    from playhead.engine.replay_times import load_times
    from playhead.worker.bench.result import default_folder, write_result
    from playhead.worker.simulate.chart import draw
    from playhead.worker.simulate.parts import PARTS as RUNS
    from playhead.worker.simulate.parts import Options

    asked = args.parts.split(",")
    unknown = [part for part in asked if part not in RUNS]
    if unknown:
        raise ConfigError(f"part {unknown[0]!r}; allowed are {', '.join(RUNS)}")
    if args.gpus < 1 or args.jobs < 1 or not 0 < args.seconds <= 3600:
        raise ConfigError("--gpus and --jobs must be at least 1, --seconds above 0, at most 3600")
    times = load_times(args.times)
    options = Options(
        times, load_profile(args.profile), args.seed, args.seconds, args.rate, args.gpus,
        args.jobs, args.measured, args.trace,
    )  # fmt: skip
    print(f"step times {times.name}{' (planned, not measured)' if times.planned else ''}")
    command = shlex.join(["playhead", *sys.argv[1:]])
    folder = args.out or default_folder()
    path = None
    for part in (each for each in RUNS if each in asked):
        began_s = time.monotonic()
        print(part, flush=True)
        figures = RUNS[part](options)
        if part == "fleet":
            figures["fleet_wall_s"] = round(time.monotonic() - began_s, 1)
        if figures:  # each part's at once: a part that fails later takes none away
            figures["step_times_planned"] = float(times.planned)
            path = write_result("simulate", "none", figures, command, folder)
        if part == "policies" and path is not None:
            print(draw(figures, f"step times {times.name}", path.with_suffix(".png")))
    if path is not None:
        print(path)
    return 0
