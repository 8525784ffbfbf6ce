"""Reference audio: bytes of a recording -> checked mono samples at 24 kHz, or what is wrong.

wav, mp3, ogg, flac and m4a, any rate from 8 to 192 kHz, mono or stereo. The container is told by
its first bytes and no other demuxer is ever tried, so a crafted playlist cannot make the decoder
open files or addresses. Work is bounded: by bytes before, by seconds during decoding. Torch-free.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

from playhead.engine.errors import InputError
from playhead.engine.units import SAMPLE_RATE_HZ

MAX_BYTES = 32 << 20
"""30 s of 192 kHz stereo in 24 bits take 33 MiB; nothing ordinary comes near."""
MIN_S, ADVISED_MIN_S, MAX_S = 1.0, 3.0, 30.0
RATES_HZ = (8_000, 192_000)
MIN_SNR_DB = 25.0
_SILENT_DB = -45.0
"""Level of the loudest twentieth below which nobody speaks."""
_CLIP_LEVEL = 0.99
_CLIP_SHARE = 1e-3
_WINDOW_S = 0.02
_ACTIVE_DB = 25.0
"""Windows less than this below the loud ones hold speech."""
_LETTERS_PER_S = (4.0, 30.0)
"""Letters a second of speech time; ordinary speech has 10 to 20."""
_LETTERS_PER_WIDE = 3.0
"""A Chinese, Japanese or Korean character takes about as long as three letters."""
_SHORT_OF_S = 0.3
"""A file that holds this much less than its header promises was cut off (encoders pad less)."""
_PADDING_S = 0.1
"""Encoders add: 30 s come back from an m4a as 30.05 s."""
_MP3_FRAME_BYTES = 2_048
"""The longest frame has 1,441."""
TAIL_S = 0.5
"""Quiet behind the last sound of a reference that is continued: one that is cut off inside a word
would be finished by the first word of the new speech."""
_WAV_OPTIONS = {"probesize": "4096"}
"""Its header says all; looking for codings within the samples took 8 of the 11 ms of 3 s."""
FORMATS = "wav, mp3, ogg, flac, m4a"


class BadReference(InputError):
    """The reference can't be made a voice; the message says why and what to do."""

    code = "bad_reference"


@dataclass(frozen=True, slots=True)
class Reference:
    """A recording fit to be cloned."""

    samples: NDArray[np.float32]
    """[N] mono in -1..1 at 24 kHz."""
    warnings: tuple[str, ...]
    """What will make the voice worse; nothing that prevents it."""
    tail_samples: int = 0
    """At 24 kHz: what its own end lacks of TAIL_S of quiet."""

    @property
    def duration_s(self) -> float:
        """Length of the recording."""
        return len(self.samples) / SAMPLE_RATE_HZ


def read_reference(data: bytes, transcript: str = "") -> Reference:
    """Decode and check a recording; raises BadReference with the first thing that is wrong."""
    if len(data) > MAX_BYTES:
        raise BadReference(
            f"the reference has {len(data)} bytes, allowed are {MAX_BYTES}; cut it to "
            f"{MAX_S:g} s or less"
        )
    channels, rate_hz = _decode(data)
    _check_samples(channels, rate_hz)
    mono = channels.mean(0, dtype=np.float32)
    levels = _levels_db(mono, rate_hz)
    _check_sound(channels, levels)
    samples = _resample(mono, rate_hz)
    warnings = tuple(_warnings(len(mono) / rate_hz, levels, transcript))
    return Reference(samples, warnings, _tail_samples(levels))


# -- decoding


def _container(data: bytes) -> str:
    """Return the demuxer's name, told by the first bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[4:8] == b"ftyp":
        return "mp4"
    for start, name in ((b"fLaC", "flac"), (b"OggS", "ogg"), (b"ID3", "mp3")):
        if data.startswith(start):
            return name
    if len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0:
        return "mp3"
    raise BadReference(f"the reference is of no known format; allowed are {FORMATS}")


def _decode(data: bytes) -> tuple[NDArray[np.float32], int]:
    """Return samples [channels, N] as recorded, and their rate; at most MAX_S are read."""
    name = _container(data)
    options = _WAV_OPTIONS if name == "wav" else {}
    file = io.BytesIO(data)
    try:
        with av.open(file, "r", format=name, options=options, metadata_errors="replace") as opened:
            if not opened.streams.audio:
                raise BadReference(f"the reference holds no sound; allowed are {FORMATS}")
            stream = opened.streams.audio[0]
            if stream.codec_context is None:
                raise BadReference(
                    f"the reference is in a coding nobody here knows; allowed are {FORMATS}"
                )
            rate_hz, num_channels = stream.rate or 0, stream.channels
            if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
                raise BadReference(
                    f"the reference has {rate_hz} samples a second, allowed are {RATES_HZ[0]} to "
                    f"{RATES_HZ[1]}; save it at 24000"
                )
            if num_channels not in (1, 2):
                raise BadReference(
                    f"the reference has {num_channels} channels; allowed are mono and stereo"
                )
            promised_s, is_told = None, name != "mp3" or _mp3_tells_length(data)
            if is_told and stream.duration is not None and stream.time_base is not None:
                promised_s = float(stream.duration * stream.time_base)
            samples = _frames(opened.decode(stream), rate_hz)
    except (av.error.FFmpegError, ValueError) as error:  # ValueError: the layout changes midway
        raise BadReference(
            f"the reference is damaged or cut off ({name}: {error}); save it again"
        ) from None
    found_s = samples.shape[1] / rate_hz
    missing = promised_s is not None and found_s < promised_s - _SHORT_OF_S
    if missing or _cut_off(name, data):
        told = f" of {promised_s:.1f} s" if missing else ""
        raise BadReference(
            f"the reference is truncated: {found_s:.1f} s{told} are there; send the whole file"
        )
    return samples, rate_hz


def _frames(frames: Iterator[AudioFrame], rate_hz: int) -> NDArray[np.float32]:
    plain = AudioResampler(format="fltp")
    pieces: list[NDArray[np.float32]] = []
    num_samples = 0
    for frame in frames:
        pieces += [out.to_ndarray().astype(np.float32) for out in plain.resample(frame)]
        num_samples += frame.samples
        if num_samples > (MAX_S + _PADDING_S) * rate_hz:
            raise BadReference(
                f"the reference is too long: more than {MAX_S:g} s; cut it to the cleanest "
                f"{ADVISED_MIN_S:g} to {MAX_S:g} s"
            )
    if not pieces:
        raise BadReference("the reference is empty; send a recording of 3 to 30 s")
    return np.concatenate(pieces, 1)


def _mp3_tells_length(data: bytes) -> bool:
    """Its first frame holds the length; else the decoder guesses it from the first frames' rate."""
    at = 0
    if data.startswith(b"ID3"):  # the tag's length has seven bits a byte
        high, upper, lower, low = data[6:10].ljust(4, b"\0")
        at = 10 + (high << 21 | upper << 14 | lower << 7 | low)
    first = data[at : at + _MP3_FRAME_BYTES]
    return any(mark in first for mark in (b"Xing", b"Info", b"VBRI"))


def _cut_off(name: str, data: bytes) -> bool:
    """A file's own structure says that bytes are missing at its end."""
    if name == "wav":
        at = 12
        while at + 8 <= len(data):
            size = int.from_bytes(data[at + 4 : at + 8], "little")
            if data[at : at + 4] == b"data":
                # Streamed files have no length yet: 0 or all ones.
                return size not in (0, 0xFFFFFFFF) and at + 8 + size > len(data)
            at += 8 + size + size % 2
        return True
    if name == "ogg":
        last = data.rfind(b"OggS")
        return not (last + 6 <= len(data) and data[last + 5] & 4)
    return False


def _resample(mono: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    if rate_hz == SAMPLE_RATE_HZ:
        return mono
    frame = AudioFrame.from_ndarray(mono[None], format="fltp", layout="mono")
    frame.sample_rate = rate_hz
    resampler = AudioResampler(format="fltp", layout="mono", rate=SAMPLE_RATE_HZ)
    pieces = [out.to_ndarray()[0] for f in (frame, None) for out in resampler.resample(f)]
    samples: NDArray[np.float32] = np.concatenate(pieces)
    return samples.clip(-1.0, 1.0)


# -- checks


def _check_samples(channels: NDArray[np.float32], rate_hz: int) -> None:
    if not np.isfinite(channels).all():
        raise BadReference("the reference holds values that are no numbers (NaN); save it again")
    duration_s = channels.shape[1] / rate_hz
    if duration_s < MIN_S:
        raise BadReference(
            f"the reference is too short: {duration_s:.2f} s, at least {MIN_S:g} s are needed and "
            f"{ADVISED_MIN_S:g} to {MAX_S:g} s advised"
        )


def _levels_db(mono: NDArray[np.float32], rate_hz: int) -> NDArray[np.float64]:
    """Return the level of each 20 ms window in dB of full scale."""
    width = round(_WINDOW_S * rate_hz)
    windows = mono[: len(mono) // width * width].reshape(-1, width).astype(np.float64)
    power: NDArray[np.float64] = (windows**2).mean(1)
    return 10 * np.log10(np.maximum(power, 1e-12))


def _check_sound(channels: NDArray[np.float32], levels: NDArray[np.float64]) -> None:
    loud_db = float(np.percentile(levels, 95))
    if loud_db < _SILENT_DB:
        raise BadReference(
            f"the reference is silent: its loudest parts are at {loud_db:.0f} dB, speech lies "
            f"above {_SILENT_DB:g} dB; record louder"
        )
    at_limit = np.abs(channels) >= _CLIP_LEVEL
    runs = at_limit[:, 1:] & at_limit[:, :-1]  # a single sample there is no clipping
    share = float(runs.mean())
    if share > _CLIP_SHARE:
        raise BadReference(
            f"the reference is clipped: {100 * share:.1f} % of its samples are at the limit; "
            "record it with less gain"
        )


def _tail_samples(levels: NDArray[np.float64]) -> int:
    """Return the samples at 24 kHz that lack between the last sound and TAIL_S of quiet."""
    active = np.flatnonzero(levels > np.percentile(levels, 95) - _ACTIVE_DB)
    quiet_s = (len(levels) - 1 - int(active[-1])) * _WINDOW_S
    return round(max(TAIL_S - quiet_s, 0.0) * SAMPLE_RATE_HZ)


def _warnings(duration_s: float, levels: NDArray[np.float64], transcript: str) -> Iterator[str]:
    if duration_s < ADVISED_MIN_S:
        yield f"short: {duration_s:.1f} s, {ADVISED_MIN_S:g} to {MAX_S:g} s are advised"
    quiet_db, loud_db = (float(np.percentile(levels, p)) for p in (5, 95))
    if loud_db - quiet_db < MIN_SNR_DB:
        yield (
            f"noisy: speech is {loud_db - quiet_db:.0f} dB above the quietest parts, "
            f"{MIN_SNR_DB:g} dB are advised"
        )
    if transcript.strip():
        speech_s = float((levels > loud_db - _ACTIVE_DB).sum()) * _WINDOW_S
        letters = sum(
            _LETTERS_PER_WIDE if ord(c) >= 0x2E80 else 1.0 for c in transcript if c.isalnum()
        )
        rate = letters / max(speech_s, _WINDOW_S)
        if not _LETTERS_PER_S[0] <= rate <= _LETTERS_PER_S[1]:
            yield (
                f"transcript: {rate:.0f} letters a second of speech is not plausible "
                f"({_LETTERS_PER_S[0]:g} to {_LETTERS_PER_S[1]:g} are); check that it is what the "
                "reference says, word for word"
            )
