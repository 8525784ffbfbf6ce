"""Run the demo: start the parts, let the scripted model speak, show, record, judge, serve the page.

One event loop; the LiveKit server and the worker are processes of their own.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
import time
import wave
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
import numpy.typing as npt

from playhead.engine.units import SAMPLE_BYTES, SAMPLE_RATE_HZ
from playhead.worker.demo.asr import Transcriber
from playhead.worker.demo.chart import draw_clock
from playhead.worker.demo.check import judge
from playhead.worker.demo.llm import PARAGRAPH, write_tokens
from playhead.worker.demo.page import CallerPage
from playhead.worker.demo.parts import PartMissing, client_bundle, ensure_node_modules
from playhead.worker.demo.server import (
    Access,
    LocalServer,
    ServerFailed,
    end_with_parent,
    free_port,
)
from playhead.worker.demo.timeline import HEADER, Timeline
from playhead.worker.listener import Listener

ROOM = "playhead-demo"
REQUEST_ID = "demo-1"
SPEAKER_LIMIT_S = 20.0
"""From joining a room to hearing the worker's track in it."""
SPEECH_LIMIT_S = 120.0
ROW_PERIOD_S = 0.5
AUDIBLE_PEAK = 600
"""Sample value that counts as sound; the codec's silence stays below 100."""
SETTLE_S = 0.5


class DemoFailed(Exception):
    """The demo could not show what it should; the message says why."""


@dataclass(slots=True)
class WorkerProcess:
    """`playhead worker` as a process of its own."""

    access: Access
    folder: Path
    """For its log and for what its engine makes."""
    port: int = field(default_factory=free_port)
    _process: asyncio.subprocess.Process | None = field(init=False, default=None)

    @property
    def log_path(self) -> Path:
        """Return where its log goes."""
        return self.folder / "worker.log"

    def made(self, request_id: str) -> npt.NDArray[np.int16]:
        """Return what its engine made of a request."""
        return np.fromfile(self.folder / f"{request_id}.pcm", "<i2")

    async def start(self) -> None:
        """Start it; it registers by itself."""
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "playhead.worker.cli", "worker"),
                *("--clock-events", "--no-supervise", "--drain-s", "2", "--port", str(self.port)),
                *("--keep-pcm", str(self.folder)),
                env={**os.environ, **self.access.environment()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    async def ready(self, limit_s: float) -> None:
        """Wait until it takes rooms: one that exists before that would stay silent."""
        async with aiohttp.ClientSession() as client, asyncio.timeout(limit_s):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with client.get(f"http://127.0.0.1:{self.port}/ready") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.2)

    async def stop(self, limit_s: float = 8.0) -> None:
        """End it politely, then surely."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), limit_s)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def ended(self) -> str:
        """Wait until it ends by itself; return the end of its log."""
        assert self._process is not None
        await self._process.wait()
        return self.log_path.read_text(errors="replace")[-2000:]


@dataclass(slots=True)
class Demo:
    """One run of the demo."""

    args: argparse.Namespace
    text: str
    access: Access
    worker: WorkerProcess
    listener: Listener = field(default_factory=Listener)
    timeline: Timeline = field(default_factory=Timeline)
    spoken: npt.NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, np.int16))

    async def speak_once(self) -> None:
        """Join, let the scripted model write, show the table until all is heard, and record."""
        await self._join()
        print(HEADER)
        first_s = self.listener.recording.num_samples / SAMPLE_RATE_HZ
        reader = asyncio.create_task(self._read_events(REQUEST_ID))
        watchers = [
            asyncio.create_task(self._watch_ear(first_s)),
            asyncio.create_task(self._print_rows()),
        ]
        try:
            attributes = {"request_id": REQUEST_ID, "seed": str(self.args.seed)}
            await self.listener.speak(self._tokens(), **attributes)
            await asyncio.wait_for(reader, SPEECH_LIMIT_S)
        except TimeoutError:
            raise DemoFailed(f"no end of the speech after {SPEECH_LIMIT_S:.0f} s") from None
        finally:
            for task in (reader, *watchers):
                task.cancel()
        await asyncio.sleep(SETTLE_S)
        print(self.timeline.row(time.monotonic()))
        self.spoken = self.listener.recording.pcm(first_s)
        if self.timeline.outcome.get("type") == "error":
            raise DemoFailed(f"the speaker refused: {self.timeline.outcome['message']}")

    async def _join(self) -> None:
        """Wait for the speaker, or for the worker's early end."""
        joining = asyncio.create_task(self._meet_speaker())
        ending = asyncio.create_task(self.worker.ended())
        done, _ = await asyncio.wait({joining, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if joining not in done:
            joining.cancel()
            raise DemoFailed(f"the worker ended before it spoke:\n{ending.result()}")
        try:
            joining.result()
        except TimeoutError:
            log = self.worker.log_path.read_text(errors="replace")[-2000:]
            raise DemoFailed(f"the worker did not come:\n{log}") from None

    async def _meet_speaker(self) -> None:
        await self.worker.ready(self.args.worker_limit_s)
        token = self.access.token("listener", ROOM)
        await self.listener.join(self.access.url, token, speaker_limit_s=SPEAKER_LIMIT_S)

    def _tokens(self) -> AsyncIterator[str]:
        def first(_: str) -> None:
            self.timeline.first_token_s = self.timeline.first_token_s or time.monotonic()

        return write_tokens(self.text, self.args.token_ms / 1000, first)

    async def _read_events(self, request_id: str) -> None:
        while not self.timeline.outcome:
            event = await self.listener.events.get()
            if event.get("request_id") == request_id:
                self.timeline.take(event)

    async def _watch_ear(self, first_s: float) -> None:
        """Note when the first audible sample was heard."""
        while self.timeline.heard_s is None:
            await asyncio.sleep(0.02)
            if not self.timeline.first_token_s:
                continue
            loud = np.flatnonzero(np.abs(self.listener.recording.pcm(first_s)) > AUDIBLE_PEAK)
            if len(loud):
                place_s = first_s + float(loud[0]) / SAMPLE_RATE_HZ
                self.timeline.heard_s = self.listener.recording.time_at_s(place_s)

    async def _print_rows(self) -> None:
        while True:
            await asyncio.sleep(ROW_PERIOD_S)
            print(self.timeline.row(time.monotonic()), flush=True)


def write_wav(path: Path, pcm: npt.NDArray[np.int16]) -> None:
    """Write 24 kHz mono samples."""
    with wave.open(str(path), "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(SAMPLE_BYTES)
        wav.setframerate(SAMPLE_RATE_HZ)
        wav.writeframes(pcm.tobytes())


def render_directly(text: str, seed: int) -> npt.NDArray[np.int16]:
    """Return the engine's own samples of a text, written token by token, without a room."""
    from playhead.engine.library import open_model  # torch: only where a recording is judged
    from playhead.worker.demo.llm import split_tokens

    with open_model() as tts:
        pcm = b"".join(tts.stream(iter(split_tokens(text)), seed=seed))
    return np.frombuffer(pcm, np.int16)


async def _run(args: argparse.Namespace, access: Access, folder: Path) -> int:
    text = Path(args.text).read_text().strip() if args.text else PARAGRAPH
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    worker = WorkerProcess(access, folder)
    demo = Demo(args, text, access, worker)
    page = CallerPage(access)
    print("demo: starting the worker with the embedded voice", flush=True)
    await worker.start()
    try:
        await demo.speak_once()
        write_wav(out / "demo.wav", demo.spoken)
        drawn = await asyncio.to_thread(draw_clock, demo.timeline, out / "demo.png")
        print(f"demo: wrote {out / 'demo.wav'}{' and ' + str(out / 'demo.png') if drawn else ''}")
        if not args.once:
            await _serve(page, args.port)
            return 0
    finally:
        await demo.listener.leave()
        await page.stop()
        await worker.stop()
    return await asyncio.to_thread(_conclude, demo, out)


def _conclude(demo: Demo, out: Path) -> int:
    """Judge the recording; return the exit code."""
    engine, made = render_directly(demo.text, demo.args.seed), demo.worker.made(REQUEST_ID)
    write_wav(out / "demo-engine.wav", engine)
    write_wav(out / "demo-made.wav", made)
    verdict = judge(demo.text, engine, made, demo.spoken, Transcriber())
    print(f"demo: {verdict.summary()}")
    return 1 if verdict.problems else 0


async def _serve(page: CallerPage, port: int) -> None:
    try:
        if client_bundle() is None:
            await asyncio.to_thread(ensure_node_modules)
        address = await page.start(port)
        print(f"\ndemo: the caller page is at {address}  (Ctrl-C ends the demo)", flush=True)
    except PartMissing as missing:
        print(f"\ndemo: no caller page: {missing}  (Ctrl-C ends the demo)", flush=True)
    await _until_stopped()


async def _until_stopped() -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    print("\ndemo: stopping", flush=True)


def _with_server(args: argparse.Namespace, act: Callable[[Access, Path], int]) -> int:
    """Act with the server the flags name, or with one of our own."""
    with tempfile.TemporaryDirectory(prefix="playhead-demo-") as folder:
        if args.url:
            return act(Access(args.url, args.api_key, args.api_secret), Path(folder))
        with LocalServer() as server:
            print(f"demo: LiveKit server at {server.access.url}", flush=True)
            return act(server.access, Path(folder))


def run_demo(args: argparse.Namespace) -> int:
    """Run the demo to its end; return the exit code and never a traceback for known failures."""
    logging.getLogger("livekit").setLevel(logging.CRITICAL)  # calls each disconnect an error
    try:
        return _with_server(args, lambda access, folder: asyncio.run(_run(args, access, folder)))
    except (DemoFailed, PartMissing, ServerFailed) as failure:
        print(f"demo: {failure}", file=sys.stderr)
    except ModuleNotFoundError as missing:
        print(f"demo: {missing}; install playhead[engine,demo]", file=sys.stderr)
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
        return 130
    return 1
