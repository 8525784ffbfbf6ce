"""Another speed: the same speech in less or more time, at its own pitch."""

import io
import os
import wave
from typing import Any

import httpx
import numpy as np
import pytest

from playhead.worker.http.formats import encoder
from playhead.worker.http.pace import ClientClock, Pacer
from playhead.worker.http.tempo import Tempo
from tests.worker.http.conftest import Served

RATE_HZ, SECONDS, TONE_HZ = 24_000, 2, 220
TONE = (8_000 * np.sin(np.arange(RATE_HZ * SECONDS) * 2 * np.pi * TONE_HZ / RATE_HZ)).astype("<i2")


def stretched(speed: float, chunk: int) -> bytes:
    tempo = Tempo(speed)
    parts = [tempo.push(TONE[i : i + chunk].tobytes()) for i in range(0, len(TONE), chunk)]
    return b"".join(parts) + tempo.end()


@pytest.mark.parametrize("speed", [0.25, 0.4, 0.9, 1.1, 2.0, 3.0, 4.0])
def test_length_follows_the_speed_and_pitch_stays(speed: float) -> None:
    whole = stretched(speed, len(TONE))
    assert stretched(speed, 1_920) == stretched(speed, 777) == whole
    samples = np.frombuffer(whole, "<i2")
    assert abs(len(samples) / RATE_HZ - SECONDS / speed) < 0.1
    found = np.abs(np.fft.rfft(samples)).argmax() * RATE_HZ / len(samples)
    assert abs(found - TONE_HZ) < 2
    assert 7_000 < np.abs(samples).max() < 9_000


@pytest.mark.parametrize("speed", [0.5, 4.0])
def test_sound_comes_before_its_end(speed: float) -> None:
    tempo = Tempo(speed)
    pushed = 0
    while not tempo.push(TONE[pushed : pushed + 240].tobytes()):
        pushed += 240
    assert pushed <= 0.2 * RATE_HZ


def test_no_stream_brings_threads_of_its_own() -> None:
    tempos = [Tempo(1.5) for _ in range(4)]
    before = len(os.listdir("/proc/self/task"))
    tempos += [Tempo(3.0) for _ in range(8)]
    assert all(tempo.push(TONE.tobytes()) for tempo in tempos)
    assert len(os.listdir("/proc/self/task")) <= before


def test_nothing_in_nothing_out() -> None:
    tempo = Tempo(2.0)
    assert tempo.push(b"") == tempo.end() == b""
    with pytest.raises(ValueError, match=r"speed is 4\.1, allowed is 0\.25 to 4\.0"):
        Tempo(4.1)


def test_a_stream_in_a_format_is_stretched_as_its_file_is() -> None:
    stream, file = (encoder("wav", live=live, speed=1.5) for live in (True, False))
    chunks = [TONE[i : i + 1_920].tobytes() for i in range(0, len(TONE), 1_920)]
    streamed = b"".join(stream.push(chunk) for chunk in chunks) + stream.end()
    assert not any(file.push(chunk) for chunk in chunks)
    assert streamed[44:] == file.end()[44:] == stretched(1.5, 1_920)


def test_the_clock_of_a_faster_player_runs_dry_sooner() -> None:
    clock = ClientClock(speed=2.0)
    clock.push(RATE_HZ, 100.0)
    assert clock.played_samples(100.25) == RATE_HZ // 2
    assert clock.snapshot("a", 100.25).dry_at_s == pytest.approx(100.5)
    assert clock.played_samples(100.6) == RATE_HZ


def test_each_chunk_of_another_speed_is_told() -> None:
    told: list[float] = []

    class Told(Pacer):
        def tell(self) -> None:
            told.append(self.clock.pushed_samples)

    for speed, times in ((1.0, 1), (0.5, 3)):
        told.clear()
        pacer = Told(ClientClock(speed=speed), 10.0)
        for _ in range(3):
            pacer.took(24_000)
        assert len(told) == times


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_a_stream_at_another_speed_is_all_of_the_speech(open_server: Served, speed: float) -> None:
    def seconds(**more: Any) -> float:
        body = {"input": "Good morning to you.", "response_format": "pcm", "seed": 3, **more}
        answer = httpx.post(open_server.url + "/v1/audio/speech", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return len(answer.content) / 2 / RATE_HZ

    assert abs(seconds(speed=speed) - seconds() / speed) < 0.1


def test_a_file_at_another_speed_is_the_same_speech(open_server: Served) -> None:
    def seconds(**more: Any) -> float:
        body = {"input": "Good morning to you.", "response_format": "wav", "seed": 3, **more}
        answer = httpx.post(open_server.url + "/v1/audio/speech", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        with wave.open(io.BytesIO(answer.content)) as made:
            return made.getnframes() / made.getframerate()

    own = seconds()
    assert abs(seconds(speed=1.5) - own / 1.5) < 0.1
    assert abs(seconds(speed=0.5) - own / 0.5) < 0.1
    assert abs(seconds(speed=2.0, stream=False) - own / 2.0) < 0.1
