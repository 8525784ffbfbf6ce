"""What the plugin does when the engine refuses, breaks, vanishes or falls silent."""

import asyncio
from dataclasses import dataclass, field

import pytest
from livekit.agents import (
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APIStatusError,
    APITimeoutError,
    tts,
)
from livekit.plugins import playhead

from playhead.engine.messages import (
    Accepted,
    Cancel,
    Close,
    Command,
    Done,
    Failed,
    Refused,
    Result,
    Submit,
)
from tests.agents.conftest import MakeTts
from tests.agents.fakes import (
    Answer,
    WordSpeaker,
    frame_pcm,
    pcm,
    samples_of,
    silent,
    tokens,
)

TEXT = "one two three"
WHOLE = b"".join(map(frame_pcm, range(3)))
FAST = APIConnectOptions(max_retry=3, retry_interval=0.01, timeout=2.0)


@dataclass
class Outcome:
    """What one stream gave its listener and its owner."""

    samples: bytes = b""
    events: list[tts.TTSError] = field(default_factory=list)
    error: BaseException | None = None
    num_metrics: int = 0

    @property
    def recoverable(self) -> list[bool]:
        return [event.recoverable for event in self.events]


async def speak(
    voice: playhead.TTS, chunked: bool = False, options: APIConnectOptions = FAST
) -> Outcome:
    outcome = Outcome()
    voice.on("error", outcome.events.append)

    def count(_: object) -> None:
        outcome.num_metrics += 1

    voice.on("metrics_collected", count)
    frames = []
    stream: tts.ChunkedStream | tts.SynthesizeStream
    if chunked:
        stream = voice.synthesize(TEXT, conn_options=options)
    else:
        stream = voice.stream(conn_options=options)
        for token in tokens(TEXT):
            stream.push_text(token)
        stream.end_input()
    try:
        async with stream:
            async for audio in stream:
                frames.append(audio.frame)
    except APIError as error:
        outcome.error = error
    outcome.samples = samples_of(frames)
    return outcome


class Attempts:
    """Answers the first submit with the first of its answers, and so on; the last one stays."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._of: dict[str, Answer] = {}

    def __call__(self, command: Command) -> list[Result]:
        request_id = getattr(command, "request_id", "")
        if isinstance(command, Submit):
            first = self._answers[0]
            self._of[request_id] = self._answers.pop(0) if len(self._answers) > 1 else first
        return self._of[request_id](command)


def refuse(code: str, retry_s: float | None) -> Answer:
    def answer(command: Command) -> list[Result]:
        if isinstance(command, Submit):
            return [Refused(command.request_id, code, f"refused: {code}", retry_s)]
        return []

    return answer


def fail(frames: int, code: str = "engine_failure") -> Answer:
    def answer(command: Command) -> list[Result]:
        if not isinstance(command, Submit):
            return []
        request_id = command.request_id
        audio = [pcm(request_id, number) for number in range(frames)]
        return [Accepted(request_id), *audio, Failed(request_id, code, "a step failed")]

    return answer


def stop(frames: int) -> Answer:
    def answer(command: Command) -> list[Result]:
        if not isinstance(command, Submit):
            return []
        request_id = command.request_id
        audio = [pcm(request_id, number) for number in range(frames)]
        return [Accepted(request_id), *audio, Done(request_id, "cancelled", 0, frames)]

    return answer


@pytest.mark.parametrize("chunked", [False, True], ids=["stream", "synthesize"])
@pytest.mark.parametrize(
    "first", [refuse("busy", 1.0), fail(0), fail(0, "transport"), stop(0)], ids=range(4)
)
async def test_what_broke_before_audio_is_tried_again(
    any_tts: MakeTts, first: Answer, chunked: bool
) -> None:
    voice, carrier = any_tts(Attempts(first, WordSpeaker()))
    outcome = await speak(voice, chunked)
    assert outcome.samples == WHOLE and outcome.error is None
    assert outcome.recoverable == [True] and outcome.num_metrics == 1
    assert len(carrier.of(Submit)) == 2


@pytest.mark.parametrize("chunked", [False, True], ids=["stream", "synthesize"])
@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (fail(1), APIStatusError),
        (fail(1, "transport"), APIConnectionError),
        (fail(1, "text_too_long"), APIStatusError),
        (stop(1), APIConnectionError),
    ],
    ids=range(4),
)
async def test_what_broke_after_audio_is_never_said_twice(
    any_tts: MakeTts, first: Answer, kind: type[APIError], chunked: bool
) -> None:
    voice, carrier = any_tts(Attempts(first, WordSpeaker()))
    outcome = await speak(voice, chunked)
    assert isinstance(outcome.error, kind) and not outcome.error.retryable
    assert outcome.recoverable == [False]
    assert len(carrier.of(Submit)) == 1
    assert WHOLE.startswith(outcome.samples) and len(outcome.samples) <= len(frame_pcm(0))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("unknown_voice", 400),
        ("unknown_language", 400),
        ("invalid_request", 400),
        ("text_too_long", 413),
    ],
)
async def test_bad_input_is_refused_once(any_tts: MakeTts, code: str, status: int) -> None:
    voice, carrier = any_tts(refuse(code, None))
    outcome = await speak(voice)
    assert isinstance(outcome.error, APIStatusError)
    assert outcome.error.status_code == status and code in str(outcome.error.body)
    assert outcome.recoverable == [False] and len(carrier.of(Submit)) == 1


async def test_a_busy_engine_is_asked_until_the_retries_are_used_up(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(refuse("busy", 1.0))
    outcome = await speak(voice)
    assert isinstance(outcome.error, APIStatusError) and outcome.error.status_code == 429
    assert outcome.recoverable == [True, True, True, False]
    assert len(carrier.of(Submit)) == 4 and outcome.num_metrics == 0


@pytest.mark.parametrize("chunked", [False, True], ids=["stream", "synthesize"])
@pytest.mark.parametrize("answer", [silent, lambda command: []], ids=["accepts", "hangs"])
async def test_a_silent_engine_times_out(any_tts: MakeTts, answer: Answer, chunked: bool) -> None:
    voice, carrier = any_tts(answer)
    options = APIConnectOptions(max_retry=1, retry_interval=0.01, timeout=0.05)
    outcome = await speak(voice, chunked, options)
    assert isinstance(outcome.error, APITimeoutError)
    assert outcome.recoverable == [True, False] and outcome.num_metrics == 0
    assert [c.request_id for c in carrier.of(Cancel)] == [c.request_id for c in carrier.of(Submit)]


async def test_a_writer_who_thinks_is_no_silent_engine(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(WordSpeaker())
    options = APIConnectOptions(max_retry=0, timeout=0.05)
    async with voice.stream(conn_options=options) as stream:
        await asyncio.sleep(0.1)
        stream.push_text("o")
        await asyncio.sleep(0.1)
        stream.push_text("ne two ")
        await asyncio.sleep(0.1)
        stream.push_text("three")
        stream.end_input()
        frames = [audio.frame async for audio in stream]
    assert samples_of(frames).replace(b"\0\0", b"") == WHOLE
    assert len(carrier.of(Submit)) == 1


async def test_an_engine_lost_in_mid_speech_gives_one_error(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(WordSpeaker())
    events: list[tts.TTSError] = []
    voice.on("error", events.append)
    stream = voice.stream(conn_options=FAST)
    stream.push_text("one two thr")
    async with stream:
        await anext(aiter(stream))
        carrier.on_lost("killed")
        with pytest.raises(APIConnectionError, match="killed") as raised:
            async for _ in stream:
                pass
    assert not raised.value.retryable
    assert [event.recoverable for event in events] == [False]
    assert len(carrier.of(Submit)) == 1 and not carrier.of(Close)


async def test_retries_start_over_with_all_the_text(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(Attempts(fail(0), fail(0), WordSpeaker()))
    stream = voice.stream(conn_options=FAST)
    async with stream:
        stream.push_text("one ")
        while len(carrier.of(Submit)) < 2:
            await asyncio.sleep(0.001)
        stream.push_text("two ")
        stream.push_text("three")
        stream.end_input()
        frames = [audio.frame async for audio in stream]
    assert samples_of(frames) == WHOLE
