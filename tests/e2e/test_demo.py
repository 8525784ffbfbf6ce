"""`playhead demo --once` as a user runs it, and what its check rejects of the real recording."""

import subprocess
import sys
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from playhead.worker.demo.check import Verdict, judge
from playhead.worker.demo.llm import PARAGRAPH
from tests.asr import transcriber
from tests.e2e.rig import Render

pytestmark = [pytest.mark.livekit, pytest.mark.slow, pytest.mark.timeout(240)]

PLAYHEAD = Path(sys.executable).parent / "playhead"
OTHER = (
    "The old man walked slowly along the river. It was a cold evening in October, and nobody "
    "else was out. He thought about his brother, who had moved to Canada many years ago."
)
RATE_HZ = 24_000

Pcm = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class DemoRun:
    code: int
    output: str
    heard: Pcm
    engine: Pcm
    made: Pcm
    folder: Path

    def judge(self, heard: Pcm) -> Verdict:
        return judge(PARAGRAPH, self.engine, self.made, heard, transcriber())


def read_wav(path: Path) -> Pcm:
    with wave.open(str(path)) as wav:
        assert (wav.getframerate(), wav.getnchannels(), wav.getsampwidth()) == (RATE_HZ, 1, 2)
        return np.frombuffer(wav.readframes(wav.getnframes()), np.int16)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    """Run the demo once, as `make demo ONCE=1` does."""
    folder = tmp_path_factory.mktemp("demo")
    command = [str(PLAYHEAD), "demo", "--once", "--url", "", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    output = done.stdout + done.stderr
    assert (folder / "demo.wav").exists(), output[-4000:]
    names = ("demo.wav", "demo-engine.wav", "demo-made.wav")
    heard, engine, made = (read_wav(folder / name) for name in names)
    return DemoRun(done.returncode, output, heard, engine, made, folder)


def pauses(pcm: Pcm) -> list[int]:
    """Return the middles of the three longest silences inside the speech, in order."""
    block = RATE_HZ // 100
    loud = np.abs(pcm[: len(pcm) // block * block].reshape(-1, block)).max(axis=1) > 500
    edges = np.flatnonzero(loud)
    runs = sorted(zip(np.diff(edges), edges[:-1], strict=True), reverse=True)[:3]
    return sorted(int(start + length // 2) * block for length, start in runs)


def test_demo_ends_well_and_says_so_in_one_line(demo: DemoRun) -> None:
    assert demo.code == 0, demo.output[-4000:]
    last = demo.output.strip().splitlines()[-1]
    assert last.startswith("demo: OK") and "word error rate" in last
    assert "token→heard" in demo.output and "words heard" in demo.output
    assert "Traceback" not in demo.output


def test_demo_draws_the_clock(demo: DemoRun) -> None:
    assert (demo.folder / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("share", [0.0, 0.2, 0.45, 0.7, 0.85])
def test_demo_check_rejects_when_two_seconds_are_missing(demo: DemoRun, share: float) -> None:
    speech = np.flatnonzero(np.abs(demo.heard) > 500)
    start = int(speech[0] + share * (speech[-1] - speech[0]))
    verdict = demo.judge(np.delete(demo.heard, slice(start, start + 2 * RATE_HZ)))
    assert verdict.problems and verdict.longest_loss_s > 1.0, verdict.summary()


def test_demo_check_rejects_when_two_sentences_are_swapped(demo: DemoRun) -> None:
    first, second, third = pauses(demo.heard)
    parts = np.split(demo.heard, [first, second, third])
    swapped = np.concatenate([parts[0], parts[2], parts[1], parts[3]])
    verdict = demo.judge(swapped)
    assert verdict.problems, verdict.summary()


def test_demo_check_rejects_when_it_is_another_paragraph(demo: DemoRun, rendered: Render) -> None:
    verdict = demo.judge(rendered(OTHER))
    assert verdict.problems and verdict.found_share < 0.3, verdict.summary()


def test_demo_check_accepts_what_the_engine_made(demo: DemoRun) -> None:
    assert not demo.judge(demo.made).problems


def test_demo_says_why_when_the_server_cannot_be_reached() -> None:
    command = [str(PLAYHEAD), "demo", "--once", "--url", "ws://127.0.0.1:9", "--api-key", "k"]
    command += ["--api-secret", "s" * 32, "--worker-limit-s", "15"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "demo:" in done.stderr
