"""The whole path on this CPU: a real LiveKit server, the worker, a listener process per run.

Run on an idle machine: `python tests/bench/rooms_cpu.py`. Writes the room figures of
`results/e2e-cpu.json`: when the first sound of a text is heard after its first token, how long
sound goes on after an interruption, what an offline recogniser understands, and how true the
heard position is.
"""

import statistics
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from playhead.engine.library import open_model
from playhead.worker.demo.align import align
from playhead.worker.demo.llm import PARAGRAPH
from playhead.worker.demo.server import Access, LocalServer
from tests.asr import wer
from tests.bench.result import write_result
from tests.e2e.rig import HeardSpeech, Spoken, WorkerProcess, run_listener
from tests.e2e.truth import heard_errors

TRIALS = 20
SEED = 7
OPENINGS = (
    "Good morning, and thanks for calling.",
    "Sure, let me look that up for you.",
    "Your table is ready at seven.",
    "I can help you with that right away.",
)


def render(text: str, seed: int = SEED) -> npt.NDArray[np.int16]:
    """Return the engine's own samples of a text."""
    with open_model() as tts:
        return np.frombuffer(b"".join(tts.stream(text, seed=seed)), "<i2")


def first_heard_ms(heard: HeardSpeech, request_id: str, known: npt.NDArray[np.int16]) -> float:
    """First token written to first sample heard."""
    place_s = align(known, heard.pcm).heard_at_s(0.0)
    assert place_s is not None, f"{request_id} was not found in the recording"
    return (heard.recording.time_at_s(place_s) - heard.begun[request_id]) * 1000


def measure_openings(access: Access, folder: Path) -> list[float]:
    """Speak short texts one after another in fresh rooms; the first one of a room warms it up."""
    waits_ms = []
    for number in range(TRIALS):
        text = OPENINGS[number % len(OPENINGS)]
        texts = [Spoken("warm", "Hello there.", wait=True), Spoken("t", text, seed=number)]
        heard = run_listener(access, f"open{number}", texts, folder / f"open{number}")
        waits_ms.append(first_heard_ms(heard, "t", render(text, number)))
        print(f"opening {number}: {waits_ms[-1]:.0f} ms", flush=True)
    return waits_ms


def silence_ms(heard: HeardSpeech, request_id: str) -> float:
    """Interrupt sent to the last sample above -36 dBFS heard."""
    loud = np.flatnonzero(np.abs(heard.pcm.astype(np.int32)) > 500)
    last_s = heard.recording.time_at_s(float(loud[-1]) / 24_000)
    return (last_s - heard.heard[request_id]["sent_s"]) * 1000


def measure_interrupts(access: Access, folder: Path) -> list[float]:
    """Interrupt the paragraph at different moments."""
    out = []
    for number in range(TRIALS):
        at_s = 0.8 + 0.17 * number
        spoken = Spoken("i", PARAGRAPH, interrupt_at_s=at_s)
        heard = run_listener(access, f"cut{number}", [spoken], folder / f"cut{number}")
        out.append(silence_ms(heard, "i"))
        print(f"interrupt at {at_s:.2f} s: silent after {out[-1]:.0f} ms", flush=True)
    return out


def main() -> None:
    """Measure and write."""
    figures: dict[str, float] = {}
    known = render(PARAGRAPH)
    with tempfile.TemporaryDirectory() as name, LocalServer() as server:
        folder = Path(name)
        worker = WorkerProcess(server.access, folder / "worker.log")
        worker.start()
        try:
            waits_ms = measure_openings(server.access, folder)
            cuts_ms = measure_interrupts(server.access, folder)
            texts = [Spoken("w", "Hello there.", wait=True), Spoken("t", PARAGRAPH)]
            heard = run_listener(server.access, "truth", texts, folder / "truth", settle_s=1.5)
        finally:
            worker.stop()
    errors = heard_errors(heard, "t", known)
    print(errors)
    place_s = align(known, heard.pcm).heard_at_s(0.0) or 0.0
    figures["token_to_heard_p50_ms"] = round(statistics.median(waits_ms), 1)
    figures["token_to_heard_p95_ms"] = round(float(np.quantile(waits_ms, 0.95)), 1)
    figures["interrupt_to_silence_p95_ms"] = round(float(np.quantile(cuts_ms, 0.95)), 1)
    figures["heard_error_ms_max"] = round(max(abs(e) for e in errors.steady) * 1000, 1)
    figures["wer_paragraph"] = round(wer(PARAGRAPH, heard.pcm[int(place_s * 24_000) :]), 4)
    figures["wer_paragraph_engine"] = round(wer(PARAGRAPH, known), 4)
    print(figures)
    print(write_result("e2e", "cpu", figures))


if __name__ == "__main__":
    main()
