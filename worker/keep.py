"""PcmKeeper: writes what the engine made of each request to a folder, beside what was heard.

For tests and the demo. It is what was said, so it is off unless asked for. On the room's loop:
a few kilobytes an append.
"""

import re
from pathlib import Path

from playhead.engine.messages import Pcm

SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class PcmKeeper:
    """One file a request, `<request id>.pcm`: signed 16-bit mono at 24 kHz."""

    def __init__(self, folder: Path) -> None:
        """Write into a folder, made if missing."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, request_id: str, chunk: Pcm) -> None:
        """Append a chunk; the first of a request begins its file anew."""
        if SAFE_NAME.fullmatch(request_id):
            mode = "ab" if chunk.start_sample else "wb"
            with (self._folder / f"{request_id}.pcm").open(mode) as file:
                file.write(chunk.pcm)
