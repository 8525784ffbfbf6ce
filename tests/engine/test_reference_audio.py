"""Reference audio: every format comes out the same, every fault is told."""

import io
import struct

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from playhead.engine.reference_audio import (
    MAX_BYTES,
    TAIL_S,
    BadReference,
    Reference,
    read_reference,
)
from tests.voices import TRANSCRIPT, as_float, reference_wave

DURATION_S = 4.0
NUM_DAMAGED = 25
CODECS = {"wav": "pcm_s16le", "mp3": "libmp3lame", "ogg": "libopus", "flac": "flac", "m4a": "aac"}
MUXERS = {"m4a": "ipod"}


def encoded(
    channels: NDArray[np.int16],
    rate_hz: int,
    kind: str,
    codec: str | None = None,
    *,
    told: bool = True,
    rate_varies: bool = False,
) -> bytes:
    """Encode samples [C, N] with the real encoders; an mp3 may keep its length to itself."""
    out = io.BytesIO()
    layout = "stereo" if len(channels) == 2 else "mono"
    options = {} if told else {"write_xing": "0"}
    with av.open(out, "w", format=MUXERS.get(kind, kind), options=options) as file:
        stream = file.add_stream(codec or CODECS[kind], rate=rate_hz, layout=layout)
        if rate_varies:
            stream.codec_context.options = {"flags": "+qscale", "global_quality": "472"}
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(channels.T.reshape(1, -1)), format="s16", layout=layout
        )
        frame.sample_rate = rate_hz
        resampler = av.AudioResampler(
            format=stream.format, layout=layout, rate=rate_hz, frame_size=stream.frame_size or 1024
        )
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            file.mux(stream.encode(piece))
        file.mux(stream.encode(None))
    return out.getvalue()


def wav_of(samples: NDArray[np.float32], rate_hz: int = 24_000) -> bytes:
    """Return a 32-bit float WAV file, mono."""
    data = samples.astype("<f4").tobytes()
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, rate_hz, rate_hz * 4, 4, 32)
    body = b"WAVE" + head + struct.pack("<4sI", b"data", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def voice(rate_hz: int = 24_000, duration_s: float = DURATION_S) -> NDArray[np.int16]:
    return reference_wave(1, duration_s, rate_hz)


def similarity(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Return the largest normalised correlation over small shifts (encoder delays)."""
    n = min(len(a), len(b)) - 4_000
    a = a[2_000 : 2_000 + n]
    best = 0.0
    for shift in range(0, 4_001):
        piece = b[shift : shift + n]
        if len(piece) < n:
            break
        if shift % 8 and best < 0.5:
            continue
        best = max(best, float(a @ piece / np.sqrt((a @ a) * (piece @ piece) + 1e-9)))
    return best


@pytest.mark.parametrize("rate_hz", [24_000, 44_100])
@pytest.mark.parametrize("quiet_s", [0.0, 0.2, 0.48, 0.5, 1.5])
def test_tail_when_the_end_is_quiet_for_some_time(quiet_s: float, rate_hz: int) -> None:
    spoken = as_float(voice(rate_hz))
    loud = np.flatnonzero(np.abs(spoken) > 0.5 * np.abs(spoken).max())[-1]
    quiet = np.full(round(quiet_s * rate_hz), 1e-4, np.float32)
    read = read_reference(wav_of(np.concatenate([spoken[:loud], quiet]), rate_hz))
    lacks_s = max(TAIL_S - quiet_s, 0.0)
    assert abs(read.tail_samples / 24_000 - lacks_s) < 0.021, "within a window"
    assert read.duration_s == pytest.approx(loud / rate_hz + quiet_s, abs=0.01)


@pytest.mark.parametrize("kind", CODECS)
def test_samples_when_of_any_format(kind: str) -> None:
    rate_hz = 48_000 if kind == "ogg" else 44_100
    mono = voice(rate_hz)
    wanted = read_reference(wav_of(as_float(mono), rate_hz)).samples
    for channels in (mono[None], np.stack([mono, mono])):
        got = read_reference(encoded(channels, rate_hz, kind))
        assert abs(got.duration_s - DURATION_S) < 0.1
        assert got.samples.dtype == np.float32
        assert similarity(wanted, got.samples) > (0.999 if kind in ("wav", "flac") else 0.9)


@pytest.mark.parametrize(
    "rate_hz", [8_000, 11_025, 16_000, 22_050, 24_000, 48_000, 96_000, 192_000]
)
def test_samples_when_of_any_rate(rate_hz: int) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(2 * rate_hz) / rate_hz).astype(np.float32) * 0.3
    tone[: rate_hz // 2] = 0.0
    got = read_reference(wav_of(tone, rate_hz))
    assert abs(len(got.samples) - 48_000) <= 32
    steady = got.samples[24_000:46_000]
    wanted = np.sin(2 * np.pi * 440 * (np.arange(22_000) + 24_000) / 24_000) * 0.3
    spectrum = np.abs(np.fft.rfft(steady * np.hanning(len(steady))))
    assert abs(int(spectrum.argmax()) * 24_000 / len(steady) - 440) < 2
    assert abs(np.abs(steady).max() - np.abs(wanted).max()) < 0.01


def test_stereo_when_channels_differ_is_their_mean() -> None:
    left, right = reference_wave(1, 2.0), reference_wave(2, 2.0)
    got = read_reference(encoded(np.stack([left, right]), 24_000, "wav"))
    np.testing.assert_allclose(got.samples, (as_float(left) + as_float(right)) / 2, atol=1e-6)


def test_warnings_when_there_is_nothing_to_warn_of() -> None:
    assert read_reference(wav_of(as_float(voice())), TRANSCRIPT).warnings == ()


def noisy() -> NDArray[np.float32]:
    return as_float(voice()) + np.random.RandomState(0).normal(0, 0.02, 96_000).astype(np.float32)


@pytest.mark.parametrize(
    ("samples", "transcript", "told"),
    [
        (noisy(), "", r"^noisy: speech is 1\d dB above"),
        (as_float(voice(duration_s=2.0)), "", r"^short: 2\.0 s"),
        (as_float(voice()), "no", r"^transcript: [01] letters a second"),
        (as_float(voice()), TRANSCRIPT * 9, r"^transcript: \d\d\d? letters a second"),
        (as_float(voice()), "语" * 80, r"^transcript: \d\d\d? letters a second"),
    ],
    ids=["noisy", "short", "slow", "fast", "fast wide"],
)
def test_warnings_when_the_voice_will_suffer(
    samples: NDArray[np.float32], transcript: str, told: str
) -> None:
    got = read_reference(wav_of(samples), transcript)
    assert len(got.warnings) == 1
    with pytest.raises(BadReference, match=told):
        raise BadReference(got.warnings[0])


def with_nan() -> NDArray[np.float32]:
    samples = as_float(voice())
    samples[777] = np.nan
    return samples


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (wav_of(as_float(voice(duration_s=0.5))), r"too short: 0\.50 s, at least 1 s"),
        (wav_of(as_float(voice(duration_s=30.5))), r"too long: more than 30 s; cut it"),
        (wav_of((as_float(voice()) * 9).clip(-1, 1)), r"clipped: \d\d\.\d % of its samples"),
        (wav_of(as_float(voice()) * 0.001), r"silent: its loudest parts are at -\d+ dB"),
        (wav_of(np.zeros(48_000, np.float32)), r"silent"),
        (wav_of(with_nan()), r"values that are no numbers \(NaN\)"),
        (wav_of(as_float(voice()))[:-40_000], r"truncated: \d\.\d s.* are there"),
        (wav_of(as_float(voice(4_000)), 4_000), r"4000 samples a second, allowed are 8000 to"),
        (wav_of(np.zeros(0, np.float32)), r"empty|damaged"),
        (b"", r"no known format; allowed are wav, mp3, ogg, flac, m4a"),
        (b"#EXTM3U\n#EXT-X-TARGETDURATION:1\nfile:///etc/hostname\n", r"no known format"),
        (b"RIFF\0\0\0\0WAVEjunk", r"damaged or cut off|truncated"),
        (b"\0" * (MAX_BYTES + 1), r"allowed are \d+; cut it to 30 s"),
    ],
    ids=["short", "long", "clipped", "quiet", "zeros", "nan", "cut wav", "rate", "no samples",
         "no bytes", "playlist", "junk", "large"],
)  # fmt: skip
def test_reference_when_something_is_wrong(data: bytes, told: str) -> None:
    with pytest.raises(BadReference, match=told):
        read_reference(data)


@pytest.mark.parametrize("kind", CODECS)
def test_reference_when_cut_off(kind: str) -> None:
    rate_hz = 48_000 if kind == "ogg" else 44_100
    whole = encoded(voice(rate_hz)[None], rate_hz, kind)
    read_reference(whole)
    with pytest.raises(BadReference, match=r"truncated|damaged or cut off"):
        read_reference(whole[: len(whole) * 6 // 10])


@pytest.mark.parametrize("kind", CODECS)
def test_reference_when_of_the_longest_that_is_allowed(kind: str) -> None:
    """What encoders put around it makes it no longer than that."""
    rate_hz = 48_000 if kind == "ogg" else 44_100
    told = kind != "mp3"  # the length in its header would take the padding off
    read = read_reference(encoded(voice(rate_hz, 30.0)[None], rate_hz, kind, told=told))
    assert 30.0 <= read.duration_s < 30.1
    with pytest.raises(BadReference, match="too long"):
        read_reference(encoded(voice(rate_hz, 30.2)[None], rate_hz, kind, told=told))


@pytest.mark.parametrize("tag_bytes", [None, 0, 100_000])
def test_mp3_when_it_tells_no_length_is_no_cut_one(tag_bytes: int | None) -> None:
    """Quiet first, the rate of its first frames promises a third more than there is."""
    quiet = np.random.RandomState(0).randint(-2, 3, 88_200).astype(np.int16)
    samples = np.concatenate([quiet, reference_wave(1, 6.0, 44_100)])[None]
    data = encoded(samples, 44_100, "mp3", told=False, rate_varies=True)
    if tag_bytes is not None:  # as of a picture
        start = data.index(b"\xff\xfb")
        size = bytes((tag_bytes >> shift) & 127 for shift in (21, 14, 7, 0))
        data = b"ID3\4\0\0" + size + b"Info".ljust(tag_bytes, b"\0")[:tag_bytes] + data[start:]
    assert abs(read_reference(data).duration_s - 8.0) < 0.1
    whole = encoded(samples, 44_100, "mp3", rate_varies=True)
    with pytest.raises(BadReference, match=r"truncated: \d\.\d s of 8\.0 s"):
        read_reference(whole[: len(whole) * 6 // 10])


def test_reference_when_bytes_are_scrambled_fails_cleanly() -> None:
    """Damage anywhere ends in a reference or in BadReference, never in another error."""
    draw = np.random.RandomState(3)
    outcomes: list[Reference | BadReference] = []
    for kind in CODECS:
        whole = encoded(voice(48_000, 2.0)[None], 48_000, kind)
        for _ in range(NUM_DAMAGED):
            broken = bytearray(whole)
            for at in draw.randint(12, len(whole), 40):
                broken[at] = int(draw.randint(0, 256))
            try:
                outcomes.append(read_reference(bytes(broken)))
            except BadReference as error:
                outcomes.append(error)
    assert len(outcomes) == NUM_DAMAGED * len(CODECS)
