"""Formats: PCM in, the bytes of one audio format out, as it comes or as a finished file.

A streamed format is made without ever going back: its WAV header is open-ended, and no index is
written. A file is complete: sizes, sample counts and indexes are true.
"""

import io
import struct
from dataclasses import dataclass
from typing import Protocol

import av
import av.audio
import av.container
import numpy as np

from playhead.engine.units import SAMPLE_BYTES, SAMPLE_RATE_HZ
from playhead.worker.http.tempo import OWN, Tempo

OPEN_ENDED = 0xFFFFFFFF
"""A WAV size that says: until the stream ends."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a response_format is sent."""

    content_type: str
    container: str = ""
    codec: str = ""
    bit_rate: int = 0
    sample_format: str = "s16"


FORMAT_TABLE = {
    "pcm": Format("audio/pcm"),
    "wav": Format("audio/wav"),
    "mp3": Format("audio/mpeg", "mp3", "libmp3lame", 64_000, "s16p"),
    "opus": Format("audio/ogg", "ogg", "libopus", 32_000, "s16"),
    "aac": Format("audio/aac", "adts", "aac", 64_000, "fltp"),
    "flac": Format("audio/flac", "flac", "flac", 0, "s16"),
}
SILENCE_BYTES = 960
"""What a compressed file of nothing holds: 20 ms."""


class Encoder(Protocol):
    """Takes the samples of one utterance in order."""

    def push(self, pcm: bytes) -> bytes:
        """Take samples (s16le mono, 24 kHz); return the bytes that are ready."""

    def end(self) -> bytes:
        """Return the last bytes; for a file, all of them."""


def encoder(response_format: str, *, live: bool, speed: float = OWN) -> Encoder:
    """Return the encoder of a response_format: a stream's if `live`, else a file's."""
    chosen = FORMAT_TABLE[response_format]
    made: Encoder = _Plain(wav=response_format == "wav", live=live)
    if chosen.codec:
        made = _Coded(chosen, live)
    return made if speed == OWN else _Stretched(made, Tempo(speed))


def wav_header(num_bytes: int | None) -> bytes:
    """Return the 44 bytes before PCM; None is a stream whose length nobody knows yet."""
    data_bytes = OPEN_ENDED if num_bytes is None else num_bytes
    riff_bytes = OPEN_ENDED if num_bytes is None else 36 + num_bytes
    rate_bytes = SAMPLE_RATE_HZ * SAMPLE_BYTES
    form = struct.pack("<HHIIHH", 1, 1, SAMPLE_RATE_HZ, rate_bytes, SAMPLE_BYTES, 16)
    riff = struct.pack("<4sI4s4sI", b"RIFF", riff_bytes, b"WAVE", b"fmt ", len(form))
    return riff + form + struct.pack("<4sI", b"data", data_bytes)


class _Plain:
    """PCM, bare or behind a WAV header."""

    def __init__(self, *, wav: bool, live: bool) -> None:
        self._wav = wav
        self._live = live
        self._head = wav_header(None) if wav and live else b""
        self._kept: list[bytes] = []

    def push(self, pcm: bytes) -> bytes:
        if not self._live:
            self._kept.append(pcm)
            return b""
        head, self._head = self._head, b""
        return head + pcm

    def end(self) -> bytes:
        if self._live:
            return self._head
        data = b"".join(self._kept)
        return wav_header(len(data)) + data if self._wav else data


class _Stretched:
    """Another format's samples at another speed."""

    def __init__(self, inner: Encoder, tempo: Tempo) -> None:
        self._inner, self._tempo = inner, tempo

    def push(self, pcm: bytes) -> bytes:
        stretched = self._tempo.push(pcm)
        return self._inner.push(stretched) if stretched else b""

    def end(self) -> bytes:
        rest = self._tempo.end()
        return (self._inner.push(rest) if rest else b"") + self._inner.end()


class _Sink(io.RawIOBase):
    """Where the muxer of a stream writes: it can't go back, and is emptied at once."""

    def __init__(self) -> None:
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(memoryview(data))  # type: ignore[arg-type]  # the muxer hands over buffers
        self._written += part
        return len(part)

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


class _Coded:
    """A compressed format, by the encoders PyAV carries."""

    def __init__(self, chosen: Format, live: bool) -> None:
        self._format = chosen
        self._sink = _Sink() if live else None
        self._file = io.BytesIO()
        self._samples = 0
        self._container = av.open(
            self._file if self._sink is None else self._sink,
            "w",
            format=chosen.container,
            container_options=_stream_options(chosen.container) if live else {},
        )
        self._stream = self._container.add_stream(chosen.codec, rate=SAMPLE_RATE_HZ)
        assert isinstance(self._stream, av.audio.AudioStream)
        self._stream.codec_context.layout = "mono"
        self._stream.codec_context.format = chosen.sample_format
        if chosen.bit_rate:
            self._stream.codec_context.bit_rate = chosen.bit_rate
        self._resampler = av.AudioResampler(chosen.sample_format, "mono", SAMPLE_RATE_HZ)

    def push(self, pcm: bytes) -> bytes:
        samples = np.frombuffer(pcm, "<i2")[None, :]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = SAMPLE_RATE_HZ
        frame.pts = self._samples
        self._samples += samples.shape[1]
        self._encode(frame)
        return self._sink.take() if self._sink is not None else b""

    def end(self) -> bytes:
        # a file without one sample is no file
        head = b"" if self._samples else self.push(bytes(SILENCE_BYTES))
        self._encode(None)
        self._container.close()
        return head + self._sink.take() if self._sink is not None else self._file.getvalue()

    def _encode(self, frame: av.AudioFrame | None) -> None:
        assert isinstance(self._stream, av.audio.AudioStream)
        if frame is not None:
            for converted in self._resampler.resample(frame):
                self._container.mux(self._stream.encode(converted))
        else:
            self._container.mux(self._stream.encode(None))


def _stream_options(container: str) -> dict[str, str]:
    options = {"flush_packets": "1"}
    if container == "mp3":
        options |= {"id3v2_version": "0", "write_xing": "0"}
    if container == "ogg":
        options |= {"page_duration": "100000"}  # a page every 100 ms: first sound early
    return options
