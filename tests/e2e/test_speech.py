"""A paragraph goes in token by token and is heard: by a Python listener, and by a browser."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.demo.align import align
from playhead.worker.demo.asr import Transcriber
from playhead.worker.demo.check import judge
from playhead.worker.demo.llm import PARAGRAPH
from playhead.worker.demo.page import CallerPage
from playhead.worker.demo.parts import client_bundle, node_modules
from playhead.worker.demo.server import Access
from tests.asr import transcriber, wer
from tests.e2e.rig import Hear, KnownSpeech, Render, Spoken, WorkerProcess

pytestmark = [pytest.mark.livekit, pytest.mark.slow]

DRIVER = Path(__file__).parent / "browser.mjs"
LEAD_S = 0.05
"""Of what is heard before a text, this much is judged with it."""


@pytest.fixture(scope="module")
def asr() -> Transcriber:
    return transcriber()


def test_paragraph_is_heard_when_written_token_by_token(
    paragraph: KnownSpeech, worker: WorkerProcess, rendered: Render, asr: Transcriber
) -> None:
    heard, made = paragraph.heard, paragraph.made
    end = heard.end_of(paragraph.request_id)
    assert end["type"] == "finished" and end["gaps"] <= worker.num_late(), end
    assert end["heard_text"].split() == PARAGRAPH.split()
    begun_s = align(made, heard.pcm).heard_at_s(0.0)
    assert begun_s is not None
    pcm = heard.pcm[max(0, round((begun_s - LEAD_S) * SAMPLE_RATE_HZ)) :]
    verdict = judge(PARAGRAPH, rendered(PARAGRAPH), made, pcm, asr)
    assert not verdict.problems, verdict.summary()
    assert verdict.num_gaps <= end["gaps"], verdict.summary()


def test_first_sound_comes_soon_after_the_first_token(hear: Hear, worker: WorkerProcess) -> None:
    text = "Good morning, and thanks for calling."
    heard = hear([Spoken("s1", text)])
    assert heard.end_of("s1")["gaps"] <= worker.num_late(), "nothing was reported before it"
    place_s = align(worker.made("s1"), heard.pcm).heard_at_s(0.0)
    assert place_s is not None
    delay_s = heard.recording.time_at_s(place_s) - heard.begun["s1"]
    assert 0.05 < delay_s < 1.5  # the bench measures it; here only that it isn't a sentence late


def test_order_is_kept_when_three_streams_are_queued(hear: Hear, worker: WorkerProcess) -> None:
    texts = [
        "The first message is about your order.",
        "The second message is about the weather in Seattle.",
        "The last message says good night to everyone.",
    ]
    heard = hear([Spoken(f"q{n}", text, seed=n) for n, text in enumerate(texts)])
    places = []
    for number in range(len(texts)):
        assert heard.end_of(f"q{number}")["type"] == "finished"
        found = align(worker.made(f"q{number}"), heard.pcm)
        assert found.found_share > 0.8, f"stream {number}: {found.found_share}"
        places.append(found.pieces[0].heard_s)
    assert places == sorted(places, key=lambda place: place or 0.0)
    ends = [e["request_id"] for e in heard.events if e["type"] == "finished"]
    assert ends == ["q0", "q1", "q2"]


def test_captions_hold_the_text_when_all_was_heard(hear: Hear) -> None:
    text = "Please spell your last name for me."
    heard = hear([Spoken("c1", text)])
    assert heard.captions.split() == text.split()


def test_interrupt_tells_what_was_heard_and_stops_the_sound(
    hear: Hear, worker: WorkerProcess
) -> None:
    heard = hear([Spoken("i1", PARAGRAPH, interrupt_at_s=1.5)])
    end = heard.end_of("i1")
    assert end["type"] == "interrupted"
    assert heard.heard["i1"]["heard_text"] == end["heard_text"]
    assert PARAGRAPH.startswith(end["heard_text"]) and end["heard_text"]
    found = align(worker.made("i1"), heard.pcm)
    last = max(piece.reference_s for piece in found.pieces if piece.heard_s is not None)
    assert abs(last + 0.5 - end["heard_s"]) < 0.6
    loud = np.flatnonzero(np.abs(heard.pcm) > 600)
    silent_s = heard.recording.time_at_s(loud[-1] / 24_000) - heard.heard["i1"]["sent_s"]
    assert silent_s < 0.5


@pytest.mark.browser
async def test_paragraph_is_heard_when_a_browser_listens(
    worker: WorkerProcess,
    access: Access,
    room_name: str,
    rendered: Render,
    tmp_path: Path,
) -> None:
    chromium, node = shutil.which("chromium"), shutil.which("node")
    if chromium is None or node is None or client_bundle() is None:
        pytest.skip("needs chromium, node and the page's npm packages (make setup)")
    page = CallerPage(access)
    address = await page.start()
    setup = {
        "modules": str(node_modules(tests=True)),
        "chromium": chromium,
        "address": f"{address}?room={room_name}",
        "text": PARAGRAPH,
        "out": str(tmp_path / "browser.json"),
        "screenshot": str(tmp_path / "page.png"),
    }
    try:
        await _drive(node, setup)
    finally:
        await page.stop()
    result = json.loads((tmp_path / "browser.json").read_text())
    assert result["problems"] == []
    (end,) = [event for event in result["events"] if event["type"] == "finished"]
    assert end["gaps"] <= worker.num_late()
    assert result["heardWords"] >= len(PARAGRAPH.split())
    assert [event for event in result["events"] if event["type"] == "clock"]
    pcm = np.frombuffer(base64.b64decode(result["pcm"]), np.int16)
    found = align(worker.made(end["request_id"]), pcm)
    assert found.found_share > 0.85 and found.longest_loss_s() < 1.0, found
    assert len(found.pauses(0.04)) <= end["gaps"], "nothing was heard that was not counted"
    assert wer(PARAGRAPH, pcm) <= wer(PARAGRAPH, rendered(PARAGRAPH)) + 0.10


async def _drive(node: str, setup: dict[str, str]) -> None:
    import asyncio

    process = await asyncio.create_subprocess_exec(
        *(node, str(DRIVER), json.dumps(setup)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, output.decode(errors="replace")[-3000:]
