"""A room on this CPU with the embedded voice: what a listener gets, measured at its ear.

Run on an idle machine: `make bench`. A real LiveKit server, the worker and the listener are
processes of their own; sounds are timed in what came out of the listener's jitter buffer. Writes
the room figures of `results/e2e-cpu.json`.
"""

import statistics
import tempfile
from pathlib import Path

import numpy as np

from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.demo.asr import Transcriber
from playhead.worker.demo.check import judge
from playhead.worker.demo.llm import PARAGRAPH
from playhead.worker.demo.server import Access, LocalServer
from playhead.worker.demo.show import render_directly
from tests.bench.result import write_result
from tests.e2e.rig import HeardSpeech, Spoken, WorkerProcess, run_listener
from tests.e2e.truth import heard_errors

TRIALS = 20
AUDIBLE = 600
"""Sample value that counts as sound; the codec's silence stays below 100."""
SENTENCES = (
    "Good morning, how can I help you today?",
    "Your package should be at your door by Friday.",
    "Let me check that for you.",
    "Would you like me to send you a message?",
)


def loud_times_s(heard: HeardSpeech) -> np.ndarray:
    """Return when each audible 10 ms of the recording was heard."""
    block = SAMPLE_RATE_HZ // 100
    pcm = heard.pcm[: len(heard.pcm) // block * block].reshape(-1, block)
    loud = np.flatnonzero(np.abs(pcm).max(axis=1) > AUDIBLE)
    _, times_s = heard.recording.arrivals()
    return np.asarray(times_s[loud[loud < len(times_s)]])


def token_to_heard_ms(access: Access, folder: Path) -> list[float]:
    """From the first token of a reply to its first audible sample."""
    texts = [
        Spoken(f"t{n}", SENTENCES[n % len(SENTENCES)], seed=n, wait=True) for n in range(TRIALS + 2)
    ]
    heard = run_listener(access, "bench-first", texts, folder)
    loud_s = loud_times_s(heard)
    waits = []
    for text in texts[2:]:  # the first two warm the path up
        begun_s = heard.begun[text.request_id]
        waits.append(float(loud_s[loud_s > begun_s][0] - begun_s) * 1000)
    return waits


def interrupt_to_silence_ms(access: Access, folder: Path) -> list[float]:
    """From sending the interruption to the last audible sample."""
    texts = [
        Spoken(f"i{n}", PARAGRAPH, seed=n, wait=True, interrupt_at_s=1.0 + 0.13 * n)
        for n in range(TRIALS)
    ]
    heard = run_listener(access, "bench-interrupt", texts, folder)
    loud_s = loud_times_s(heard)
    waits = []
    for text in texts:
        sent_s = heard.heard[text.request_id]["sent_s"]
        tail = loud_s[(loud_s > sent_s) & (loud_s < sent_s + 0.5)]
        waits.append(float(tail[-1] + 0.01 - sent_s) * 1000 if len(tail) else 0.0)
    return waits


def p95(values: list[float]) -> float:
    """Return the 95th percentile."""
    return float(np.quantile(values, 0.95))


def main() -> None:
    """Measure and write the figures."""
    with tempfile.TemporaryDirectory() as folder, LocalServer() as server:
        worker = WorkerProcess(server.access, Path(folder) / "worker.log")
        worker.start()
        try:
            first = token_to_heard_ms(server.access, Path(folder) / "first")
            silence = interrupt_to_silence_ms(server.access, Path(folder) / "interrupt")
            texts = [Spoken("w", "Hello there.", wait=True), Spoken("p", PARAGRAPH, wait=True)]
            heard = run_listener(server.access, "bench-paragraph", texts, Path(folder) / "p")
            made = worker.made("p")
        finally:
            worker.stop()
    errors = heard_errors(heard, "p", made)
    verdict = judge(PARAGRAPH, render_directly(PARAGRAPH, 7), made, heard.pcm, Transcriber())
    print(errors, verdict.summary(), sep="\n")
    figures = {
        "token_to_heard_p50_ms": statistics.median(first),
        "token_to_heard_p95_ms": p95(first),
        "interrupt_to_silence_p95_ms": p95(silence),
        "wer_paragraph": verdict.wer_heard,
        "wer_paragraph_engine": verdict.wer_engine,
        "heard_error_ms_max": max(abs(error) for error in errors.steady) * 1000,
    }
    for name, value in figures.items():
        print(f"{name} {value:.3g}")
    write_result("e2e", "cpu", {name: round(value, 3) for name, value in figures.items()})


if __name__ == "__main__":
    main()
