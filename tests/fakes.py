"""A scripted engine: one tone of 240 ms per word, told what to do by the words themselves.

`!busy` and `!fail` in a text refuse or fail the request there; the voice "nobody" is unknown. It
honours the clock like the real engine: at most `TARGET_S` of audio ahead of the listener.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from playhead.engine.messages import (
    Accepted,
    Append,
    Cancel,
    Close,
    Command,
    Done,
    Failed,
    Pcm,
    Playback,
    PlaybackSnapshot,
    Refused,
    Result,
    Starved,
    Submit,
    Word,
    Words,
)
from playhead.engine.metrics import EngineMetrics

FRAMES_PER_WORD = 3
WORD_S = 0.24
TARGET_S = 1.0
FRAME = (np.sin(np.arange(1920) * (2 * np.pi * 10 / 1920)) * 8000).astype("<i2").tobytes()


@dataclass
class _Spoken:
    submit: Submit
    words: deque[str] = field(default_factory=deque)
    open_text: str = ""
    closed: bool = False
    num_words: int = 0
    num_samples: int = 0
    starved: bool = False
    playback: PlaybackSnapshot | None = None

    def push(self, text: str) -> None:
        self.open_text += text
        *whole, rest = self.open_text.split(" ")
        self.words.extend(f"{word} " for word in whole)
        self.open_text = rest

    def close(self) -> None:
        self.closed = True
        if self.open_text:
            self.words.append(self.open_text)
            self.open_text = ""

    def ahead_s(self, now_s: float) -> float:
        if self.playback is None:
            return 0.0 if self.num_samples == 0 else 10.0
        since_s = now_s if self.playback.state == "playing" else self.playback.at_s
        unpushed = self.num_samples - self.playback.pushed_samples
        return self.playback.dry_at_s - since_s + unpushed / 24000


class ScriptedEngine:
    """Stands in for engine.Engine where a test needs a script rather than a model."""

    voices: tuple[str, ...] = ("tone",)
    languages: tuple[str, ...] = ("english",)
    exact_times: bool = True

    def __init__(self, on_results: Callable[[list[Result]], None]) -> None:
        self._on_results = on_results
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._live: dict[str, _Spoken] = {}
        self._stopping = threading.Event()
        self.metrics = EngineMetrics()
        self.seen: list[Command] = []
        self.die = False

    def post(self, command: Command) -> None:
        self._commands.put(command)

    def stop(self) -> None:
        self._stopping.set()
        self._commands.put(None)

    def load(self) -> float:
        return min(len(self._live) / 16, 1.0)

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                command = self._commands.get(timeout=0.01 if self._live else 1.0)
            except queue.Empty:
                command = None
            if self.die:
                raise RuntimeError("the scripted engine was told to die")
            results: list[Result] = []
            if command is not None:
                self.seen.append(command)
                self._handle(command, results)
            for spoken in list(self._live.values()):
                self._speak(spoken, results)
            if results:
                self._on_results(results)

    def _handle(self, command: Command, results: list[Result]) -> None:
        if isinstance(command, Submit):
            results.append(self._submit(command))
            return
        if isinstance(command, Playback):
            known = self._live.get(command.snapshot.request_id)
            if known is not None:
                known.playback = command.snapshot
            return
        spoken = self._live.get(command.request_id)
        if spoken is None:
            return
        if isinstance(command, Append):
            spoken.push(command.text)
        elif isinstance(command, Close):
            spoken.close()
        elif isinstance(command, Cancel):
            del self._live[command.request_id]
            done = Done(command.request_id, "cancelled", spoken.num_samples, 0)
            results.append(done)

    def _submit(self, submit: Submit) -> Result:
        if submit.voice == "nobody":
            return Refused(submit.request_id, "unknown_voice", "no voice 'nobody'; have: tone")
        if "!busy" in submit.text:
            return Refused(submit.request_id, "busy", "full; try again in 0.5 s", 0.5)
        spoken = self._live[submit.request_id] = _Spoken(submit)
        spoken.push(submit.text)
        if submit.closed:
            spoken.close()
        return Accepted(submit.request_id)

    def _speak(self, spoken: _Spoken, results: list[Result]) -> None:
        request_id = spoken.submit.request_id
        while spoken.words:
            if spoken.submit.live and spoken.ahead_s(time.monotonic()) > TARGET_S:
                return
            word = spoken.words.popleft()
            if "!fail" in word:
                del self._live[request_id]
                results.append(Failed(request_id, "engine_failure", "told to fail"))
                return
            start_s = spoken.num_words * WORD_S
            timed = Word(word, start_s, start_s + WORD_S)
            results.append(Words(request_id, (timed,), False))
            results.append(Pcm(request_id, spoken.num_samples, FRAME * 3, 3))
            spoken.num_words += 1
            spoken.num_samples += 1920 * FRAMES_PER_WORD
            spoken.starved = False
        if spoken.closed:
            del self._live[request_id]
            frames = spoken.num_words * FRAMES_PER_WORD
            results.append(Done(request_id, "stop", spoken.num_samples, frames))
        elif spoken.num_words and not spoken.starved:
            spoken.starved = True
            results.append(Starved(request_id, spoken.num_samples))
