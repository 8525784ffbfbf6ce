"""Tempo: speech faster or slower at its own pitch, as it comes."""

import contextlib
import math

import av
import av.error
import av.filter
import numpy as np

from playhead.engine.units import SAMPLE_BYTES, SAMPLE_RATE_HZ

SLOWEST, FASTEST = 0.25, 4.0
"""What OpenAI's speech endpoint allows."""
OWN = 1.0
"""The speed at which the model speaks."""
_STEP = 2.0
"""FFmpeg's atempo goes down to 0.5, and above 2.0 it leaves samples out instead of mixing."""
_PIECE_BYTES = SAMPLE_RATE_HZ // 50 * SAMPLE_BYTES
"""The filter keeps the newest piece it was given back, so it is given small ones, all of 20 ms:
what comes out does not depend on how the samples came."""


class Tempo:
    """Stretches the samples of one utterance by FFmpeg's atempo filter (overlap and add).

    What comes out is 1 / `speed` times as long, but for 0.1 s at most, up to 0.2 s later.
    """

    def __init__(self, speed: float) -> None:
        """Take a speed from 0.25 to 4.0; raises ValueError for another one."""
        if not SLOWEST <= speed <= FASTEST:
            raise ValueError(f"speed is {speed}, allowed is {SLOWEST} to {FASTEST}")
        steps = max(math.ceil(abs(math.log(speed, _STEP)) - 1e-9), 1)
        self._graph = av.filter.Graph()
        self._graph.threads = 1  # FFmpeg's own choice is a pool for each graph
        source = self._graph.add_abuffer(
            sample_rate=SAMPLE_RATE_HZ, format="s16", layout="mono", channels=1
        )
        filters = [self._graph.add("atempo", f"{speed ** (1 / steps):.9f}") for _ in range(steps)]
        self._graph.link_nodes(source, *filters, self._graph.add("abuffersink")).configure()
        self._num_samples, self._rest = 0, b""

    def push(self, pcm: bytes) -> bytes:
        """Take samples (s16le mono, 24 kHz); return those that are ready."""
        self._rest += pcm
        whole = len(self._rest) - len(self._rest) % _PIECE_BYTES
        for start in range(0, whole, _PIECE_BYTES):
            self._push(self._rest[start : start + _PIECE_BYTES])
        self._rest = self._rest[whole:]
        return self._ready()

    def end(self) -> bytes:
        """Return the last samples."""
        if self._rest:
            self._push(self._rest)
        if not self._num_samples:
            return b""
        self._graph.push(None)
        return self._ready()

    def _push(self, pcm: bytes) -> None:
        samples = np.frombuffer(pcm, "<i2")[None, :]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate, frame.pts = SAMPLE_RATE_HZ, self._num_samples
        self._num_samples += samples.shape[1]
        self._graph.push(frame)

    def _ready(self) -> bytes:
        parts = []
        with contextlib.suppress(av.error.BlockingIOError, av.error.EOFError):
            while True:
                frame = self._graph.pull()
                assert isinstance(frame, av.AudioFrame)
                parts.append(frame.to_ndarray().astype("<i2").tobytes())
        return b"".join(parts)
