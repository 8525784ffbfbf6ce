"""The `playhead` command: arguments, environment variables, logging, exit codes.

The only place that reads environment variables. Exit codes: 0 all went well, 1 something failed
at run time, 2 the command can't run as given (arguments, configuration, model files).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from playhead.engine.errors import CheckpointError, ConfigError, InputError, PlayheadError
from playhead.worker import (
    bench,
    config_command,
    doctor,
    download,
    logs,
    serve,
    simulate,
    verify,
    voice_command,
    watcher,
)
from playhead.worker.demo import add_arguments as add_demo_arguments
from playhead.worker.demo import run as run_demo
from playhead.worker.engine_process import add_record

if TYPE_CHECKING:
    from playhead.worker.app import WorkerOptions

    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

EXIT_OK, EXIT_FAILURE, EXIT_USAGE = 0, 1, 2
EPILOG = "exit codes: 0 all went well, 1 something failed, 2 the command can't run as given"
DEV_URL = "ws://127.0.0.1:7880"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = build_parser()
    args = parser.parse_args(arguments)
    level, format_ = getattr(args, "log_level", "INFO"), getattr(args, "log_format", "text")
    logs.set_up(level, format_)
    if "log_format" in args:  # chosen by the one who runs it: its children log alike
        os.environ |= {"PLAYHEAD_LOG_LEVEL": level, "PLAYHEAD_LOG_FORMAT": format_}
    if args.command is None:
        parser.print_help()
        return EXIT_USAGE
    try:
        code: int = args.run(args)
        return code
    except (ConfigError, CheckpointError, InputError) as error:
        print(f"playhead: {error}", file=sys.stderr)
        return EXIT_USAGE
    except PlayheadError as error:
        print(f"playhead: {error}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_FAILURE


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="playhead",
        description="A speaking worker for LiveKit rooms: text in, speech out, as it is written.",
        epilog=EPILOG,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_worker(commands)
    _add_say(commands)
    _add_engine(commands)
    for name, module, told in (
        ("serve", serve, "HTTP and WebSocket service, shaped like OpenAI's speech endpoint"),
        ("config", config_command, "show or check profiles: limits and targets of the engine"),
        ("watch", watcher, "give rooms whose worker died a new one"),
        ("bench", bench, "measure this machine: engine, callers under load, first audio"),
        ("doctor", doctor, "say what this machine can run, how, and what is missing"),
        ("simulate", simulate, "the engine in virtual time: what would callers of a device hear"),
        ("download", download, "fetch a checkpoint from the Hub and check it"),
        ("verify", verify, "check a checkpoint: tensors, hashes, speech, reference codes"),
        ("voice", voice_command, "add, list and delete cloned voices"),
    ):
        command = commands.add_parser(name, help=told, epilog=EPILOG)
        module.add_arguments(command, os.environ)
        command.set_defaults(run=module.run)
    demo = commands.add_parser(
        "demo", help="everything on this machine: server, worker, a listener; no keys needed"
    )
    add_demo_arguments(demo)
    demo.set_defaults(run=run_demo)
    version = commands.add_parser("version", help="print versions of playhead and its parts")
    version.set_defaults(run=_run_version)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    env = os.environ
    parser.add_argument(
        "--model",
        default=env.get("PLAYHEAD_MODEL") or None,
        help="checkpoint: a folder or a hub name; default is the embedded English voice "
        "[PLAYHEAD_MODEL]; private hub models need a token [HF_TOKEN]",
    )
    parser.add_argument(
        "--profile",
        default=env.get("PLAYHEAD_PROFILE") or "cpu",
        help="limits and targets of the engine: a built-in name or a .yaml file; default cpu "
        "[PLAYHEAD_PROFILE]",
    )


def _add_process(parser: argparse.ArgumentParser) -> None:
    logs.add_arguments(parser, os.environ)
    parser.add_argument("--parent-pid", type=int, default=0, help=argparse.SUPPRESS)


def _add_worker(commands: "_Commands") -> None:
    env = os.environ
    parser = commands.add_parser(
        "worker",
        help="join LiveKit rooms and speak what agents write there",
        description="Connect to a LiveKit server, take rooms it dispatches, and speak the text "
        "streams on topic playhead.text. Ends after SIGTERM once live rooms have ended.",
        epilog=EPILOG,
    )
    server = parser.add_argument_group("LiveKit server")
    server.add_argument(
        "--url", default=env.get("LIVEKIT_URL") or DEV_URL, help=f"default {DEV_URL} [LIVEKIT_URL]"
    )
    server.add_argument(
        "--api-key", default=env.get("LIVEKIT_API_KEY", ""), help="[LIVEKIT_API_KEY]"
    )
    server.add_argument(
        "--api-secret",
        default=env.get("LIVEKIT_API_SECRET", ""),
        help="[LIVEKIT_API_SECRET]; better there than in a command line others can read",
    )
    server.add_argument(
        "--agent-name",
        default="",
        help="take only rooms that ask for this name; default: every new room",
    )
    _add_model(parser)
    add_record(parser)
    _add_worker_limits(parser)
    _add_process(parser)
    parser.add_argument(
        "--no-supervise", action="store_true", help="do not restart the worker when it breaks"
    )
    parser.set_defaults(run=_run_worker)


def _add_worker_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--carrier",
        choices=("socket", "thread", "process"),
        default="socket",
        help="socket: rooms in one process, the engine in another (default); thread: all in one "
        "process; process: each room a process of its own, the engine another",
    )
    parser.add_argument(
        "--pump",
        choices=("queued", "direct"),
        default="queued",
        help="queued: sound leaves through the SDK's queue (default); direct: frame by frame, so "
        "that receivers stretch the sound where the engine is late",
    )
    parser.add_argument("--max-rooms", type=int, default=40, help="rooms at a time; default 40")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="IDENTITY",
        help="participant that may speak and interrupt in every room, beside agents and the "
        "linked participant; may be given more than once",
    )
    parser.add_argument(
        "--idle-s",
        type=float,
        default=30.0,
        help="close a silent text stream after this; default 30",
    )
    parser.add_argument(
        "--max-chars", type=int, default=100_000, help="most characters of a text; default 100000"
    )
    parser.add_argument(
        "--drain-s",
        type=int,
        default=600,
        help="wait so long for live rooms at the end; default 600",
    )
    _add_worker_edges(parser)


def _add_worker_edges(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address of /health, /ready and /metrics; default 127.0.0.1",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port of /health, /ready and /metrics; default 0: none"
    )
    parser.add_argument(
        "--clock-events",
        action="store_true",
        default=os.environ.get("PLAYHEAD_CLOCK_EVENTS") == "1",
        help="also send where playback stands on playhead.events [PLAYHEAD_CLOCK_EVENTS=1]",
    )
    parser.add_argument(
        "--keep-pcm",
        type=Path,
        metavar="FOLDER",
        help="write what the engine made of each request there, to compare with what was heard",
    )
    parser.add_argument(
        "--no-routing", action="store_true", help="leave the LiveKit SDK as it is: fewer rooms"
    )


def _add_say(commands: "_Commands") -> None:
    parser = commands.add_parser(
        "say",
        help="speak a text into a WAV file or the speakers",
        epilog=EPILOG,
    )
    parser.add_argument("text", help="what to say; - reads it from standard input")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE.wav", help="write this file")
    parser.add_argument("--play", action="store_true", help="play it on this machine")
    parser.add_argument("--voice", help="speaker's name; default: the checkpoint's first")
    parser.add_argument("--language", default="auto", help="default auto")
    parser.add_argument("--instruct", help="how to say it, in words, where the model knows that")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same speech; default 0")
    _add_model(parser)
    parser.set_defaults(run=_run_say, log_level="WARNING")


def _add_engine(commands: "_Commands") -> None:
    parser = commands.add_parser(
        "engine",
        help="run an engine for workers of this machine, on a Unix socket",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--socket",
        type=Path,
        required=True,
        metavar="PATH",
        help="socket to make, in a folder that only you may enter (mode 700)",
    )
    _add_model(parser)
    add_record(parser)
    _add_process(parser)
    parser.set_defaults(run=_run_engine)


def _run_worker(args: argparse.Namespace) -> int:
    from playhead.worker.supervisor import Supervisor, end_with_parent

    if not args.api_key or not args.api_secret:
        raise ConfigError(
            "no key for the LiveKit server; set LIVEKIT_API_KEY and LIVEKIT_API_SECRET "
            "(or try: playhead demo, which needs none)"
        )
    if not args.no_supervise:
        os.environ["LIVEKIT_API_KEY"] = args.api_key  # the child's way to the secrets
        os.environ["LIVEKIT_API_SECRET"] = args.api_secret
        command = [sys.executable, "-m", "playhead.worker.cli", "worker", *_passed_on(args)]
        return Supervisor(command).run()
    if args.parent_pid:
        end_with_parent(args.parent_pid)
    from playhead.worker.app import run_worker  # the agents framework: slow to import

    return run_worker(_worker_options(args))


def _passed_on(args: argparse.Namespace) -> list[str]:
    """Return the arguments of the supervised child; secrets go through its environment."""
    flags = ["--no-supervise", "--parent-pid", str(os.getpid())]
    for name in ("url", "agent_name", "profile", "carrier", "max_rooms", "idle_s", "max_chars"):
        flags += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    for name in ("pump", "drain_s", "host", "port", "log_level", "log_format"):
        flags += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    if args.model is not None:
        flags += ["--model", args.model]
    if args.record is not None:
        flags += ["--record", str(args.record)]
    if args.keep_pcm is not None:
        flags += ["--keep-pcm", str(args.keep_pcm)]
    for identity in args.allow:
        flags += ["--allow", identity]
    flags += ["--clock-events"] * args.clock_events + ["--no-routing"] * args.no_routing
    return flags


def _worker_options(args: argparse.Namespace) -> "WorkerOptions":
    from playhead.worker.app import RoomOptions, WorkerOptions
    from playhead.worker.text_intake import TextLimits

    rooms = RoomOptions(
        limits=TextLimits(idle_s=args.idle_s, max_chars=args.max_chars),
        allow=tuple(args.allow),
        clock_events=args.clock_events,
        keep_pcm=args.keep_pcm,
        routing=not args.no_routing,
        pump=args.pump,
    )
    return WorkerOptions(
        url=args.url,
        api_key=args.api_key,
        api_secret=args.api_secret,
        model=args.model,
        profile=args.profile,
        carrier=args.carrier,
        agent_name=args.agent_name,
        max_rooms=args.max_rooms,
        drain_s=args.drain_s,
        host=args.host,
        port=args.port,
        rooms=rooms,
        trace=args.record,
    )


def _run_say(args: argparse.Namespace) -> int:
    from playhead.worker.say import SayOptions, say

    return say(
        SayOptions(
            text=args.text,
            out=args.out,
            play=args.play,
            voice=args.voice,
            language=args.language,
            instruct=args.instruct,
            seed=args.seed,
            model=args.model,
            profile=args.profile,
        )
    )


def _run_engine(args: argparse.Namespace) -> int:
    from playhead.worker.engine_process import run_engine
    from playhead.worker.supervisor import end_with_parent

    if args.parent_pid:
        end_with_parent(args.parent_pid)
    return run_engine(args.model, args.profile, args.socket, args.record)


def _run_version(_: argparse.Namespace) -> int:
    from importlib.metadata import PackageNotFoundError, version

    for package in ("playhead", "livekit-agents", "livekit", "torch", "transformers"):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package} not installed")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
