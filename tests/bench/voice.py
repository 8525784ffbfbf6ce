"""The embedded voice on this CPU: words, last words, lengths, speed, memory, opinion.

    python -m tests.bench.voice PART [--work FOLDER] [--seconds S]

Each part runs by itself and merges its figures into `results/voice-cpu.json`:

    words     word errors of the two held-out sets, whose last word is heard otherwise or not at
              all, and the silence before the first sound
    teacher   the same of the teacher's speech, `--clean` and `--agent` from training.read_aloud
    dnsmos    the opinion of both, of the speech that the parts before left in the work folder
    runs      500 seeded runs: length against the prediction, last word against an alignment and
              the recogniser's ear
    speed     real-time factor, first PCM, streams in real time: only on an idle machine
    load      load time and memory in a process of its own, size on disk

`runs` keeps what it has found in the work folder and goes on from there, so each call may be cut by
`--seconds`.
"""

import argparse
import hashlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from training.evaluate import (
    Judge,
    Judgement,
    end_is_missing,
    judge_all,
    nearest,
    predicted_frames,
    words_of,
)

from playhead.engine.engine import Engine
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Done, Failed, Pcm, Refused, Result, Submit, Word, Words
from playhead.engine.profile import Profile
from playhead.engine.text.english.front_end import EnglishFrontEnd
from playhead.engine.units import FRAME_SAMPLES, SAMPLE_RATE_HZ, samples_to_s
from tests.bench.dnsmos import Dnsmos
from tests.bench.engine_cpu import measure_first_pcm_ms, measure_rtf, measure_streams, open_rig
from tests.bench.result import write_result
from tests.bench.word_times import BLOCK_S, SPEECH_RMS, Aligner, Timed, pieces_as_words

TRAINING = Path(__file__).parents[2] / "training"
SETS = {"heldout": TRAINING / "heldout_clean.txt", "agent": TRAINING / "heldout_agent.txt"}
NUM_RUNS = 500
BATCH = 8
"""Streams spoken together: a frame of eight takes little longer than one of four."""
LEAST_LAST_WORD = 0.6
"""Share of its predicted duration that a last word must keep."""
MOST_LENGTH = 1.5
"""Times its predicted length that an utterance may last."""
Samples = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Spoken:
    """One utterance of the engine."""

    pcm: Samples
    words: tuple[Word, ...]
    num_frames: int
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """What was found of one seeded run."""

    line: str
    seed: int
    length: float
    """Frames made, as a multiple of those predicted."""
    last_word: float | None
    """Duration of the last word as a share of the predicted one; None: no alignment."""
    last_word_missing: bool
    """The recogniser heard nothing in its place."""


def speak(asked: Iterable[tuple[str, int]], profile: Profile | None = None) -> Iterator[Spoken]:
    """Speak (line, seed) in batches, offline; yield in the order asked.

    Raises RuntimeError for a request that fails.
    """
    results: queue.SimpleQueue[Result] = queue.SimpleQueue()

    def take(batch: list[Result]) -> None:
        for result in batch:
            results.put(result)

    own = profile or replace(Profile(), max_streams=2 * BATCH)  # half of the slots are for calls
    engine = Engine(EMBEDDED_VOICE, own, take)
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        waiting, held = iter(asked), dict[str, list[Result]]()
        done: dict[str, Spoken] = {}
        number = sent = 0
        while True:
            while sent - number < BATCH and (following := next(waiting, None)) is not None:
                line, seed = following
                name = str(sent)
                held[name] = []
                engine.post(Submit(name, text=line, closed=True, live=False, seed=seed))
                sent += 1
            if number == sent:
                return
            while str(number) not in done:
                result = results.get(timeout=120)
                held[result.request_id].append(result)
                if isinstance(result, Done | Failed | Refused):
                    done[result.request_id] = spoken_of(held.pop(result.request_id))
            yield done.pop(str(number))
            number += 1
    finally:
        engine.stop()
        thread.join()


def spoken_of(results: list[Result]) -> Spoken:
    """Put one request's results together."""
    last = results[-1]
    if not isinstance(last, Done):
        raise RuntimeError(f"a request was not spoken: {last}")
    pcm = b"".join(result.pcm for result in results if isinstance(result, Pcm))
    words = [word for result in results if isinstance(result, Words) for word in result.words]
    return Spoken(np.frombuffer(pcm, "<i2"), tuple(words), last.num_frames, last.reason)


def lines_of(name: str) -> list[str]:
    """Return the lines of a held-out set."""
    return SETS[name].read_text(encoding="utf-8").splitlines()


def judged(lines: list[str], speech: list[Samples]) -> Judgement:
    """Let the recogniser hear lines."""
    return judge_all(lines, [(pcm / 32768).astype(np.float32) for pcm in speech], show=False)


def stored(path: Path) -> list[Samples]:
    """Read utterances from a file of arrays `line_00`, `line_01`, ..."""
    with np.load(path) as file:
        return [file[name] for name in sorted(file.files)]


def keep(path: Path, speech: list[Samples]) -> None:
    """Write utterances so that `stored` reads them."""
    whole = {f"line_{number:02d}": pcm for number, pcm in enumerate(speech)}
    np.savez_compressed(path, allow_pickle=False, **whole)


# -- parts


def words(options: argparse.Namespace) -> dict[str, float]:
    """Speak both held-out sets, seed 1; keep the speech; count word errors, time the lead."""
    figures: dict[str, float] = {}
    leads_s: list[float] = []
    for name in SETS:
        lines = lines_of(name)[: options.lines]
        spoken = list(speak((line, 1) for line in lines))
        leads_s += [lead_s(each) for each in spoken]
        speech = [each.pcm for each in spoken]
        keep(options.work / f"voice_{name}.npz", speech)
        found = judged(lines, speech)
        figures[f"wer_{name}"] = round(found.wer, 2)
        figures[f"last_word_differs_{name}"] = found.lost_ends
        figures[f"last_word_missing_{name}"] = found.missing_ends
    figures["lead_before_trim_ms_max"] = round(1000 * max(leads_s), 1)
    return figures


def lead_s(spoken: Spoken) -> float:
    """Return the silence before the first sound, the trimmed part included, in seconds."""
    trimmed_s = samples_to_s(spoken.num_frames * FRAME_SAMPLES - len(spoken.pcm))
    loud = loud_blocks(spoken.pcm)
    return trimmed_s + (float(loud[0]) * BLOCK_S if len(loud) else samples_to_s(len(spoken.pcm)))


def teacher(options: argparse.Namespace) -> dict[str, float]:
    """Count word errors of the teacher's own speech of the sets that are given."""
    figures: dict[str, float] = {}
    for name, given in (("heldout", options.clean), ("agent", options.agent)):
        if given is None:
            continue
        lines, speech = lines_of(name)[: options.lines], stored(given)
        if len(speech) != len(lines):
            raise SystemExit(f"{given} has {len(speech)} utterances, the set has {len(lines)}")
        keep(options.work / f"teacher_{name}.npz", speech)
        found = judged(lines, speech)
        figures[f"wer_teacher_{name}"] = round(found.wer, 2)
        figures[f"last_word_differs_teacher_{name}"] = found.lost_ends
        figures[f"last_word_missing_teacher_{name}"] = found.missing_ends
    if not figures:
        raise SystemExit("give --clean FILE, --agent FILE or both")
    return figures


def dnsmos(options: argparse.Namespace) -> dict[str, float]:
    """Take the opinion of all speech in the work folder."""
    model, figures = Dnsmos(), dict[str, float]()
    for who, figure in (("voice", "dnsmos"), ("teacher", "dnsmos_teacher")):
        paths = [options.work / f"{who}_{name}.npz" for name in SETS]
        speech = [pcm for path in paths if path.exists() for pcm in stored(path)]
        if speech:
            figures[figure] = round(float(np.mean([model.overall(pcm) for pcm in speech])), 2)
    if not figures:
        raise SystemExit(f"{options.work} holds no speech: run the part `words` first")
    return figures


def runs(options: argparse.Namespace) -> dict[str, float]:
    """Speak and align seeded runs until there are 500, or the time is up."""
    weights = hashlib.sha256((EMBEDDED_VOICE / "playhead-hashes.json").read_bytes()).hexdigest()
    path = options.work / f"runs_{weights[:8]}.jsonl"
    began_s, aligner, front_end = time.monotonic(), Aligner(), EnglishFrontEnd(EMBEDDED_VOICE)
    judge = Judge()
    found = (
        [Run(**json.loads(row)) for row in path.read_text().splitlines()] if path.exists() else []
    )
    asked = planned(aligner, options.runs)[len(found) :]

    def in_time() -> Iterator[tuple[str, int]]:
        for each in asked:
            if time.monotonic() - began_s > options.seconds:
                return
            yield each

    with open(path, "a", encoding="utf-8") as file:
        for (line, seed), spoken in zip(asked, speak(in_time()), strict=False):
            run = Run(
                line, seed, spoken.num_frames / predicted_frames(front_end, line),
                last_word_share(aligner, spoken), last_word_is_missing(judge, line, spoken.pcm),
            )  # fmt: skip
            file.write(json.dumps(asdict(run)) + "\n")
            file.flush()
            found.append(run)
    print(f"{len(found)} of {options.runs} runs")
    return run_figures(found)


def planned(aligner: Aligner, num_runs: int) -> list[tuple[str, int]]:
    """Return (line, seed): all held-out lines whose words the aligner knows, seed after seed."""
    lines = [line for name in SETS for line in lines_of(name)]
    known = [line for line in lines if aligner.knows(pieces_as_words(line))]
    return [(known[at % len(known)], at // len(known)) for at in range(num_runs)]


def last_word_share(aligner: Aligner, spoken: Spoken) -> float | None:
    """Return how much of its predicted duration the last word keeps; None without alignment.

    Nothing follows it, so it ends where the sound does when the aligner takes its last burst for
    silence.
    """
    try:
        timed: Timed = aligner.align(spoken.words, spoken.pcm)
    except (AssertionError, TypeError):  # the aligner found no way through the audio
        return None
    said_s = timed.said_ends[-1] - timed.said_starts[-1]
    end_s = max(float(timed.true_ends[-1]), end_of_sound_s(spoken.pcm))
    return float((end_s - timed.true_starts[-1]) / said_s)


def last_word_is_missing(judge: Judge, line: str, pcm: Samples) -> bool:
    """Return whether the recogniser heard nothing in the place of the last word."""
    wanted = words_of(line)
    heard = judge.hear((pcm / 32768).astype(np.float32))
    return end_is_missing(wanted, nearest(wanted, heard))


def loud_blocks(pcm: Samples) -> npt.NDArray[np.int64]:
    """Return which blocks of 5 ms are above the level of speech."""
    num_block = round(SAMPLE_RATE_HZ * BLOCK_S)
    blocks = pcm[: len(pcm) // num_block * num_block].reshape(-1, num_block) / 32_768
    return np.flatnonzero(np.sqrt(np.mean(blocks**2, axis=1)) > SPEECH_RMS)


def end_of_sound_s(pcm: Samples) -> float:
    """Return when the last block above the level of speech ends."""
    loud = loud_blocks(pcm)
    return float(loud[-1] + 1) * BLOCK_S if len(loud) else 0.0


def run_figures(found: list[Run]) -> dict[str, float]:
    """Return the figures of the runs so far."""
    lengths = [run.length for run in found]
    shares = [run.last_word for run in found if run.last_word is not None]
    return {
        "runs": len(found),
        "runs_too_long": sum(length > MOST_LENGTH for length in lengths),
        "longest_over_predicted": round(max(lengths), 3),
        "runs_last_word_short": sum(share < LEAST_LAST_WORD for share in shares),
        "runs_last_word_missing": sum(run.last_word_missing for run in found),
        "runs_without_alignment": len(found) - len(shares),
        "last_word_share_min": round(min(shares), 3),
        "last_word_share_p01": round(float(np.quantile(shares, 0.01)), 3),
    }


def speed(options: argparse.Namespace) -> dict[str, float]:
    """Measure one stream, first PCM and how many streams keep real time."""
    rig = open_rig()
    try:
        return {
            "rtf_1stream": round(measure_rtf(rig), 3),
            "first_pcm_p50_ms": round(measure_first_pcm_ms(rig), 1),
            "realtime_streams": measure_streams(rig),
        }
    finally:
        rig.engine.stop()
        rig.thread.join()


def load(options: argparse.Namespace) -> dict[str, float]:
    """Load and speak in fresh processes; the best of three, as the file cache is warm then."""
    command = [sys.executable, "-m", "tests.bench.voice_load"]
    seen = [json.loads(subprocess.check_output(command)) for _ in range(3)]
    best: dict[str, float] = min(seen, key=lambda figures: float(figures["load_s"]))
    size = sum(path.stat().st_size for path in EMBEDDED_VOICE.rglob("*") if path.is_file())
    return best | {"size_mb": round(size / 1e6, 2)}


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    part.__name__: part for part in (words, teacher, dnsmos, runs, speed, load)
}


def main() -> None:
    """Run one part and write its figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--work", type=Path, default=Path(".work/voice"))
    parser.add_argument("--seconds", type=float, default=500.0, help="of `runs`")
    parser.add_argument("--runs", type=int, default=NUM_RUNS)
    parser.add_argument("--lines", type=int, help="of each held-out set; to try it out")
    parser.add_argument("--clean", type=Path, help="the teacher's speech of heldout_clean.txt")
    parser.add_argument("--agent", type=Path, help="the teacher's speech of heldout_agent.txt")
    parser.add_argument("--results", type=Path, help="folder of the result file")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    figures = PARTS[options.part](options)
    print(json.dumps(figures, indent=1))
    command = "python -m tests.bench.voice"
    print(write_result("voice", "cpu", figures, command, options.results))


if __name__ == "__main__":
    main()
