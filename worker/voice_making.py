"""A recording becomes a stored voice: here, or in a process of its own that a server can end.

Run as a module it reads one line of JSON and then the recording, and answers in JSON.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playhead.engine.errors import PlayheadError
from playhead.engine.reference_audio import read_reference
from playhead.engine.voice_store import StoredVoice, VoiceStore

NICENESS = 10
"""Live speech on the same machine goes before a new voice."""


def make_voice(
    store: VoiceStore,
    owner: str,
    name: str,
    recording: bytes,
    model: str,
    transcript: str = "",
    consent: str = "",
) -> StoredVoice:
    """Check a recording, read its voice with a base checkpoint's encoders and keep it.

    With a transcript it is kept for in-context speech. Raises BadReference, InputError for its
    name, CheckpointError where the checkpoint has no encoders, VoiceStoreError.
    """
    reference = read_reference(recording, transcript)
    from playhead.engine.models.cloning import make_clone  # torch: slow to import
    from playhead.engine.models.loader import load_model

    loaded = load_model(model)
    return store.add(
        owner,
        name,
        make_clone(loaded, reference.samples, transcript),
        loaded.voice_fingerprint,
        round(reference.duration_s, 2),
        reference.warnings,
        consent,
    )


def main() -> int:
    """Answer one request on standard input; return the exit code."""
    os.nice(NICENESS)
    asked: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    store = VoiceStore(Path(asked.pop("folder")))
    answer: dict[str, Any]
    try:
        answer = asdict(make_voice(store, recording=sys.stdin.buffer.read(), **asked))
    except PlayheadError as error:
        answer = {"error": str(error), "code": error.code}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
