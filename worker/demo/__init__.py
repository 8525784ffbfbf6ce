"""`playhead demo`: server, worker, scripted language model and listener on loopback."""

import argparse
import os


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `playhead demo`."""
    parser.add_argument("--once", action="store_true", help="speak once, judge what was heard, end")
    parser.add_argument("--text", metavar="FILE", help="speak the text of this file instead")
    parser.add_argument("--seed", type=int, default=7, help="seed of the voice (default 7)")
    parser.add_argument("--token-ms", type=float, default=30.0, help="time between tokens")
    parser.add_argument("--port", type=int, default=0, help="port of the caller page (default any)")
    parser.add_argument("--out", metavar="FOLDER", default=".", help="folder of demo.wav, demo.png")
    parser.add_argument(
        "--worker-limit-s", type=float, default=90.0, help="wait so long for the worker; default 90"
    )
    for flag, variable in (
        ("--url", "LIVEKIT_URL"),
        ("--api-key", "LIVEKIT_API_KEY"),
        ("--api-secret", "LIVEKIT_API_SECRET"),
    ):
        default = os.environ.get(variable, "")
        parser.add_argument(flag, default=default, help=f"server to use instead; {variable}")
    parser.set_defaults(log_level="ERROR")  # the table is what one looks at


def run(args: argparse.Namespace) -> int:
    """Run the demo; return the exit code."""
    from playhead.worker.demo.show import run_demo  # heavy imports stay out of `playhead --help`

    return run_demo(args)
