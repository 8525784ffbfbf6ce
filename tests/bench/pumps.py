"""Both pumps against each other, heard by real receivers: which one should be the default?

    python -m tests.bench.pumps [PART ...]      parts below; all of them without arguments

    stalls      engine 20, 40, 80 ms late inside two speeches, heard by a Python listener.
                In two parts of under five minutes: `stalls_queued`, `stalls_withheld`
    chromium    both heard by a browser: `chromium_stalls` (40 and 80 ms), `chromium_freezes`
    freezes     the whole process stands still for 50 to 200 ms while the engine is in time, in one
                speech. In two parts as well: `freezes_queued`, `freezes_withheld`
    turns       first sound of turns 2 to 5 after 1, 5, 30 and 1 s of idle, with and without DTX
    interrupt   sound over -50 dBFS later than 120 ms after an interruption, with and without DTX
    cost        CPU per room and lateness of pushes at 1, 5, 10, 20 rooms in one process
    processes   the same for rooms in processes of their own

A gap is a low-energy window of 10 ms or more at a late frame amid loud speech that the run without
stalls has not. Gaps, stretched and concealed time and changed words of stalls are sums over the
speeches; target, buffer, ear latency and word error rate are their means. `ear_latency_ms` is from
the sender to the listener's jitter buffer's end, by the recording. `words_changed` is how many
words a recogniser understood differently than in the run without stalls (`0ms`: in that run than in
the speech as it was made; `again`: in a second run without stalls). Run on an idle machine;
writes `results/pumps-cpu.json`.
"""

import asyncio
import base64
import itertools
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from livekit import rtc

from playhead.worker.demo.align import align
from playhead.worker.demo.asr import edit_distance, spoken_words
from playhead.worker.demo.llm import PARAGRAPH
from playhead.worker.demo.server import Access, LocalServer
from playhead.worker.demo.show import render_directly
from playhead.worker.listener import Listener
from playhead.worker.track import PumpKind
from tests.asr import transcriber, wer
from tests.bench.pump_cost import PUMPS, Figures, measure_cost, measure_processes, set_up, show
from tests.bench.result import write_result
from tests.e2e.rig import HeardSpeech, Spoken, run_listener
from tests.e2e.stalls import (
    LEAST_GAP_S,
    PIECE_S,
    Samples,
    num_gaps,
    silences_at,
    speaking,
    stall_plan,
)

NAMES = {"queued": "queued", "direct": "withheld"}
STALLS_MS = (20, 40, 80)
FREEZES_MS = (50, 80, 100, 200)
NUM_STALLS = 9
SEEDS = (1, 2)
SUMMED = ("gaps", "clock_gaps", "stretched_ms", "concealed_ms", "words_changed")
"""Of the speeches together; other figures of a stall are means."""
EDGE_S = 0.3
"""So near to the ends of a speech it is not measured when a moment of it is heard."""
SETTLE_S = 1.5
IDLE_S = (1.0, 5.0, 30.0, 1.0)
NUM_INTERRUPTS = 10
AUDIBLE = 600
FLOOR = 32_768 * 10 ** (-50 / 20)


async def hear(
    access: Access, pump: PumpKind, speech: Samples, plan: Mapping[int, float], freezes: bool
) -> tuple[HeardSpeech, list[dict[str, float]]]:
    """Let a listener's process hear one speech; return it with the reports while it sounded."""
    room = f"{pump}-{next(_rooms)}"
    with tempfile.TemporaryDirectory() as folder:
        async with speaking(access, room, pump, speech, plan, freezes=freezes) as reports:
            heard = await asyncio.to_thread(
                run_listener, access, room, [Spoken("s", "x")], Path(folder), settle_s=SETTLE_S
            )
    return heard, [report for report in reports if report["audio_s"] > 0.2]


_rooms = itertools.count()


async def measure_stalls(
    pumps: Sequence[PumpKind], late_ms: Sequence[int], freezes: bool
) -> Figures:
    """Hear speech with and without stalls of each length through some pumps.

    Each seed is a speech of its own, with its own places of stalls and its own calm run.
    """
    kind, seeds = ("freezes", SEEDS[:1]) if freezes else ("stalls", SEEDS)
    figures: Figures = {f"{kind}_each": NUM_STALLS * len(seeds)}
    with LocalServer() as server:
        for pump in pumps:
            runs: dict[str, list[Figures]] = {}
            for seed in seeds:
                speech = render_directly(PARAGRAPH, seed)
                known = speech
                for number, length_ms in enumerate((0, 0, *late_ms)):
                    late_s = [length_ms / 1000] * NUM_STALLS
                    plan = stall_plan(speech, late_s, seed) if length_ms else {}
                    heard, reports = await hear(server.access, pump, speech, plan, freezes)
                    found = run_figures(speech, known, heard, reports, plan)
                    if not number:
                        known = heard.pcm
                    what = "again" if number == 1 else f"{length_ms}ms"
                    name = f"{what}_{kind}_{NAMES[pump]}"
                    runs.setdefault(name, []).append(found)
                    show({f"{key}_{name}_seed{seed}": found[key] for key in found}, name)
            for name, each in runs.items():
                figures |= {f"{what}_{name}": of_speeches(what, each) for what in each[0]}
    return figures


def of_speeches(what: str, runs: Sequence[Figures]) -> float:
    """Return a figure of the same stalls in several speeches."""
    values = [run[what] for run in runs]
    return sum(values) if what in SUMMED else statistics.fmean(values)


def run_figures(
    speech: Samples,
    known: Samples,
    heard: HeardSpeech,
    reports: Sequence[dict[str, float]],
    plan: Mapping[int, float],
) -> Figures:
    """Return what one run cost the listener; milliseconds over the whole speech.

    `known`: the same speech heard without stalls, or as it was made where the plan has none.
    """
    last, end = reports[-8:], heard.end_of("s")
    understood = [spoken_words(transcriber().transcribe(pcm)) for pcm in (known, heard.pcm)]
    gaps: Figures = {"gaps": num_gaps(speech, known, heard.pcm, plan)} if plan else {}
    return {
        **gaps,
        "clock_gaps": end["gaps"],
        "stretched_ms": end["stretched_s"] * 1000,
        "concealed_ms": sum(report["concealed_s"] for report in reports) * 1000,
        "target_ms": statistics.fmean(report["target_s"] for report in last) * 1000,
        "buffer_ms": statistics.fmean(report["jitter_buffer_s"] for report in last) * 1000,
        "ear_latency_ms": ear_latency_ms(speech, heard),
        "words_changed": edit_distance(*understood),
        "wer": wer(PARAGRAPH, heard.pcm),
    }


def ear_latency_ms(speech: Samples, heard: HeardSpeech) -> float:
    """Return the median time from leaving the sender to the end of the jitter buffer.

    The product's clock tells which moment of the speech leaves just then; that moment's place in
    the recording tells when it was heard. What a withholding sender makes good counts from when it
    ought to have left.
    """
    found = align(speech, heard.pcm, piece_s=PIECE_S)
    last_s = len(speech) / 24_000 - EDGE_S
    latencies_s: list[float] = []
    for reading in heard.of("clock", "s"):
        leaves = EDGE_S < reading["exited_s"] < last_s and reading["slack_s"] > 0
        place_s = found.heard_at_s(reading["exited_s"]) if leaves else None
        if place_s is not None:
            latencies_s.append(heard.recording.time_at_s(place_s) - reading["clock_s"])
    return statistics.median(latencies_s) * 1000


async def measure_chromium(freezes: bool) -> Figures:
    """Let a browser hear stalls, or freezes of the process that speaks, through both pumps."""
    from tests.e2e.test_withholding import SHORT, browse

    node, chromium = shutil.which("node"), shutil.which("chromium")
    assert node is not None and chromium is not None, "needs node and chromium"
    speech = render_directly(SHORT, 7)
    kind, seeds = ("freezes", SEEDS[:1]) if freezes else ("stalls", SEEDS)
    figures: Figures = {f"chromium_{kind}_each": 4 * len(seeds)}
    with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
        for pump, late_ms in itertools.product(PUMPS, FREEZES_MS if freezes else STALLS_MS[1:]):
            gaps, concealed_s, targets = 0, 0.0, [0.0]
            for seed in seeds:
                plan = stall_plan(speech, [late_ms / 1000] * 4, seed)
                room = f"{pump}-{late_ms}-{seed}"
                speaks = speaking(server.access, room, pump, speech, plan, freezes=freezes)
                async with speaks as reports:
                    result = await browse(server.access, room, node, chromium, Path(folder))
                pcm = np.frombuffer(base64.b64decode(result["pcm"]), np.int16)
                gaps += sum(s >= LEAST_GAP_S - 1e-6 for s in silences_at(speech, pcm, plan))
                concealed_s += sum(report["concealed_s"] for report in reports)
                targets += [report["target_s"] for report in reports]
            name = f"{late_ms}ms_{kind}_{NAMES[pump]}_chromium"
            figures[f"gaps_{name}"] = gaps
            figures[f"concealed_ms_{name}"] = concealed_s * 1000
            figures[f"target_ms_max_{name}"] = max(targets) * 1000
            show(figures, name)
    return figures


async def measure_turns() -> Figures:
    """Ask for five turns with idle time between them; return the later ones' waits."""
    speech = render_directly("Let me check that for you.", 7)
    figures: Figures = {}
    with LocalServer() as server:

        async def waits_ms(pump: PumpKind, dtx: str) -> list[float]:
            room, found = f"turns-{pump}-{dtx}", []
            async with speaking(server.access, room, pump, speech, {}):
                listener = Listener()
                await listener.join(server.access.url, server.access.token("ear", room))
                for number, idle_s in enumerate((SETTLE_S, *IDLE_S)):
                    await asyncio.sleep(idle_s)
                    found.append(await first_sound_ms(listener, f"t{number}"))
                await listener.leave()
            return found[1:]

        for dtx in ("dtx", "no_dtx"):
            set_dtx(dtx == "dtx")
            both = await asyncio.gather(*(waits_ms(pump, dtx) for pump in PUMPS))
            for pump, found in zip(PUMPS, both, strict=True):
                for number, (idle_s, wait_ms) in enumerate(zip(IDLE_S, found, strict=True)):
                    turn = f"turn{number + 2}_after_{idle_s:.0f}s"
                    figures[f"{turn}_ms_{NAMES[pump]}_{dtx}"] = wait_ms
        set_dtx(False)
    show(figures, "turn")
    return figures


async def first_sound_ms(listener: Listener, request_id: str) -> float:
    """Speak and return the wait until the first audible sample; leaves once it has ended."""
    begun_s, place_s = time.monotonic(), listener.recording.num_samples / 24_000
    await listener.speak(one_token(), request_id=request_id)
    await listener.wait_for("finished", request_id, limit_s=60)
    loud = np.flatnonzero(np.abs(listener.recording.pcm(place_s)) > AUDIBLE)
    heard_s = listener.recording.time_at_s(place_s + loud[0] / 24_000)
    return (heard_s - begun_s) * 1000


async def one_token() -> AsyncIterator[str]:
    """Yield a text that the late engine does not read."""
    yield "x"


def set_dtx(on: bool) -> None:
    """Choose whether tracks published from now on stop packets in silence."""

    def options(**given: object) -> rtc.TrackPublishOptions:
        return _publish_options(**{**given, "dtx": on})

    rtc.TrackPublishOptions = options  # type: ignore[assignment,misc]


_publish_options: Callable[..., rtc.TrackPublishOptions] = rtc.TrackPublishOptions


async def measure_interrupt() -> Figures:
    """Interrupt speech at ten places; return what sounds later than 120 ms after it."""
    speech = render_directly(PARAGRAPH, 7)
    figures: Figures = {}
    with LocalServer() as server:
        for pump, dtx in itertools.product(PUMPS, ("dtx", "no_dtx")):
            set_dtx(dtx == "dtx")
            room, silent_ms, too_late = f"cut-{pump}-{dtx}", [], 0
            async with speaking(server.access, room, pump, speech, {}):
                listener = Listener()
                await listener.join(server.access.url, server.access.token("ear", room))
                await asyncio.sleep(SETTLE_S)
                for number in range(NUM_INTERRUPTS):
                    await listener.speak(one_token(), request_id=f"i{number}")
                    await listener.wait_for("started", f"i{number}", limit_s=30)
                    await asyncio.sleep(0.7 + 0.13 * number)
                    sent_s = time.monotonic()
                    place_s = listener.recording.num_samples / 24_000
                    await listener.interrupt()
                    await asyncio.sleep(0.6)
                    loud = np.flatnonzero(np.abs(listener.recording.pcm(place_s)) > FLOOR)
                    end_s = place_s + (loud[-1] / 24_000 if len(loud) else 0.0)
                    silent_ms.append((listener.recording.time_at_s(end_s) - sent_s) * 1000)
                    too_late += silent_ms[-1] > 120
                await listener.leave()
            figures[f"interrupts_with_sound_after_120ms_{NAMES[pump]}_{dtx}"] = too_late
            figures[f"interrupt_to_silence_max_ms_{NAMES[pump]}_{dtx}"] = max(silent_ms)
        set_dtx(False)
    figures["interrupts_each"] = NUM_INTERRUPTS
    show(figures, "interrupt")
    return figures


PARTS: dict[str, Callable[[], Figures]] = {
    "stalls_queued": lambda: asyncio.run(measure_stalls(("queued",), STALLS_MS, False)),
    "stalls_withheld": lambda: asyncio.run(measure_stalls(("direct",), STALLS_MS, False)),
    "chromium_stalls": lambda: asyncio.run(measure_chromium(freezes=False)),
    "chromium_freezes": lambda: asyncio.run(measure_chromium(freezes=True)),
    "freezes_queued": lambda: asyncio.run(measure_stalls(("queued",), FREEZES_MS, True)),
    "freezes_withheld": lambda: asyncio.run(measure_stalls(("direct",), FREEZES_MS, True)),
    "turns": lambda: asyncio.run(measure_turns()),
    "interrupt": lambda: asyncio.run(measure_interrupt()),
    "cost": measure_cost,
    "processes": measure_processes,
}


def main() -> None:
    """Measure the named parts, or all, and write their figures."""
    wanted = sys.argv[1:] or list(PARTS)
    for name in wanted:
        if name not in [*PARTS, *(part.split("_")[0] for part in PARTS)]:
            both = "stalls, freezes, chromium: two of them each"
            sys.exit(f"no part {name!r}; parts are {', '.join(PARTS)}, and {both}")
    set_up()
    for part in [part for part in PARTS if part in wanted or part.split("_")[0] in wanted]:
        figures = {name: round(float(value), 4) for name, value in PARTS[part]().items()}
        write_result("pumps", "cpu", figures, "python -m tests.bench.pumps")


if __name__ == "__main__":
    main()
