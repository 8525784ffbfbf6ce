"""A trace in a file: what a service recorded replays to the same decisions, and ends in bounds."""

import json
import logging
import stat
from pathlib import Path

import httpx
import numpy as np
import pytest

from playhead.engine.engine import Engine
from playhead.engine.errors import Busy, ConfigError
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.profile import load_profile
from playhead.engine.replay_times import load_times
from playhead.engine.runner import CodecResult
from playhead.worker.cli import main
from playhead.worker.simulate.load import Load, calls
from playhead.worker.simulate.trace import Recorder, replay
from playhead.worker.simulate.trace_file import TraceFile, read_trace, result_line
from playhead.worker.simulate.world import Setup, World, small_model
from tests.worker.http.conftest import Launcher, end

BALANCED = load_profile("balanced")


def record(folder: Path, max_bytes: int) -> Path:
    notes = TraceFile(folder, None, BALANCED, max_bytes)
    world = World(Setup(load_times("h200"), BALANCED), recorder=Recorder(notes))
    for each in calls(Load(6.0, 1.0, 0.0, paced=0.5, interrupted=0.4)):
        world.offer(each)
    world.run(1.5)
    assert world.outcomes, "the engine goes on whatever becomes of its trace"
    return notes.path


def test_a_file_that_is_full_ends_there_and_replays_so_far(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = record(tmp_path, max_bytes=300_000)
    assert 200_000 < path.stat().st_size <= 300_000
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "it holds the texts"
    assert [r.message for r in caplog.records] == [f"trace {path} ends here: it is full"]
    run = read_trace(path)
    assert len(run.trace.plans) > 10 and run.published
    made = replay(run.trace, small_model(), run.profile)
    assert made.plans == run.trace.plans
    published = [result_line(result) for result in made.results]
    assert published[: len(run.published)] == run.published


def test_a_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    path = record(tmp_path, max_bytes=300_000)
    whole = read_trace(path)
    path.write_bytes(path.read_bytes()[:-3])
    cut = read_trace(path)
    num = [len(r.trace.answers) + len(r.trace.plans) + len(r.published) for r in (whole, cut)]
    assert num[0] - num[1] == 1


def test_errors_and_samples_come_back_as_they_were(tmp_path: Path) -> None:
    notes = TraceFile(tmp_path, "model", BALANCED)
    pcm = np.arange(2 * 1920, dtype=np.int16).reshape(2, 1920)
    notes.answer("open", Busy("no memory for it", 1.5))
    notes.answer("open", KeyError("odd"))
    notes.answer("result", CodecResult(pcm, np.array([False, True])))
    notes.published([])
    run = read_trace(notes.path)
    busy, odd, result = (value for _, value in run.trace.answers)
    assert (run.model, run.profile) == ("model", BALANCED)
    assert isinstance(busy, Busy) and (str(busy), busy.retry_s) == ("no memory for it", 1.5)
    assert type(odd).__name__ == "KeyError"
    assert np.array_equal(result.pcm, pcm) and result.broken.tolist() == [False, True]


@pytest.mark.parametrize("text", ["", "{}\n", '{"trace": 2}\n', "no JSON\n"])
def test_what_is_no_trace_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "engine-1.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is no trace"):
        read_trace(path)
    with pytest.raises(ConfigError, match="name another folder"):
        TraceFile(path, None, BALANCED)


@pytest.mark.slow
def test_a_service_records_itself_and_is_replayed(tmp_path: Path) -> None:
    """Two utterances, one cut by its client; the same plans, results and samples again."""
    launcher, folder = Launcher(tmp_path), tmp_path / "traces"
    served = launcher.ready(launcher.begin("traced", "--record", str(folder)))
    speech = f"{served.url}/v1/audio/speech"
    body = {"model": "tts-1", "response_format": "pcm", "voice": "alloy"}
    whole = httpx.post(speech, json={**body, "input": "This is said to its end."}, timeout=60)
    assert whole.status_code == 200
    cut = {**body, "input": "This goes on for long. " * 20}
    with httpx.stream("POST", speech, json=cut, timeout=60) as answer:
        next(answer.iter_bytes())
    served.quiet()
    end(served)
    (path,) = folder.iterdir()
    run = read_trace(path)
    made = replay(run.trace, EMBEDDED_VOICE, run.profile, drive=Engine.run)
    assert len(run.trace.plans) > 20
    assert made.plans == run.trace.plans
    assert [result_line(result) for result in made.results] == run.published
    kinds = [header["type"] for header, _ in run.published]
    assert kinds.count("Accepted") == kinds.count("Done") >= 2
    reasons = {header["reason"] for header, _ in run.published if header["type"] == "Done"}
    assert reasons >= {"stop", "cancelled"}
    assert main(["simulate", "--parts", "trace", "--trace", str(path), "--out", str(tmp_path)]) == 0
    figures = json.loads((tmp_path / "simulate-none.json").read_text())["figures"]
    assert figures["trace_plans_same"] == figures["trace_plans"] == len(made.plans)
    assert figures["trace_results_same"] == 1.0
