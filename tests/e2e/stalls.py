"""Real speech from an engine that is late on purpose, and the silences a listener hears of it.

The engine has the speech ready (the embedded voice's own samples) and hands it over a frame at a
time, a little before the sender runs dry; before chosen frames it waits until a given time after.
Or it is never late and the whole process stands still just before a chosen frame is to leave: half
a tick, so that what is silent lies before that frame.
"""

import asyncio
import ctypes
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from livekit import rtc

from playhead.engine.messages import Command, Done, Pcm, Playback, Result, Word, Words
from playhead.worker.client import EngineClient
from playhead.worker.demo.align import align
from playhead.worker.demo.server import Access
from playhead.worker.pcm_queue import FADE_S, TICK_S
from playhead.worker.permissions import RoomPolicy
from playhead.worker.session import RECEIVER_TOPIC, RoomSession
from playhead.worker.thread_carrier import ThreadCarrier
from playhead.worker.track import PumpKind
from tests.fakes import ScriptedEngine

Samples = npt.NDArray[np.int16]

FRAME_SAMPLES = 1920
LEAD_S = 0.06
"""So long before the sender runs dry a frame comes that is not late."""
EARLY_S = 0.6
"""The same where not the engine is late but the process."""
POLL_S = 0.012
BLOCK_S = 0.005
BLOCK = round(BLOCK_S * 24_000)
QUIET_SHARE = 0.1
"""A block this much below the loudness of the speech (20 dB) is silence."""
LEAST_GAP_S = 0.01
PIECE_S = 0.2
"""Pieces by which a recording is laid over the known speech."""
NEAR_S = 0.03
"""A silence may begin so much earlier than it should."""
LOUD_SHARE = 0.2
LOUD_S = 0.07
"""Speech is loud for so long after a stall."""
LOUD_BEFORE_S = 0.115
"""And for so long before it: where a silence of a stall of 80 ms is looked for, the speech has none
of its own."""


@dataclass(slots=True)
class _Delivery:
    """How far one request is."""

    soft_s: float = 0.0
    """When the sender runs dry of all that was handed over."""
    playing: bool = False
    stalled: set[int] = field(default_factory=set)


class LateEngine(ScriptedEngine):
    """Speaks known samples frame by frame in real time, late by `stalls_s` before some frames.

    Every request speaks the same samples; its text only counts as one word. With `freezes` the
    frames come in time and the process stands still instead.
    """

    def __init__(
        self,
        on_results: Callable[[list[Result]], None],
        speech: Samples,
        stalls_s: Mapping[int, float],
        freezes: bool = False,
    ) -> None:
        super().__init__(on_results)
        self._speech = speech
        self._stalls_s = stalls_s
        self._freezes = freezes
        self._deliveries: dict[str, _Delivery] = {}

    def _handle(self, command: Command, results: list[Result]) -> None:
        super()._handle(command, results)
        if not isinstance(command, Playback):
            return
        seen = command.snapshot
        spoken = self._live.get(seen.request_id)
        if spoken is None or seen.state != "playing":
            return
        delivery = self._deliveries.setdefault(seen.request_id, _Delivery())
        delivery.playing = True
        if seen.dry_at_s != seen.at_s:  # else a queue was found dry, nobody knows since when
            waiting = spoken.num_samples - seen.pushed_samples
            delivery.soft_s = seen.dry_at_s + waiting / 24_000

    def _speak(self, spoken: Any, results: list[Result]) -> None:
        request_id = spoken.submit.request_id
        delivery = self._deliveries.setdefault(request_id, _Delivery())
        if not delivery.playing or not spoken.closed:
            return
        number = spoken.num_samples // FRAME_SAMPLES
        late_s = self._stalls_s.get(number)
        wanted_s = delivery.soft_s + (-LEAD_S if late_s is None else late_s)
        if self._freezes:
            wanted_s = delivery.soft_s - EARLY_S
        now_s = time.monotonic()
        if wanted_s - now_s > POLL_S:
            return
        time.sleep(max(wanted_s - now_s, 0.0))
        if self._freezes and late_s is not None:
            begin_s = delivery.soft_s - TICK_S / 2
            threading.Timer(begin_s - time.monotonic(), freeze, (late_s,)).start()
        part = self._speech[spoken.num_samples : spoken.num_samples + FRAME_SAMPLES]
        if number == 0:
            word = Word("".join(spoken.words), 0.0, len(self._speech) / 24_000)
            results.append(Words(request_id, (word,), False))
        results.append(Pcm(request_id, spoken.num_samples, part.tobytes(), 1))
        spoken.num_samples += len(part)
        delivery.soft_s = max(delivery.soft_s, time.monotonic()) + len(part) / 24_000
        if spoken.num_samples >= len(self._speech):
            del self._live[request_id]
            results.append(Done(request_id, "stop", spoken.num_samples, number + 1))


def freeze(duration_s: float) -> None:
    """Keep every thread of this process from running Python, as a long native call would."""
    ctypes.PyDLL(None).usleep(round(duration_s * 1e6))


@asynccontextmanager
async def speaking(
    access: Access,
    room_name: str,
    pump: PumpKind,
    speech: Samples,
    stalls_s: Mapping[int, float],
    *,
    freezes: bool = False,
) -> AsyncIterator[list[dict[str, float]]]:
    """Serve a room with a late engine of its own; yield its receivers' reports as they come."""

    def make(on_results: Callable[[list[Result]], None]) -> LateEngine:
        return LateEngine(on_results, speech, stalls_s, freezes)

    client = EngineClient(ThreadCarrier(make))  # type: ignore[arg-type]
    client.start()
    room = rtc.Room()
    reports: list[dict[str, float]] = []

    def on_data(packet: rtc.DataPacket) -> None:
        told = json.loads(packet.data) if packet.topic == RECEIVER_TOPIC else {}
        if "audio_s" in told:  # else the word that somebody listens
            reports.append({"at_s": time.monotonic(), **told})

    room.on("data_received", on_data)
    session = RoomSession(room, client, RoomPolicy(), clock_events=True, pump=pump)
    token = access.token("speaker", room_name, kind="agent")
    await room.connect(access.url, token, rtc.RoomOptions(auto_subscribe=False))
    serving = asyncio.create_task(session.run())
    try:
        yield reports
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        await room.disconnect()
        client.close()


def stall_plan(
    speech: Samples, stalls_s: list[float], seed: int, least_apart_s: float = 1.0
) -> dict[int, float]:
    """Choose frames to be late: amid loud speech, where silence is heard, at least so far apart."""
    rng = np.random.default_rng(seed)
    quiet = quiet_blocks(speech, LOUD_SHARE)
    before, after = round(LOUD_BEFORE_S / BLOCK_S), round(LOUD_S / BLOCK_S)
    loud = []
    for number in range(10, len(speech) // FRAME_SAMPLES - 10):
        block = number * FRAME_SAMPLES // BLOCK
        if not quiet[block - before : block + after].any():
            loud.append(number)
    chosen: dict[int, float] = {}
    late = list(rng.permutation(stalls_s))
    least_apart = round(least_apart_s * 24_000 / FRAME_SAMPLES)
    last = -least_apart
    for number in loud:
        if late and number - last >= least_apart:
            chosen[number] = float(late.pop())
            last = number
    assert not late, f"the speech has no room for {len(late)} of {len(stalls_s)} stalls"
    return chosen


def quiet_blocks(sound: Samples, share: float = QUIET_SHARE) -> npt.NDArray[np.bool_]:
    """Return which blocks of 5 ms are silent beside the sound's own speech."""
    blocks = sound[: len(sound) // BLOCK * BLOCK].astype(np.float64).reshape(-1, BLOCK)
    power = np.sqrt(np.mean(blocks**2, axis=1))
    loudness = np.sqrt(np.mean(power[power > power.max() * 0.05] ** 2))
    return np.asarray(power < loudness * share)


def silences_at(speech: Samples, heard: Samples, plan: Mapping[int, float]) -> list[float]:
    """Return the longest low-energy window just before each late frame of a plan, in seconds.

    A frame's place is found by its own sound. Without stalls there is no such window: the plan's
    frames lie amid loud speech.
    """
    alignment = align(speech, heard, piece_s=PIECE_S)
    assert alignment.found_share > 0.7, f"only {alignment.found_share:.0%} of the speech was found"
    quiet = quiet_blocks(heard)
    longest = []
    for number, late_s in sorted(plan.items()):
        known_s = number * FRAME_SAMPLES / 24_000
        before = [p.offset_s for p in alignment.pieces if p.reference_s + PIECE_S <= known_s]
        expected_s = known_s + float(np.median([by_s for by_s in before if by_s is not None][-3:]))
        at_s = place_of(speech, known_s, heard, expected_s - 0.1, expected_s + late_s + 0.2)
        window = quiet[round((at_s - late_s - NEAR_S) / BLOCK_S) : round(at_s / BLOCK_S) + 2]
        longest.append(longest_run(window) * BLOCK_S)
    return longest


def place_of(
    speech: Samples, known_s: float, heard: Samples, first_s: float, last_s: float
) -> float:
    """Return where between two moments of a recording the speech from a moment on is heard."""
    piece = _part(speech, known_s + FADE_S, known_s + LOUD_S)
    sound = _part(heard, first_s, last_s + LOUD_S)
    energy = np.convolve(sound**2, np.ones(len(piece)), "valid")
    scores = np.correlate(sound, piece, "valid") / np.sqrt(energy + 1.0)
    return first_s + int(scores.argmax()) / 24_000 - FADE_S


def _part(sound: Samples, first_s: float, last_s: float) -> npt.NDArray[np.float64]:
    return sound[round(first_s * 24_000) : round(last_s * 24_000)].astype(np.float64)


def longest_run(flags: npt.NDArray[np.bool_]) -> int:
    """Return how many flags in a row are set at most."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(int)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def num_gaps(
    speech: Samples, undisturbed: Samples, heard: Samples, plan: Mapping[int, float]
) -> int:
    """Count the stalls with a silence that the run without stalls does not have there."""
    calm, late = silences_at(speech, undisturbed, plan), silences_at(speech, heard, plan)
    pairs = zip(calm, late, strict=True)
    return sum(b >= LEAST_GAP_S - 1e-6 and a < LEAST_GAP_S - 1e-6 for a, b in pairs)
