"""Hashes of a checkpoint: what tells a swapped or changed tensor, where shapes tell nothing.

Two sources, both made elsewhere than here and now: a list beside the checkpoint, written when it
was trusted, and the Hub's own SHA-256 of each large file, which names the file in its cache.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import BinaryIO

from playhead.engine.errors import CheckpointError
from playhead.engine.models.census import SPEECH_FOLDER, read_header, weight_files

LIST_NAME = "playhead-hashes.json"
SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOCK_BYTES = 1 << 22


def tensor_hashes(folder: Path) -> dict[str, str]:
    """Return each tensor's SHA-256 over dtype, shape and bytes, both weight files together."""
    found: dict[str, str] = {}
    for path in [*weight_files(folder), *weight_files(folder / SPEECH_FOLDER)]:
        where = path.parent.name if path.parent != folder else ""
        table, data_bytes = read_header(path)
        start = path.stat().st_size - data_bytes
        with path.open("rb") as file:
            for name, entry in table.items():
                first, end = entry["data_offsets"]
                about = json.dumps([entry["dtype"], entry["shape"]])
                digest = hashlib.sha256(about.encode())
                _feed(digest, file, start + first, end - first)
                found[f"{where}/{name}" if where else name] = digest.hexdigest()
    return found


def write_hashes(folder: Path) -> Path:
    """Write the list beside the checkpoint; CheckpointError when the folder can't be written."""
    path = folder / LIST_NAME
    try:
        path.write_text(json.dumps(tensor_hashes(folder), indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise CheckpointError(f"{path} can't be written: {error.strerror}") from None
    return path


def has_list(folder: Path) -> bool:
    """Tell whether a list stands beside the checkpoint."""
    return (folder / LIST_NAME).is_file()


def list_findings(folder: Path) -> list[str]:
    """Return what differs from the list beside the checkpoint; CheckpointError without one."""
    try:
        wanted = json.loads((folder / LIST_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / LIST_NAME} can't be read: {error}") from None
    found = tensor_hashes(folder)
    wrong = [
        f"tensor {name} is not the one of the list"
        for name, digest in found.items()
        if name in wanted and wanted[name] != digest
    ]
    wrong += [f"tensor {name} is not in the list" for name in found if name not in wanted]
    return wrong + [f"tensor {name} of the list is missing" for name in wanted if name not in found]


def hub_files(folder: Path) -> list[Path]:
    """Return the weight files whose SHA-256 the Hub's cache tells by the file they point to."""
    files = [*weight_files(folder), *weight_files(folder / SPEECH_FOLDER)]
    return [path for path in files if path.is_symlink() and SHA256.fullmatch(path.resolve().name)]


def hub_damaged(folder: Path) -> list[Path]:
    """Return the files that are not what the Hub sent."""
    wrong = []
    for path in hub_files(folder):
        digest = hashlib.sha256()
        with path.open("rb") as file:
            _feed(digest, file, 0, path.stat().st_size)
        if digest.hexdigest() != path.resolve().name:
            wrong.append(path)
    return wrong


def _feed(digest: "hashlib._Hash", file: BinaryIO, start: int, num_bytes: int) -> None:
    """Hash a span of a file block by block: tensors may be larger than memory allows twice."""
    file.seek(start)
    while num_bytes:
        block = file.read(min(num_bytes, _BLOCK_BYTES))
        if not block:
            raise CheckpointError(f"{file.name} is cut off; download it again")
        digest.update(block)
        num_bytes -= len(block)
