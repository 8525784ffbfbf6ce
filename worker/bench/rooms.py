"""`playhead bench rooms`: rooms of a real LiveKit server, their listeners, and an engine.

`embedded`: the built-in voice on this CPU, at most two of the rooms speaking at once; then more
speakers at once, one by one, as long as nobody hears a gap. `replay`: all rooms speak, over an
engine that says stored speech at the step times of a GPU, through the real scheduler, carrier and
pump. Rooms are entered one after another and warmed up before anything is counted. The media
server, the rooms and the listeners are processes of their own, and but for the carrier `thread` so
is the engine; in the carrier `process` every room is one.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from playhead.engine.errors import ConfigError, EngineFailure
from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker import sdk_routing
from playhead.worker.bench.player import nearest_rank
from playhead.worker.bench.report import Report

if TYPE_CHECKING:
    from playhead.worker.bench.room_host import HostProcess
    from playhead.worker.listener import Listener

PARTS = ("embedded", "replay")
CARRIERS = ("socket", "thread", "process")
SENTENCES = (
    "Good morning, and thanks for calling. How can I help you with your order today?",
    "The package left our warehouse on Monday, and it should be at your door by Friday.",
    "Let me check that for you. Please stay on the line while I look at your account.",
    "Would you like me to send you a message when the driver is near your street?",
)
TOKEN_S = 0.03
WARM_UP = "One moment please."
SPEAKING_AT_ONCE = 2
STAGGER_S = 0.4
HEARD_FRAME_MS = 100
"""All listeners share one process, and the machine with what is measured: woken rarely."""
TURN_S = 60.0
STEP_UP_S = 12.0
"""How long one more embedded speaker is tried."""
MOST_SPEAKERS = 8
AUDIBLE = 600
"""Sample value that counts as sound; the codec's silence stays below 100."""
_COMMON = ("gaps", "errors", "turns", "token_to_heard_p50_ms", "token_to_heard_p95_ms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `playhead bench rooms`."""
    parser.description = __doc__
    parser.add_argument("--parts", default=",".join(PARTS), help=f"default {','.join(PARTS)}")
    parser.add_argument("--carriers", default=",".join(CARRIERS), help="default: all three")
    parser.add_argument("--rooms", type=int, default=10, help="default 10")
    parser.add_argument("--window-s", type=float, default=45.0, help="counted; default 45")
    parser.add_argument(
        "--step-times", default="h200", metavar="NAME",
        help="of the part replay: a built-in name, or the engine-<device>.json of a GPU; "
        "default h200",
    )  # fmt: skip
    parser.add_argument("--pump", default="queued", choices=("queued", "direct"))
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default tests/bench/results")
    parser.add_argument("--limit-s", type=float, default=480.0, help=argparse.SUPPRESS)
    parser.set_defaults(device="cpu")


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when somebody heard a gap or a part failed."""
    parts, carriers = _chosen(args.parts, PARTS), _chosen(args.carriers, CARRIERS)
    if not 1 <= args.rooms <= 40 or args.window_s < 5:
        raise ConfigError(
            f"{args.rooms} rooms for {args.window_s:g} s; allowed are 1 to 40, from 5 s on"
        )
    report = Report("rooms", args)
    sdk_routing.touch()
    sdk_routing.install()  # all listeners are in this process
    with tempfile.TemporaryDirectory(prefix="playhead-rooms-") as folder:
        os.chmod(folder, 0o700)
        for part, carrier in itertools.product(parts, carriers):
            load = Load(args, part, carrier, Path(folder))
            enter_s = 8 if carrier == "process" else 4  # a room's process has to start
            takes_s = 2 * args.window_s + enter_s * args.rooms
            takes_s += MOST_SPEAKERS * STEP_UP_S if part == "embedded" else 0
            report.part(f"{part}, {carrier}", takes_s, lambda w=load: w.measure(report))  # type: ignore[misc]
    return int(report.failed)


def _chosen(given: str, known: Sequence[str]) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names or not set(names) <= set(known):
        raise ConfigError(f"{given!r} is not known; choose among {', '.join(known)}")
    return names


@dataclass(slots=True)
class Turn:
    """One reply, as its listener got it."""

    room: int
    begun_s: float = 0.0
    """When its first token was written."""
    heard_s: float = float("inf")
    """When its first sound was heard."""
    gaps: int = 0
    error: str = ""

    @property
    def wait_ms(self) -> float:
        """From the first token to the first sound."""
        return (self.heard_s - self.begun_s) * 1e3


@dataclass(slots=True)
class Load:
    """One part over one carrier."""

    args: argparse.Namespace
    part: str
    carrier: str
    folder: Path
    _hosts: list["HostProcess"] = field(default_factory=list)
    _chance: random.Random = field(default_factory=lambda: random.Random(1))
    _turns: "itertools.count[int]" = field(default_factory=itertools.count)
    _texts: "itertools.cycle[str]" = field(default_factory=lambda: itertools.cycle(SENTENCES))

    @property
    def suffix(self) -> str:
        """What figures of this load are called after their name."""
        return _suffix(self.part, self.carrier)

    def setup(self, mode: str, **given: object) -> dict[str, object]:
        """Return what a host of this load is told."""
        from playhead.worker.bench.room_host import HostSetup

        times = self.args.step_times if self.part == "replay" else None
        socket = None if self.carrier == "thread" else str(self.folder / f"{self.suffix}.sock")
        base = HostSetup(
            mode, times=times, socket=socket, speech=str(self.folder / "speech.npz"),
            pump=self.args.pump, texts=SENTENCES,
        )  # fmt: skip
        return {**asdict(base), **given}

    def measure(self, report: Report) -> None:
        """Measure, without rooms first, and tell."""
        if self.part == "replay":
            store_speech(self.folder / "speech.npz")
        speaking = self.args.rooms if self.part == "replay" else SPEAKING_AT_ONCE
        alone_ms = self._without_rooms(speaking)
        figures = asyncio.run(self._in_rooms(speaking))
        figures["step_p99_ms_alone"] = alone_ms
        figures["step_p99_ratio"] = figures["step_p99_ms"] / alone_ms
        named = {f"{name}{self.suffix}": round(value, 3) for name, value in figures.items()}
        report.failed |= figures["gaps"] + figures["errors"] > 0
        report.tell(named)
        assert report.path is not None
        known = json.loads(report.path.read_text(encoding="utf-8"))["figures"]
        report.tell(_asked_for(known, self.args.rooms))

    def _without_rooms(self, speaking: int) -> float:
        from playhead.worker.bench.room_host import HostProcess

        host = HostProcess(self.setup("callers", socket=None, callers=speaking))
        try:
            host.wait()
            time.sleep(self.args.window_s / 3 + 0.3 * speaking)
            return host.metrics["step_s_p99"] * 1e3
        finally:
            host.stop()

    async def _in_rooms(self, speaking: int) -> dict[str, float]:
        async with self._entered() as listeners:
            for room in range(len(listeners)):
                await self._speak(listeners, room, WARM_UP)
            turns = await self._talk(listeners, speaking, self.args.window_s)
            figures = summary(turns)
            figures["step_p99_ms"] = self._metrics()["step_s_p99"] * 1e3
            if self.part == "embedded":
                figures["speakers_0gaps"] = float(
                    await self._more_speakers(listeners, speaking, turns)
                )
            return figures

    def _metrics(self) -> dict[str, float]:
        return next(host.metrics for host in self._hosts if host.metrics)

    async def _more_speakers(
        self, listeners: Sequence["Listener"], speaking: int, turns: list[Turn]
    ) -> int:
        """Return the most rooms that spoke at once without a gap or a refusal."""
        best = 0
        if speaking > 1 and any(turn.gaps or turn.error for turn in turns):
            speaking = 1
            turns = await self._talk(listeners, speaking, STEP_UP_S)
        while not any(turn.gaps or turn.error for turn in turns):
            best, speaking = speaking, speaking + 1
            if speaking > min(len(listeners), MOST_SPEAKERS):
                break
            turns = await self._talk(listeners, speaking, STEP_UP_S)
        return best

    @asynccontextmanager
    async def _entered(self) -> AsyncIterator[list["Listener"]]:
        """Start everything, enter the rooms one after another, leave and stop in the end."""
        from playhead.worker.demo.server import LocalServer
        from playhead.worker.interpreter import settle
        from playhead.worker.listener import Listener

        settle()  # a thousand frames a second come from the SDK's thread
        listeners: list[Listener] = []
        with LocalServer() as server:
            access = server.access
            try:
                if self.carrier != "thread":
                    self._start(self.setup("engine"))
                if self.carrier != "process":
                    self._start(self.setup("rooms", url=access.url))
                for number in range(self.args.rooms):
                    room = f"bench-{number}"
                    if self.carrier == "process":
                        self._start(self.setup("rooms", url=access.url))
                    self._hosts[-1].tell(access.token("speaker", room, kind="agent"))
                    listener = Listener(HEARD_FRAME_MS)
                    listeners.append(listener)
                    await listener.join(access.url, access.token("listener", room))
                    await asyncio.sleep(STAGGER_S)
                yield listeners
            finally:
                await asyncio.gather(*(each.leave() for each in listeners), return_exceptions=True)
                for host in reversed(self._hosts):
                    await asyncio.to_thread(host.stop)
                self._hosts.clear()

    def _start(self, setup: dict[str, object]) -> None:
        from playhead.worker.bench.room_host import HostProcess

        host = HostProcess(setup)
        self._hosts.append(host)
        host.wait()

    async def _talk(
        self, listeners: Sequence["Listener"], speaking: int, lasts_s: float
    ) -> list[Turn]:
        """Let `speaking` rooms at a time reply one after another; return what ends in the window.

        They begin one by one before it, so that replies do not come in step: nothing ties the
        rooms of a worker together.
        """
        rooms = list(range(len(listeners)))
        counted_s = time.monotonic() + lasts_s / 9
        end_s = counted_s + lasts_s
        turns: list[Turn] = []

        async def lane() -> None:
            await asyncio.sleep(self._chance.uniform(0.0, lasts_s / 9))
            while time.monotonic() < end_s:
                room = rooms.pop(0)
                turn = await self._speak(listeners, room, next(self._texts))
                if time.monotonic() >= counted_s:
                    turns.append(turn)
                rooms.append(room)
                await asyncio.sleep(self._chance.uniform(0.2, 0.6))

        async with asyncio.TaskGroup() as group:
            for _ in range(speaking):
                group.create_task(lane())
        for room, listener in enumerate(listeners):
            note_heard([turn for turn in turns if turn.room == room], listener)
        return turns

    async def _speak(self, listeners: Sequence["Listener"], room: int, text: str) -> Turn:
        from playhead.worker.demo.llm import write_tokens

        listener, turn = listeners[room], Turn(room)
        name = f"t{next(self._turns)}"
        seed = SENTENCES.index(text) if text in SENTENCES else 0

        def began(_: str) -> None:
            turn.begun_s = turn.begun_s or time.monotonic()

        tokens = write_tokens(text, TOKEN_S, began)
        await listener.speak(tokens, request_id=name, seed=str(seed))
        try:
            async with asyncio.timeout(TURN_S):
                while True:
                    event = await listener.events.get()
                    if event.get("request_id") != name:
                        continue
                    if event["type"] == "finished":
                        turn.gaps = int(event["gaps"])
                        break
                    if event["type"] in ("error", "interrupted"):
                        turn.error = str(event.get("code", event["type"]))
                        break
        except TimeoutError:
            turn.error = "no end"
        return turn


def note_heard(turns: Sequence[Turn], listener: "Listener") -> None:
    """Write into each reply when its first sound came out of the listener's jitter buffer.

    By the buffer's own pace: how late this process, which hears for all rooms, took a frame is no
    part of it.
    """
    recording = listener.recording
    starts, taken_s = recording.arrivals()
    if not len(starts):
        return
    loud = np.abs(recording.pcm().astype(np.int32)) > AUDIBLE
    pieces = np.flatnonzero(np.maximum.reduceat(loud, starts)).tolist()
    for turn in (each for each in turns if not each.error):
        for piece in (each for each in pieces if taken_s[each] > turn.begun_s):
            place = starts[piece] + loud[starts[piece] :].argmax()
            heard_s = recording.time_at_s(float(place) / SAMPLE_RATE_HZ)
            if heard_s > turn.begun_s:  # else the end of the reply before, taken late
                turn.heard_s = heard_s
                break


def summary(turns: Sequence[Turn]) -> dict[str, float]:
    """Return the figures of a window's replies; an unheard one counts as an error."""
    waits = [turn.wait_ms for turn in turns if turn.heard_s < float("inf")]
    errors = len(turns) - len(waits)
    for problem in sorted({turn.error for turn in turns if turn.error}):
        print(f"a reply ended with: {problem}", file=sys.stderr)
    if not waits:
        raise EngineFailure("no reply was heard")
    values = (
        sum(turn.gaps for turn in turns), errors, len(turns),
        statistics.median(waits), nearest_rank(waits, 0.95),
    )  # fmt: skip
    return dict(zip(_COMMON, map(float, values), strict=True))


def _asked_for(known: dict[str, float], rooms: int) -> dict[str, float]:
    """Return the figures under the names by which they are compared, from those of the loads."""
    suffixes = (_suffix(*load) for load in itertools.product(PARTS, CARRIERS))
    gaps = [known[f"gaps{s}"] for s in suffixes if f"gaps{s}" in known]
    found = {f"gaps_{rooms}rooms": sum(gaps)}
    for name, source in (
        (f"token_to_heard_p50_ms_{rooms}rooms", "token_to_heard_p50_ms_replay"),
        (f"token_to_heard_p95_ms_{rooms}rooms", "token_to_heard_p95_ms_replay"),
        ("step_p99_ratio_rooms", "step_p99_ratio_replay"),
        ("embedded_speakers_0gaps", "speakers_0gaps_embedded"),
    ):
        if source in known:
            found[name] = known[source]
    return found


def _suffix(part: str, carrier: str) -> str:
    """Return the end of a load's names; a worker's own carrier is not named."""
    return f"_{part}" if carrier == CARRIERS[0] else f"_{part}_{carrier}"


def store_speech(path: Path) -> None:
    """Let the embedded voice say every text once, for a replaying engine to say it again."""
    if path.exists():
        return
    from playhead.worker.demo.show import render_directly

    np.savez(path, *(render_directly(text, number) for number, text in enumerate(SENTENCES)))
