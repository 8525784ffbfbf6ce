"""`playhead download`: fetch a checkpoint from the Hub, check it, and note its tensors' hashes.

A download that broke off is taken up again where it stood, by this process or a later one; whole
files are never fetched twice and are used without a network.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from playhead.engine.errors import CheckpointError
from playhead.engine.models.published import SHORT_NAMES


def add_arguments(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Add the arguments of the command; the token comes from the environment alone."""
    parser.description = (
        "Fetch a checkpoint from the Hub, resumably, and check it: every tensor's name and shape, "
        "every file's SHA-256 against the Hub's."
    )
    parser.add_argument(
        "model", help=f"hub name as owner/model, or one of: {', '.join(SHORT_NAMES)}"
    )
    parser.add_argument("--revision", help="branch, tag or commit; give a commit to pin it")
    parser.add_argument(
        "--offline", action="store_true", help="use what was fetched before, no network"
    )
    parser.set_defaults(token=env.get("HF_TOKEN") or None, log_level="WARNING")


def run(args: argparse.Namespace) -> int:
    """Fetch, check, print the folder; return the exit code. Raises CheckpointError."""
    from playhead.engine.models.census import checkpoint_findings  # torch: slow to import
    from playhead.engine.models.config import read_config
    from playhead.engine.models.hashes import hub_damaged, write_hashes
    from playhead.engine.models.loader import locate_checkpoint

    name = SHORT_NAMES.get(args.model.lower(), args.model)
    if Path(name).is_dir():
        raise CheckpointError(f"{name} is a folder already; playhead verify checks it")
    folder = locate_checkpoint(name, args.revision, args.offline, args.token)
    config = read_config(folder)
    damaged = hub_damaged(folder)
    for path in damaged:
        print(f"wrong: {path} is not the file of the Hub: its SHA-256 differs; removed")
        path.resolve().unlink()
        path.unlink()
    if damaged:
        raise CheckpointError(f"{name}: {len(damaged)} files were damaged; run the command again")
    found = checkpoint_findings(folder, config)
    for finding in found:
        print(f"wrong: {finding}")
    if found:
        raise CheckpointError(
            f"{name}: {len(found)} findings; revision {folder.name} is not the checkpoint that its "
            "config.json describes, take another revision"
        )
    write_hashes(folder)
    print(f"{name}: {config.kind}, {config.size_label}, revision {folder.name}")
    print(folder)
    return 0
