"""Formats: what comes out decodes to what went in, as a file and as a stream."""

import io
import struct

import av
import numpy as np
import pytest

from playhead.worker.http.formats import FORMAT_TABLE, encoder, wav_header

NUM_SAMPLES = 24_000
PCM = (np.sin(np.arange(NUM_SAMPLES) * 2 * np.pi * 440 / 24_000) * 8000).astype("<i2").tobytes()
CHUNKS = [PCM[i : i + 3840] for i in range(0, len(PCM), 3840)]
PADDING_SAMPLES = 2_400
"""Encoders pad to whole frames; files of those that can say so are exact."""


def decoded(data: bytes) -> tuple[int, float]:
    """Return samples at 24 kHz and the loudest."""
    with av.open(io.BytesIO(data)) as container:
        resampler = av.AudioResampler("s16", "mono", 24_000)
        parts = [
            part.to_ndarray()
            for frame in container.decode(audio=0)
            for part in resampler.resample(frame)
        ]
    return sum(each.shape[1] for each in parts), max(float(np.abs(each).max()) for each in parts)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("name", [name for name in FORMAT_TABLE if name != "pcm"])
def test_audio_survives_a_format(name: str, live: bool) -> None:
    made = encoder(name, live=live)
    parts = [made.push(chunk) for chunk in CHUNKS]
    num_samples, loudest = decoded(b"".join(parts) + made.end())
    assert NUM_SAMPLES - 960 <= num_samples <= NUM_SAMPLES + PADDING_SAMPLES
    assert 6000 < loudest < 10000


@pytest.mark.parametrize("name", FORMAT_TABLE)
def test_a_stream_begins_before_its_end_and_a_file_does_not(name: str) -> None:
    stream, file = encoder(name, live=True), encoder(name, live=False)
    assert any(stream.push(chunk) for chunk in CHUNKS[:4])
    assert not any(file.push(chunk) for chunk in CHUNKS)


def test_wav_says_its_length_when_complete_and_is_open_ended_when_streamed() -> None:
    file = encoder("wav", live=False)
    file.push(PCM)
    data = file.end()
    assert struct.unpack_from("<I", data, 4)[0] == len(data) - 8
    assert struct.unpack_from("<I", data, 40)[0] == len(PCM) == len(data) - 44
    head = encoder("wav", live=True).push(PCM)[:44]
    assert struct.unpack_from("<I", head, 40)[0] == 0xFFFFFFFF
    assert struct.unpack_from("<IHHIIHH", head, 16) == (16, 1, 1, 24_000, 48_000, 2, 16)
    assert len(wav_header(0)) == 44


@pytest.mark.parametrize("name", ["wav", "mp3", "opus", "aac", "flac"])
def test_nothing_spoken_is_still_a_file(name: str) -> None:
    data = encoder(name, live=False).end()
    with av.open(io.BytesIO(data)) as container:
        assert container.streams.audio[0].codec_context.sample_rate in (24_000, 48_000)
