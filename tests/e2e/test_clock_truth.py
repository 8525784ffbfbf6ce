"""The playback clock against the waveform: what it says was heard, and which gaps it counts."""

from pathlib import Path

import pytest

from playhead.worker.demo.llm import PARAGRAPH
from tests.e2e.rig import FarRoom, KnownSpeech, Spoken
from tests.e2e.truth import heard_errors

pytestmark = [pytest.mark.livekit, pytest.mark.slow]


def test_heard_is_true_when_the_link_is_clean(paragraph: KnownSpeech) -> None:
    heard_errors(paragraph.heard, paragraph.request_id, paragraph.made).check()


@pytest.mark.timeout(300)
def test_heard_is_true_when_the_link_delays_jitters_and_loses(
    far_room: FarRoom, tmp_path: Path, room_name: str
) -> None:
    texts = [Spoken("w", "Hello there, and welcome."), Spoken("t", PARAGRAPH)]
    impairment = {"delay_ms": 40, "jitter_ms": 10, "loss": 0.02}
    heard = far_room.hear(room_name, texts, tmp_path, settle_s=5.0, **impairment)
    assert heard.report["rtt_s"] > 0.06, "the link was not impaired"
    heard_errors(heard, "t", far_room.worker.made("t")).check()
