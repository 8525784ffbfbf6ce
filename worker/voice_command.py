"""`playhead voice`: add, list and delete cloned voices of this machine.

Adding reads the recording through the encoders of a base checkpoint once; speaking needs only
the name. Everything added here belongs to the local owner.
"""

import argparse
import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from playhead.engine.errors import ConfigError, InputError
from playhead.engine.reference_audio import FORMATS, MAX_BYTES
from playhead.engine.voice_store import LOCAL_OWNER, StoredVoice, VoiceStore
from playhead.worker.voice_process import VoiceProcess

DESCRIPTION = (
    "Cloned voices of this machine. Clone a voice only with its speaker's consent; docs/voices.md "
    "says what else to mind."
)


def add_arguments(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Add the arguments of the command and its three actions."""
    parser.description = DESCRIPTION
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="make a voice of a recording")
    add.add_argument("name", help="what requests call it: a to z, digits, '_', '-', '.'")
    add.add_argument("recording", type=Path, help=f"{FORMATS}; 3 to 30 s of one clean voice")
    add.add_argument(
        "--transcript",
        default="",
        help="what the recording says, word for word: keeps its codes for in-context cloning",
    )
    add.add_argument("--consent", default="", help="who agreed to this voice: kept with it")
    add.add_argument(
        "--model",
        default=env.get("PLAYHEAD_MODEL") or None,
        help="base checkpoint: folder or hub name [PLAYHEAD_MODEL]",
    )
    listing = actions.add_parser("list", help="show the voices")
    delete = actions.add_parser("delete", help="forget a voice")
    delete.add_argument("name")
    for action in (add, listing, delete):
        action.add_argument("--store", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    parser.set_defaults(log_level="WARNING")


def run(args: argparse.Namespace) -> int:
    """Run the action; return the exit code. Raises PlayheadErrors."""
    store = VoiceStore(args.store)
    if args.action == "add":
        _add(store, args)
    elif args.action == "list":
        _list(store)
    else:
        store.delete(LOCAL_OWNER, args.name)
        print(f"deleted {args.name}")
    return 0


def _add(store: VoiceStore, args: argparse.Namespace) -> None:
    if args.model is None:
        raise ConfigError("no checkpoint; give --model, a base one, or set PLAYHEAD_MODEL")
    voice = asyncio.run(_made(store, args, _read(args.recording)))
    for warning in voice.warnings:
        print(f"warning: {warning}")
    print(f"added {voice.name} ({voice.id[:12]}) from {voice.reference_s:.1f} s")


async def _made(store: VoiceStore, args: argparse.Namespace, recording: bytes) -> StoredVoice:
    process = VoiceProcess(args.model)
    try:
        return await process.make(
            store, LOCAL_OWNER, args.name, recording, args.transcript, args.consent
        )
    finally:
        await process.close()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from None


def _list(store: VoiceStore) -> None:
    voices = store.voices(LOCAL_OWNER)
    if not voices:
        print(f"no voices in {store.folder}; playhead voice add NAME FILE makes one")
    for voice in voices:
        made = datetime.fromtimestamp(voice.created_s, UTC).strftime("%Y-%m-%d")
        kept = "vector and codes" if voice.in_context else "vector"
        told = "".join(f"; {warning}" for warning in voice.warnings)
        print(f"{voice.name:24} {voice.id[:12]}  {made}  {voice.reference_s:5.1f} s  {kept}{told}")
