"""How long the embedded voice takes to load, and what it holds beyond interpreter and torch.

`python -m tests.bench.voice_load` prints one JSON object. It is a process of its own, because only
a fresh one shows either: torch and psutil come first, then the clock starts. Six requests speak
before the memory is read, so that the state of six streams and what torch keeps is in it.
"""

import json
import time

import psutil
import torch

_PROCESS = psutil.Process()
_MB = 1 << 20
NUM_STREAMS = 6


def rss_mb() -> float:
    """Return this process's resident memory."""
    return float(_PROCESS.memory_info().rss) / _MB


def measure() -> dict[str, float]:
    """Return load time, and memory after loading and after speaking, above that of torch."""
    torch.set_num_threads(1)
    torch.nn.functional.conv1d(torch.zeros(1, 4, 64), torch.zeros(4, 4, 3))  # its own libraries
    before_mb, began_s = rss_mb(), time.perf_counter()
    from playhead.engine.library import open_model

    with open_model() as tts:
        load_s, loaded_mb = time.perf_counter() - began_s, rss_mb()
        streams = [
            tts.stream("Thanks for calling. How can I help you today?", seed=seed)
            for seed in range(NUM_STREAMS)
        ]
        for pieces in zip(*streams, strict=False):
            assert all(pieces)
        spoken_mb = rss_mb()
    return {
        "load_s": round(load_s, 2),
        "load_mb": round(loaded_mb - before_mb, 1),
        "memory_mb": round(spoken_mb - before_mb, 1),
        "torch_mb": round(before_mb, 1),
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
