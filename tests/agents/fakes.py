"""Stand-ins of the agents' tests: carriers around or instead of an engine, an LLM, a listener."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Never

from livekit import rtc
from livekit.agents import Agent, AgentSession, llm, tts, utils
from livekit.agents.types import (
    DEFAULT_API_CONNECT_OPTIONS,
    NOT_GIVEN,
    APIConnectOptions,
    NotGivenOr,
)
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities

from playhead.engine.errors import TransportError
from playhead.engine.messages import (
    Accepted,
    Append,
    Close,
    Command,
    Done,
    Pcm,
    Playback,
    PlaybackSnapshot,
    Recording,
    Result,
    Submit,
    Word,
    Words,
)
from playhead.engine.units import FRAME_SAMPLES, SAMPLE_BYTES, SAMPLE_RATE_HZ
from playhead.worker.carrier import Carrier, EngineStatus, OnLost, OnResults

Answer = Callable[[Command], list[Result]]


class ScriptedCarrier:
    """An engine made of a function: each command is answered at once, on the caller's thread."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.sent: list[Command] = []
        self.playbacks: list[PlaybackSnapshot] = []
        self.running = False
        self.exact_times = False

    def start(self, on_results: OnResults, on_lost: OnLost) -> None:
        self.on_results, self.on_lost = on_results, on_lost
        self.running = True

    def send(self, command: Command) -> None:
        if not self.running:
            raise TransportError("no engine")
        if isinstance(command, Playback):
            self.playbacks.append(command.snapshot)
            return
        self.sent.append(command)
        results = self.answer(command)
        if results:
            self.on_results(results)

    def status(self) -> EngineStatus:
        return EngineStatus(
            ready=self.running,
            voices=("ada", "bo"),
            languages=("english",),
            exact_times=self.exact_times,
        )

    def close(self) -> None:
        self.running = False

    def of(self, kind: type[Command]) -> list[Any]:
        return [command for command in self.sent if isinstance(command, kind)]


class WatchedCarrier:
    """Passes everything on to a real carrier and keeps what went either way.

    With a recording every request speaks that instead of its text, so words and times are known.
    """

    def __init__(self, inner: Carrier) -> None:
        self.inner = inner
        self.num_submits = 0
        """Since the beginning."""
        self.forget()

    def forget(self) -> None:
        """Keep nothing of what went before."""
        self.recording: Recording | None = None
        self.sent: list[Command] = []
        self.results: list[Result] = []
        self.on_send: Callable[[Command], None] = lambda command: None

    def start(self, on_results: OnResults, on_lost: OnLost) -> None:
        def watch(results: list[Result]) -> None:
            self.results += results
            on_results(results)

        self.inner.start(watch, on_lost)

    def pcm(self) -> bytes:
        """All samples the engine published."""
        return b"".join(result.pcm for result in self.results if isinstance(result, Pcm))

    def send(self, command: Command) -> None:
        self.sent.append(command)
        self.num_submits += isinstance(command, Submit)
        self.on_send(command)
        if self.recording is not None:
            if isinstance(command, Append | Close):
                return
            if isinstance(command, Submit):
                command = replace(command, text="", closed=False, recording=self.recording)
        self.inner.send(command)

    def status(self) -> EngineStatus:
        return self.inner.status()

    def close(self) -> None:
        self.inner.close()

    def of(self, kind: type[Command]) -> list[Any]:
        return [command for command in self.sent if isinstance(command, kind)]


def frame_pcm(number: int) -> bytes:
    """One codec frame of samples that tell frames apart."""
    return (100 + number).to_bytes(2, "little") * FRAME_SAMPLES


def pcm(request_id: str, frame: int) -> Pcm:
    return Pcm(request_id, frame * FRAME_SAMPLES, frame_pcm(frame), 1)


class WordSpeaker:
    """Answers like an engine that speaks a word in so many frames, as soon as it is whole."""

    def __init__(self, estimated: bool = False, frames_per_word: int = 1) -> None:
        self.estimated = estimated
        self.frames_per_word = frames_per_word
        self._text: dict[str, str] = {}
        self._frames: dict[str, int] = {}

    @property
    def word_s(self) -> float:
        return self.frames_per_word * FRAME_SAMPLES / SAMPLE_RATE_HZ

    def __call__(self, command: Command) -> list[Result]:
        if isinstance(command, Submit):
            self._text[command.request_id] = ""
            self._frames[command.request_id] = 0
            rest = self._take(command.request_id, command.text, command.closed)
            return [Accepted(command.request_id), *rest]
        if isinstance(command, Append):
            return self._take(command.request_id, command.text, False)
        if isinstance(command, Close):
            return self._take(command.request_id, "", True)
        return []

    def _take(self, request_id: str, text: str, closed: bool) -> list[Result]:
        out: list[Result] = []
        *whole, rest = (self._text[request_id] + text).split(" ")
        pieces = [word + " " for word in whole] + ([rest] if closed and rest else [])
        self._text[request_id] = "" if closed else rest
        for piece in pieces:
            frame = self._frames[request_id]
            at_s = frame * FRAME_SAMPLES / SAMPLE_RATE_HZ
            word = Word(piece, at_s, at_s + self.word_s)
            out.append(Words(request_id, (word,), self.estimated))
            for _ in range(self.frames_per_word):
                out.append(pcm(request_id, self._frames[request_id]))
                self._frames[request_id] += 1
        if closed:
            frames = self._frames[request_id]
            out.append(Done(request_id, "stop", frames * FRAME_SAMPLES, frames))
        return out


def silent(command: Command) -> list[Result]:
    """Answer like an engine that accepts everything and then hangs."""
    return [Accepted(command.request_id)] if isinstance(command, Submit) else []


class ScriptedLLM(llm.LLM[Never]):
    """Replies with the next of its texts, token by token, or with a call of a tool."""

    def __init__(self, *replies: str | dict[str, str], token_s: float = 0.0) -> None:
        super().__init__()
        self.replies = list(replies)
        self.token_s = token_s

    def on_token(self, number: int) -> None:
        """Called as each token of a reply is written."""

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        parallel_tool_calls: NotGivenOr[bool] = NOT_GIVEN,
        tool_choice: NotGivenOr[llm.ToolChoice] = NOT_GIVEN,
        extra_kwargs: NotGivenOr[dict[str, Any]] = NOT_GIVEN,
    ) -> llm.LLMStream:
        return _ScriptedStream(
            self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options
        )


class _ScriptedStream(llm.LLMStream):
    async def _run(self) -> None:
        assert isinstance(self._llm, ScriptedLLM)
        reply = self._llm.replies.pop(0)
        if isinstance(reply, dict):
            call = llm.FunctionToolCall(call_id=utils.shortuuid(), **reply)
            delta = llm.ChoiceDelta(role="assistant", tool_calls=[call])
            self._event_ch.send_nowait(llm.ChatChunk(id=utils.shortuuid(), delta=delta))
            return
        for number, token in enumerate(tokens(reply)):
            self._llm.on_token(number)
            delta = llm.ChoiceDelta(role="assistant", content=token)
            self._event_ch.send_nowait(llm.ChatChunk(id=utils.shortuuid(), delta=delta))
            await asyncio.sleep(self._llm.token_s)


def tokens(text: str) -> list[str]:
    """Cut a text as models do: pieces of up to four characters, spaces in front."""
    return [text[i : i + 4] for i in range(0, len(text), 4)]


class RealTimeSink(AudioOutput):
    """A listener without a room: plays what it is given in real time, stops when cleared."""

    def __init__(self) -> None:
        super().__init__(
            label="real-time-sink",
            capabilities=AudioOutputCapabilities(pause=False),
            sample_rate=SAMPLE_RATE_HZ,
        )
        self.frames: list[rtc.AudioFrame] = []
        """Frames of the segment that is captured or playing."""
        self.positions_s: list[float] = []
        """How far each finished segment was played."""
        self._started_s = 0.0
        self._pushed_s = 0.0
        self._end: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if self._pushed_s == 0.0:
            self.frames = []
            self._started_s = time.monotonic()
            self.on_playback_started(created_at=time.time())
        self.frames.append(frame)
        self._pushed_s += frame.duration

    def flush(self) -> None:
        super().flush()
        if self._pushed_s and self._end is None:
            left_s = max(self._started_s + self._pushed_s - time.monotonic(), 0.0)
            loop = asyncio.get_running_loop()
            self._end = loop.call_later(left_s, self._finish, self._pushed_s, False)

    def clear_buffer(self) -> None:
        if self._pushed_s:
            played_s = min(time.monotonic() - self._started_s, self._pushed_s)
            self._finish(played_s, True)

    def _finish(self, position_s: float, interrupted: bool) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
        self._pushed_s = 0.0
        self.positions_s.append(position_s)
        self.on_playback_finished(playback_position=position_s, interrupted=interrupted)

    @property
    def num_samples(self) -> int:
        return sum(frame.samples_per_channel for frame in self.frames)


def samples_of(frames: list[rtc.AudioFrame]) -> bytes:
    """All samples of the frames, as the engine publishes them."""
    data = b"".join(bytes(frame.data) for frame in frames)
    assert len(data) % SAMPLE_BYTES == 0
    return data


@asynccontextmanager
async def session_of(
    voice: tts.TTS[Any],
    model: ScriptedLLM,
    agent: Agent | None = None,
    sink: RealTimeSink | None = None,
    filters: bool = True,
) -> AsyncIterator[tuple[AgentSession[None], RealTimeSink]]:
    """Start a session without a room whose replies are heard by a real-time sink."""
    session: AgentSession[None] = AgentSession(
        llm=model,
        tts=voice,
        use_tts_aligned_transcript=True,
        user_away_timeout=None,
        tts_text_transforms=NOT_GIVEN if filters else None,
    )
    sink = sink or RealTimeSink()
    session.output.audio = sink
    await session.start(agent or Agent(instructions="Help."))
    try:
        yield session, sink
    finally:
        await session.aclose()


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Wait for something another thread or task brings about."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)


def said(session: AgentSession[None]) -> list[tuple[str, bool]]:
    """What the history holds of the agent: text, and whether it was cut short."""
    return [
        (item.text_content or "", item.interrupted)
        for item in session.history.items
        if item.type == "message" and item.role == "assistant"
    ]
