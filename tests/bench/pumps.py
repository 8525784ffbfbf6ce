"""Both pumps against each other, heard by real receivers: which one should be the default?

    python -m tests.bench.pumps [PART ...]      parts below; all of them without arguments

    stalls      engine 20, 40, 80 ms late inside two speeches, a Python listener: gaps of both;
                stretched and concealed time, target, buffer and an ASR's words of the second.
                In two parts of under five minutes: `stalls_queued`, `stalls_withheld`
    chromium    the same stalls heard by a browser
    freezes     the whole process stands still for 50 to 200 ms while the engine is in time
    turns       first sound of turns 2 to 5 after 1, 5, 30 and 1 s of idle, with and without DTX
    interrupt   sound over -50 dBFS later than 120 ms after an interruption, with and without DTX
    cost        CPU per room and lateness of pushes at 1, 5, 10, 20 rooms in one process
    processes   the same for rooms in processes of their own

A gap is a low-energy window of 10 ms or more at a late frame amid loud speech that the run without
stalls has not. Run on an idle machine; writes `results/pumps-cpu.json`.
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

from playhead.worker.demo.llm import PARAGRAPH
from playhead.worker.demo.server import Access, LocalServer
from playhead.worker.demo.show import render_directly
from playhead.worker.listener import Listener
from playhead.worker.track import PumpKind
from tests.asr import wer
from tests.bench.pump_cost import PUMPS, Figures, measure_cost, measure_processes, set_up, show
from tests.bench.result import write_result
from tests.e2e.rig import HeardSpeech, Spoken, run_listener
from tests.e2e.stalls import LEAST_GAP_S, Samples, num_gaps, silences_at, speaking, stall_plan

NAMES = {"queued": "queued", "direct": "withheld"}
NUM_STALLS = 9
SEEDS = (1, 2)
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
    figures: Figures = {}
    with LocalServer() as server:
        for pump, seed in itertools.product(pumps, seeds):
            name, speech = NAMES[pump], render_directly(PARAGRAPH, seed)
            calm, reports = await hear(server.access, pump, speech, {}, freezes)
            figures |= receiver_figures(f"0ms_{kind}_{name}", calm, reports)
            for length_ms in late_ms:
                plan = stall_plan(speech, [length_ms / 1000] * NUM_STALLS, seed)
                late, reports = await hear(server.access, pump, speech, plan, freezes)
                heard = num_gaps(speech, calm.pcm, late.pcm, plan)
                for what, num in (("gaps", heard), ("clock_gaps", late.end_of("s")["gaps"])):
                    counted = f"{what}_{length_ms}ms_{kind}_{name}"
                    figures[counted] = figures.get(counted, 0) + num
                figures |= receiver_figures(f"{length_ms}ms_{kind}_{name}", late, reports)
                show(figures, f"{length_ms}ms_{kind}_{name}")
    figures[f"{kind}_each"] = NUM_STALLS * len(seeds)
    return figures


def receiver_figures(name: str, heard: HeardSpeech, reports: Sequence[dict[str, float]]) -> Figures:
    """Return what one run cost the listener; milliseconds over the whole speech."""
    last = reports[-8:]
    return {
        f"stretched_ms_{name}": heard.end_of("s")["stretched_s"] * 1000,
        f"concealed_ms_{name}": sum(report["concealed_s"] for report in reports) * 1000,
        f"target_ms_{name}": statistics.fmean(r["target_s"] for r in last) * 1000,
        f"buffer_ms_{name}": statistics.fmean(r["jitter_buffer_s"] for r in last) * 1000,
        f"wer_{name}": wer(PARAGRAPH, heard.pcm),
    }


async def measure_chromium() -> Figures:
    """Let a browser hear stalls through both pumps."""
    from tests.e2e.test_withholding import SHORT, browse

    node, chromium = shutil.which("node"), shutil.which("chromium")
    assert node is not None and chromium is not None, "needs node and chromium"
    speech = render_directly(SHORT, 7)
    figures: Figures = {"chromium_stalls_each": 8}
    with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
        for pump, late_ms in itertools.product(PUMPS, (40, 80)):
            gaps, concealed_s, targets = 0, 0.0, [0.0]
            for seed in SEEDS:
                plan = stall_plan(speech, [late_ms / 1000] * 4, seed)
                room = f"{pump}-{late_ms}-{seed}"
                async with speaking(server.access, room, pump, speech, plan) as reports:
                    result = await browse(server.access, room, node, chromium, Path(folder))
                pcm = np.frombuffer(base64.b64decode(result["pcm"]), np.int16)
                gaps += sum(s >= LEAST_GAP_S - 1e-6 for s in silences_at(speech, pcm, plan))
                concealed_s += sum(report["concealed_s"] for report in reports)
                targets += [report["target_s"] for report in reports]
            name = f"{late_ms}ms_stalls_{NAMES[pump]}_chromium"
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
    "stalls_queued": lambda: asyncio.run(measure_stalls(("queued",), (20, 40, 80), False)),
    "stalls_withheld": lambda: asyncio.run(measure_stalls(("direct",), (20, 40, 80), False)),
    "chromium": lambda: asyncio.run(measure_chromium()),
    "freezes": lambda: asyncio.run(measure_stalls(PUMPS, (50, 80, 100, 200), True)),
    "turns": lambda: asyncio.run(measure_turns()),
    "interrupt": lambda: asyncio.run(measure_interrupt()),
    "cost": measure_cost,
    "processes": measure_processes,
}


def main() -> None:
    """Measure the named parts, or all, and write their figures."""
    wanted = sys.argv[1:] or list(PARTS)
    for name in wanted:
        if name not in [*PARTS, "stalls"]:
            sys.exit(f"no part {name!r}; parts are {', '.join(PARTS)}, and stalls: two of them")
    set_up()
    for part in [part for part in PARTS if part in wanted or part.split("_")[0] in wanted]:
        figures = {name: round(float(value), 4) for name, value in PARTS[part]().items()}
        write_result("pumps", "cpu", figures, "python -m tests.bench.pumps")


if __name__ == "__main__":
    main()
