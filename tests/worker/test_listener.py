import asyncio
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from playhead.engine.receiver import ReceiverReport
from playhead.worker.demo.llm import PARAGRAPH, split_tokens, write_tokens
from playhead.worker.demo.timeline import Timeline
from playhead.worker.listener import ReceiverReporter, Recording


class Entry(SimpleNamespace):
    def WhichOneof(self, _: str) -> str:
        return str(self.kind)


class FakeTrack:
    """Its counters run like those of a receiver that holds 60 ms and aims at 80 ms."""

    def __init__(self) -> None:
        self.windows = 0

    async def get_stats(self) -> list[Any]:
        self.windows += 1
        count = 12_000 * self.windows
        inbound = SimpleNamespace(
            jitter_buffer_delay=0.060 * count,
            jitter_buffer_target_delay=0.080 * count,
            jitter_buffer_emitted_count=count,
            concealed_samples=480 * self.windows,
        )
        pair = SimpleNamespace(nominated=True, current_round_trip_time=0.045)
        return [
            Entry(kind="inbound_rtp", inbound_rtp=SimpleNamespace(inbound=inbound)),
            Entry(kind="candidate_pair", candidate_pair=SimpleNamespace(candidate_pair=pair)),
        ]


class FakeRoom:
    def __init__(self) -> None:
        self.sent: list[tuple[str, bool, dict[str, float]]] = []
        self.local_participant = self

    def isconnected(self) -> bool:
        return True

    async def publish_data(self, payload: str, *, reliable: bool, topic: str) -> None:
        self.sent.append((topic, reliable, json.loads(payload)))


async def test_reports_are_windows_that_the_speaker_accepts() -> None:
    reporter = ReceiverReporter(FakeRoom(), FakeTrack())  # type: ignore[arg-type]
    assert await reporter.measure() is None
    report = await reporter.measure()
    assert report == {
        "jitter_buffer_s": 0.06,
        "target_s": 0.08,
        "rtt_s": 0.045,
        "playout_s": 0.0,
        "concealed_s": 0.01,
        "audio_s": 0.25,
    }
    assert ReceiverReport(**report).problem() is None


@pytest.mark.slow
async def test_reports_go_out_lossy_four_times_a_second() -> None:
    room = FakeRoom()
    task = asyncio.create_task(
        ReceiverReporter(room, FakeTrack()).run()  # type: ignore[arg-type]
    )
    await asyncio.sleep(1.4)
    task.cancel()
    assert 3 <= len(room.sent) <= 5  # the first window has no start
    assert {(topic, reliable) for topic, reliable, _ in room.sent} == {("playhead.receiver", False)}


def test_recording_times_a_place_by_its_prompt_frames() -> None:
    recording = Recording()
    late_s = np.random.default_rng(3).choice([0.0, 0.0, 0.0, 0.015, 0.04], 300)
    for number in range(300):
        recording.append(np.zeros(240, np.int16), 100 + number * 0.01 + late_s[number])
    assert recording.time_at_s(1.5) == pytest.approx(101.5, abs=0.001)
    assert len(recording.pcm(1.0)) == 2 * 24_000


def test_tokens_joined_are_the_text() -> None:
    for text in (PARAGRAPH, " leading", "trailing  ", "a", "supercalifragilistic word\n"):
        assert "".join(split_tokens(text)) == text


async def test_tokens_come_at_their_pace() -> None:
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    seen: list[str] = []
    tokens = [token async for token in write_tokens("one two three four", 0.02, seen.append)]
    assert tokens == seen and len(tokens) == 4
    assert 0.05 < loop.time() - start_s < 0.5


def test_timeline_shows_times_words_and_gaps() -> None:
    timeline = Timeline(first_token_s=10.0, heard_s=10.25)
    timeline.take({"type": "started", "at_s": 10.12})
    word = {"text": "Hello ", "start_s": 0.1, "end_s": 0.4}
    timeline.take({"type": "words", "words": [word, {**word, "text": "you", "start_s": 0.5}]})
    clock = {"pushed_s": 0.5, "exited_s": 0.4, "heard_s": 0.3, "slack_s": 0.25, "gaps": 2}
    timeline.take({"type": "clock", "clock_s": 10.5, "chunk_frames": 2, **clock})
    row = timeline.row(10.6)
    assert "120 ms" in row and "250 ms" in row and row.endswith("Hello") and "    2" in row
    timeline.take({"type": "finished", "gaps": 3})
    assert timeline.num_gaps == 3
