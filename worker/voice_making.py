"""Recordings become stored voices, in a process of its own that loads its encoders once.

Run as a module it reads a line of JSON, the checkpoint and the device; then for each voice a line
and the recording's bytes. It answers each with a line: first that it has loaded. A file that
breaks a decoder ends this process and nothing else. VoiceProcess is its other side.
"""

import contextlib
import io
import json
import os
import resource
import sys
import wave
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from playhead.engine.errors import PlayheadError
from playhead.engine.reference_audio import MAX_S, BadReference, read_reference
from playhead.engine.units import SAMPLE_BYTES, SAMPLE_RATE_HZ
from playhead.engine.voice_store import StoredVoice, VoiceStore

if TYPE_CHECKING:
    from playhead.engine.models.loader import Model

NICENESS = 10
"""Live speech on the same machine goes before a new voice."""
HEADROOM_BYTES = 4 << 30
"""Of memory beyond what the loaded encoders take, on the host and, in all, on a GPU."""
CORES_A_THREAD, MOST_THREADS = 4, 4
"""Threads of an encoder wait for each other awake: on two cores that others used, two of them made
a voice ten times slower than one."""
KEPT_BYTES = 1 << 30
"""Of GPU memory between two recordings."""
WARM_S = (1.0, 3.0, 10.0, MAX_S)
"""Encoded on a GPU before the first recording: a kernel is loaded when it is first used."""


def load_encoders(model: str, device: str) -> "Model":
    """Load what reads a voice out of a recording onto a device (device.choose_device), ready.

    Raises CheckpointError, which names what is missing, and ConfigError for the device.
    """
    import torch

    from playhead.engine.device import choose_device
    from playhead.engine.models.cloning import make_clone
    from playhead.engine.models.loader import Model, load_model

    found = load_model(model)
    name = choose_device(device, found.config).device
    loaded = Model(found.folder, found.config, torch.device(name), torch.float32)
    on_gpu = loaded.device.type == "cuda"
    if on_gpu:
        # cuDNN plans each shape anew, and every recording has another length.
        torch.backends.cudnn.enabled = False
        total_bytes = torch.cuda.get_device_properties(loaded.device).total_memory
        share = min(HEADROOM_BYTES / total_bytes, 1.0)
        torch.cuda.set_per_process_memory_fraction(share, loaded.device)
    assert loaded.voice_fingerprint
    for length_s in WARM_S if on_gpu else WARM_S[:1]:
        make_clone(loaded, np.zeros(int(length_s * SAMPLE_RATE_HZ), np.float32), "warm")
    with contextlib.suppress(BadReference):
        read_reference(_silent_wav())
    return loaded


def _silent_wav() -> bytes:
    """Return a file that goes through the decoder and is refused."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(SAMPLE_BYTES)
        out.setframerate(SAMPLE_RATE_HZ)
        out.writeframes(bytes(2 * SAMPLE_RATE_HZ * SAMPLE_BYTES))
    return file.getvalue()


def make_voice(
    encoders: "Model",
    store: VoiceStore,
    owner: str,
    name: str,
    recording: bytes,
    transcript: str = "",
    consent: str = "",
) -> StoredVoice:
    """Check a recording, read its voice and keep it; with a transcript for in-context speech.

    Raises BadReference, VoiceExists, InputError for its name, VoiceStoreError.
    """
    from playhead.engine.models.cloning import make_clone

    reference = read_reference(recording, transcript)
    return store.add(
        owner,
        name,
        make_clone(encoders, reference.samples, transcript, reference.tail_samples),
        encoders.voice_fingerprint,
        round(reference.duration_s, 2),
        reference.warnings,
        consent,
    )


def _bound_memory() -> None:
    """Let one recording take so much and no more: beyond it this process fails alone."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        most = pages * resource.getpagesize() + HEADROOM_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _bound_threads() -> None:
    """Leave most of the machine to live speech."""
    import torch

    torch.set_num_threads(min(max((os.cpu_count() or 1) // CORES_A_THREAD, 1), MOST_THREADS))


def _release_memory(encoders: "Model") -> None:
    """Give memory back that a long recording took on a GPU, once its caller has the answer."""
    if encoders.device.type == "cuda":
        import torch

        if torch.cuda.memory_reserved(encoders.device) > KEPT_BYTES:
            torch.cuda.empty_cache()


def main() -> int:
    """Answer requests on standard input until it ends; return the exit code."""
    os.nice(NICENESS)
    answers, requests = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)  # what a library prints is no answer

    def answer(said: dict[str, Any]) -> None:
        answers.write(json.dumps(said).encode() + b"\n")
        answers.flush()

    _bound_threads()
    try:
        encoders = load_encoders(**json.loads(requests.readline()))
    except PlayheadError as error:
        answer({"error": str(error), "code": error.code})
        return 1
    _bound_memory()
    answer({})
    while line := requests.readline():
        asked: dict[str, Any] = json.loads(line)
        store, num_bytes = VoiceStore(Path(asked.pop("folder"))), asked.pop("num_bytes")
        recording = requests.read(num_bytes)
        if len(recording) < num_bytes:
            break  # who asked is gone
        try:
            answer(asdict(make_voice(encoders, store, recording=recording, **asked)))
        except PlayheadError as error:
            answer({"error": str(error), "code": error.code})
        _release_memory(encoders)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
