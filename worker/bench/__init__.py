"""`playhead bench`: what this machine does, each part alone, into result files.

A part is a module with `add_arguments(parser)` and `run(args)`; its heavy imports are inside.
"""

import argparse
import importlib
from collections.abc import Mapping

PARTS = {
    "engine": "the engine alone: frames, codec, joins, host time, beside the physical floor",
    "serve": "callers under open-loop load: first audio, gaps, rates, streams, price",
    "first-audio": "where the time to first audio goes: text, acoustic, codec, end to end",
    "family": "every model and precision: first audio, cloning, cold start, memory, logit error",
    "gpus": "one engine against an engine for each GPU of the host, under one load",
    "rooms": "rooms of a real media server: gaps, token to ear, speakers at once, both carriers",
}
"""Name of the command to what it measures; the module has its name, with underscores."""


def add_arguments(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Add the choice of a part; its own arguments are read by `run`, which alone imports it."""
    width = max(map(len, PARTS))
    parser.description = "Benchmarks. Run them on an idle machine, one at a time."
    lines = [f"  {name:<{width}}  {told}" for name, told in PARTS.items()]
    more = "`playhead bench PART --help` tells a part's arguments."
    parser.epilog = "\n".join(["parts:", *lines, more])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("part", choices=tuple(PARTS), metavar="PART", help="one of those below")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the part")
    parser.set_defaults(log_level="WARNING")


def run(args: argparse.Namespace) -> int:
    """Run the chosen part; return the exit code. Raises PlayheadErrors."""
    module = importlib.import_module(f"{__name__}.{args.part.replace('-', '_')}")
    parser = argparse.ArgumentParser(
        prog=f"playhead bench {args.part}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(args.arguments))
    return code
