"""A browser talks to the voice bot, offline: is answered, talks over it, is answered again."""

import asyncio
import base64
import json
import shutil
import wave
from pathlib import Path

import numpy as np
import pytest
from livekit import api
from livekit.agents import llm
from livekit.plugins import playhead

from playhead.engine.messages import Pcm, Words
from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.demo.align import align
from playhead.worker.demo.asr import edit_distance, spoken_words
from playhead.worker.demo.page import CallerPage
from playhead.worker.demo.parts import client_bundle, node_modules
from playhead.worker.demo.server import Access
from playhead.worker.heard import heard_text
from tests.agents.conftest import RealEngine
from tests.agents.ears import WhisperSTT
from tests.agents.fakes import ScriptedLLM
from tests.agents.test_examples import job_of, load_example
from tests.asr import transcriber

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

DRIVER = Path(__file__).parent / "microphone.mjs"
QUESTION = "Can you tell me about your town?"
INTERRUPTION = "Please stop and tell me what time it is now."
OVER_IT_S = 16.0
"""When the caller talks over the answer: it began by then on any machine, and lasts a minute."""
TALK_S = 34.0
LONG = (
    "Our town lies on a wide river. It has two old bridges and a small harbor. In spring the "
    "market opens every Monday morning. Farmers sell apples, honey and fresh bread. The library "
    "was built by a famous teacher. Behind it there is a quiet garden with green benches. Many "
    "people walk there after work. In summer a band plays music near the water. Children swim "
    "until the evening. In winter the hills are white and the schools close early. "
)
ANSWER = "It is almost time for breakfast."
"""Of fifteen that were tried, the recogniser understands this best: one word wrong with two of 60
seeds, none with the one in use, nor in 40 copies of it changed as a link may."""
LEAD_SAMPLES = SAMPLE_RATE_HZ // 10
"""Kept before the first loud sample of the second answer: a soft beginning is part of it."""


class Memory(ScriptedLLM):
    """Keeps what the session had in its history when it asked."""

    def __init__(self, *replies: str) -> None:
        super().__init__(*replies, token_s=0.02)
        self.kept: list[list[tuple[str, str, bool]]] = []

    def chat(self, *, chat_ctx: llm.ChatContext, **rest: object) -> llm.LLMStream:  # type: ignore[override]
        self.kept.append(
            [
                (item.role, item.text_content or "", item.interrupted)
                for item in chat_ctx.items
                if item.type == "message"
            ]
        )
        return super().chat(chat_ctx=chat_ctx, **rest)  # type: ignore[arg-type]


async def write_speech(path: Path) -> None:
    """Write what the caller says: a question, a wait, and words over the answer."""
    voice = playhead.TTS(seed=5)
    frames = [await voice.synthesize(text).collect() for text in (QUESTION, INTERRUPTION)]
    question, over = (np.frombuffer(bytes(frame.data), "<i2") for frame in frames)
    samples = np.zeros(int(TALK_S * SAMPLE_RATE_HZ), "<i2")
    for start_s, speech in ((1.0, question), (OVER_IT_S, over)):
        start = int(start_s * SAMPLE_RATE_HZ)
        samples[start : start + len(speech)] = speech
    with wave.open(str(path), "wb") as wav:
        wav.setparams((1, 2, SAMPLE_RATE_HZ, 0, "NONE", ""))
        wav.writeframes(samples.tobytes())


async def test_a_caller_is_answered_talks_over_the_answer_and_is_answered_again(
    real_engine: RealEngine, livekit_server: Access, room_name: str, tmp_path: Path
) -> None:
    chromium, node = shutil.which("chromium"), shutil.which("node")
    if chromium is None or node is None or client_bundle() is None:
        pytest.skip("needs chromium, node and the page's npm packages (make setup)")
    playhead.use_engine(real_engine.client)
    await write_speech(tmp_path / "caller.wav")
    page, ears, model = CallerPage(livekit_server), WhisperSTT(), Memory(LONG * 2, ANSWER)
    setup = {
        "modules": str(node_modules(tests=True)),
        "chromium": chromium,
        "address": f"{await page.start()}?room={room_name}",
        "wav": str(tmp_path / "caller.wav"),
        "talkMs": TALK_S * 1000,
        "out": str(tmp_path / "heard.json"),
    }
    room_info = api.Room(sid="RM_test", name=room_name)
    token = livekit_server.token("voice-bot", room_name, kind="agent")
    job = {"room": room_name, "room_info": room_info, "token": token}
    try:
        voice_bot = load_example("voice_bot")
        async with job_of(voice_bot, model, livekit_server, stt=ears, **job):
            driver = await asyncio.create_subprocess_exec(
                node, str(DRIVER), json.dumps(setup), stderr=asyncio.subprocess.PIPE
            )
            _, told = await driver.communicate()
            assert driver.returncode == 0, told.decode()[-3000:]
    finally:
        await page.stop()
        playhead.use_engine(None)
    result = json.loads((tmp_path / "heard.json").read_text())
    pcm = np.frombuffer(base64.b64decode(result["pcm"]), np.int16)
    check(model, ears, pcm[int(result["talkAtS"] * SAMPLE_RATE_HZ) :], real_engine)
    captions = "".join(result["captions"].split())
    for text in (voice_bot.GREETING, LONG.split(".")[0], ANSWER.split(" ", 1)[1]):
        assert "".join(text.split()) in captions, result["captions"]


def check(model: Memory, ears: WhisperSTT, speech: np.ndarray, engine: RealEngine) -> None:
    """The second turn began while the first answer was spoken, and knew how far it was heard."""
    assert len(model.kept) == 2, (model.kept, ears.heard)
    first, second = model.kept
    assert "town" in first[-1][1].lower() and "time" in second[-1][1].lower()
    (kept,) = [text for role, text, cut in second if role == "assistant" and cut]
    assert LONG.startswith(kept) and len(kept.split()) > 5
    answered, rest = split_at_silence(speech)
    assert abs(num_heard(engine, answered) - len(kept.split())) <= 1, kept
    last = spoken_words(transcriber().transcribe(rest))
    assert edit_distance(spoken_words(ANSWER), last) <= 1, last


def num_heard(engine: RealEngine, answered: np.ndarray) -> int:
    """Count the words of the first answer that are in a recording, by the engine's own samples."""
    results = engine.carrier.results
    begun = {r.request_id: r.words[0].text for r in reversed(results) if isinstance(r, Words)}
    (told,) = [request_id for request_id, word in begun.items() if LONG.startswith(word)]
    words = [w for r in results if isinstance(r, Words) and r.request_id == told for w in r.words]
    made = [r.pcm for r in results if isinstance(r, Pcm) and r.request_id == told]
    found = align(np.frombuffer(b"".join(made), "<i2"), answered)
    offset_s = [piece.offset_s for piece in found.pieces if piece.offset_s is not None][-1]
    return len(heard_text(words, len(answered) / SAMPLE_RATE_HZ - offset_s).split())


def split_at_silence(speech: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut at the longest silence inside the speech: where the agent fell silent."""
    block = SAMPLE_RATE_HZ // 100
    loud = np.abs(speech[: len(speech) // block * block].reshape(-1, block)).max(axis=1) > 500
    edges = np.flatnonzero(loud)
    gap = int(np.argmax(np.diff(edges)))
    start, end = int(edges[gap] + 1) * block, int(edges[gap + 1]) * block
    assert end - start > SAMPLE_RATE_HZ // 2, "the agent never fell silent"
    return speech[:start], speech[end - LEAD_SAMPLES :]
