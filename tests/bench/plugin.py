"""What the LiveKit Agents plugin costs and leaves behind, on this CPU with the embedded voice.

    PYTHONPATH=. .venv/bin/python -m tests.bench.plugin [overhead] [leaks] [words] [onset] [peer]

`overhead` is measured with the embedded voice and again with stored speech for an engine (replay);
`onset` says a word 20 times, 5 s apart, in a real room, and looks what is left of its beginning;
`peer` runs LiveKit Agents' own TTS tests, as they are; docs/plugin.md says where to get them.
Merges into `results/plugin-cpu.json`, and names what is missing there; run it on an idle machine.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as Xml
from collections.abc import Callable
from pathlib import Path

import numpy as np
from livekit import rtc
from livekit.plugins import playhead

from playhead.engine.engine import Engine
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Command, Pcm, Result, Submit
from playhead.worker.client import EngineClient
from playhead.worker.demo.server import LocalServer
from playhead.worker.thread_carrier import ThreadCarrier
from tests.agents.conftest import admits_always
from tests.agents.endurance import Leaks, cancel, interrupt, take_turns, watch
from tests.agents.fakes import RealTimeSink, ScriptedLLM, WatchedCarrier, session_of, until
from tests.agents.test_room_track import turns_heard
from tests.bench.result import write_result
from tests.engine.driver import recording
from tests.worker.http.conftest import Launcher, end

FIGURES = (
    "plugin_overhead_p95_ms",
    "plugin_overhead_replay_p95_ms",
    "word_time_error_p50_ms",
    "word_time_error_p95_ms",
    "leaks_500_interrupts",
    "peer_tests_passed",
    "peer_tests_applicable",
)
"""What the file holds once every part has run; the others are for the reader."""
TURNS = 60
ONE_WORD_TURNS = 20
REPLY = "Take the second left after the bridge."
NEED_A_NETWORK = 2
"""Tests of the peer's nine that break a network: they can't apply to an engine in the process."""
HERE = Path(__file__).parent


class FirstSink(RealTimeSink):
    """Notes when the first frame of each segment is handed over."""

    def __init__(self) -> None:
        super().__init__()
        self.first_s: list[float] = []

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        if self._pushed_s == 0.0:
            self.first_s.append(time.perf_counter())
        await super().capture_frame(frame)


class TimedLLM(ScriptedLLM):
    """Notes when a reply is asked for: its first token follows at once."""

    def __init__(self, *replies: str) -> None:
        super().__init__(*replies, token_s=0.02)
        self.asked_s: list[float] = []

    def on_token(self, number: int) -> None:
        if number == 0:
            self.asked_s.append(time.perf_counter())


class TimedCarrier(WatchedCarrier):
    """Notes when each request was sent and when its first samples came."""

    def forget(self) -> None:
        super().forget()
        self.sent_s: dict[str, float] = {}
        self.first_s: dict[str, float] = {}

    def send(self, command: Command) -> None:
        if isinstance(command, Submit):
            self.sent_s[command.request_id] = time.perf_counter()
        super().send(command)

    def start(self, on_results: Callable[[list[Result]], None], on_lost: object) -> None:
        def watch_first(results: list[Result]) -> None:
            for result in results:
                if isinstance(result, Pcm):
                    self.first_s.setdefault(result.request_id, time.perf_counter())
            on_results(results)

        super().start(watch_first, on_lost)  # type: ignore[arg-type]


async def overheads_ms(
    carrier: TimedCarrier, client: EngineClient, filters: bool = False
) -> list[float]:
    """From the first token of a reply to its first frame at the sink, less the engine's part.

    The framework's own text filters hold the first token until the second came, 20 ms here.
    """
    carrier.sent_s.clear()
    carrier.first_s.clear()
    model, sink = TimedLLM(*[REPLY] * TURNS), FirstSink()
    async with session_of(playhead.TTS(engine=client), model, sink=sink, filters=filters) as (
        session,
        _,
    ):
        for number in range(TURNS):
            handle = session.generate_reply(user_input="Where?")
            await until(lambda at=number: len(sink.first_s) > at)  # type: ignore[misc]
            await session.interrupt()
            await handle
    engine_s = [carrier.first_s[name] - sent_s for name, sent_s in carrier.sent_s.items()]
    whole_s = [
        sink_s - token_s for sink_s, token_s in zip(sink.first_s, model.asked_s, strict=True)
    ]
    return [(whole - own) * 1000 for whole, own in zip(whole_s, engine_s, strict=True)]


def measure_overhead() -> dict[str, float]:
    """Measure with the embedded voice, then with stored speech."""
    carrier, client, _ = start_engine()
    try:
        spoken = asyncio.run(overheads_ms(carrier, client))
        filtered = asyncio.run(overheads_ms(carrier, client, filters=True))
        carrier.recording = recording("meeting")
        replayed = asyncio.run(overheads_ms(carrier, client))
    finally:
        client.close()
    return {
        "plugin_overhead_p50_ms": statistics.median(spoken),
        "plugin_overhead_p95_ms": float(np.quantile(spoken, 0.95)),
        "plugin_overhead_with_filters_p95_ms": float(np.quantile(filtered, 0.95)),
        "plugin_overhead_replay_p95_ms": float(np.quantile(replayed, 0.95)),
    }


def start_engine() -> tuple[TimedCarrier, EngineClient, Engine]:
    """Load the embedded voice into this process."""
    engines: list[Engine] = []

    def make(on_results: Callable[[list[Result]], None]) -> Engine:
        engines.append(Engine(EMBEDDED_VOICE, admits_always(), on_results))
        return engines[0]

    carrier = TimedCarrier(ThreadCarrier(make))
    client = EngineClient(carrier)
    client.start()
    return carrier, client, engines[0]


async def leaks_in_process(client: EngineClient, engine: Engine) -> Leaks:
    """Interrupt 500 streams of the embedded voice."""
    voice = playhead.TTS(engine=client)
    await interrupt(voice, 20)
    async with watch(lambda: engine.metrics.live) as leaks:
        await interrupt(voice, 500)
        await voice.aclose()
    return leaks


async def leaks_over_a_url(url: str) -> Leaks:
    """Take 200 turns and cancel 200 times over one connection."""
    voice = playhead.TTS(base_url=url)
    await take_turns(voice, 5)
    await voice.aclose()
    async with watch(lambda: 0) as leaks:
        await take_turns(voice, 200)
        await cancel(voice, 200)
        await voice.aclose()
    return leaks


def measure_leaks() -> dict[str, float]:
    """Count tasks, slots and sockets that are left."""
    _, client, engine = start_engine()
    try:
        here = asyncio.run(leaks_in_process(client, engine))
    finally:
        client.close()
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher(Path(folder))
        served = launcher.ready(launcher.begin("bench"))
        try:
            remote = asyncio.run(leaks_over_a_url(served.url))
            numbers = served.quiet()
        finally:
            end(served)
    remote.live = int(numbers["engine_live"] + numbers["http_live_utterances"])
    return {
        "leaks_500_interrupts": here.num,
        "leaks_400_remote": remote.num,
        "rss_growth_500_interrupts_mb": here.rss_mb,
        "rss_growth_400_remote_mb": remote.rss_mb,
    }


def measure_onset() -> dict[str, float]:
    """Hear one-word turns after 5 s of silence each."""
    server = LocalServer()
    server.start()
    try:
        turns = asyncio.run(turns_heard(server.access, "onset", [5.0] * ONE_WORD_TURNS))[1:]
    finally:
        server.stop()
    return {
        "onset_energy_least_percent": 100 * min(turn.share_of_onset() for turn in turns),
        "onset_error_most_ms": 1000 * max(abs(turn.late_s()) for turn in turns),
    }


def measure_peer(folder: Path, toxiproxy: Path, packages: Path) -> dict[str, float]:
    """Run the peer's file in this process's way and over the wire."""
    with tempfile.TemporaryDirectory() as scratch:
        launcher = Launcher(Path(scratch))
        proxy = subprocess.Popen([toxiproxy, "-port", "8474"], stdout=subprocess.DEVNULL)
        try:
            passed = run_peer(folder, packages, url="")
            served = launcher.ready(launcher.begin("peer"))
            passed_wire = run_peer(folder, packages, url=served.url)
            end(served)
        finally:
            proxy.terminate()
            proxy.wait()
    applicable = passed[1] - NEED_A_NETWORK + passed_wire[1]
    return {"peer_tests_passed": passed[0] + passed_wire[0], "peer_tests_applicable": applicable}


def run_peer(folder: Path, packages: Path, url: str) -> tuple[int, int]:
    """Return how many tests passed, and how many there are."""
    root = HERE.parent.parent
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [sys.executable, "-m", "pytest", "-p", "peer_adapter", "tests/test_tts.py"]
        command += ["--allow-uncategorized", "-q", "--timeout=120", f"--junitxml={report.name}"]
        paths = os.pathsep.join(map(str, (root / "src", HERE, packages)))
        told = {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "PLUGIN": "cartesia", "PEER_URL": url}
        subprocess.run(command, cwd=folder, env={**os.environ, **told}, check=False)
        cases = list(Xml.parse(report.name).getroot().iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None]
    print("failed:", [case.get("name") for case in failed])
    return len(cases) - len(failed), len(cases)


def main() -> None:
    """Measure what was asked for and write it down."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["overhead", "leaks", "words", "onset"])
    parser.add_argument("--peer", type=Path, help="a checkout of livekit/agents")
    parser.add_argument("--toxiproxy", type=Path, help="the built server")
    parser.add_argument(
        "--packages", type=Path, default=Path(), help="what the peer's tests import"
    )
    args = parser.parse_args()
    figures: dict[str, float] = {}
    if "overhead" in args.what:
        figures |= measure_overhead()
    if "leaks" in args.what:
        figures |= measure_leaks()
    if "words" in args.what:
        from tests.bench import word_times  # its aligner is a package of its own

        measured = word_times.measure()
        figures |= {name: measured[name] for name in FIGURES if name in measured}
    if "onset" in args.what:
        figures |= measure_onset()
    if "peer" in args.what:
        figures |= measure_peer(args.peer, args.toxiproxy, args.packages)
    for name, value in figures.items():
        print(f"{name} {value:.3g}")
    command = "python -m tests.bench.plugin " + " ".join(args.what)
    rounded = {name: round(value, 3) for name, value in figures.items()}
    path = write_result("plugin", "cpu", rounded, command)
    held = json.loads(path.read_text(encoding="utf-8"))["figures"]
    if missing := [name for name in FIGURES if name not in held]:
        print(f"{path} lacks {', '.join(missing)}")


if __name__ == "__main__":
    main()
