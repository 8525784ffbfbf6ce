"""TTS: playhead as the voice of LiveKit Agents; options are frozen into each stream."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Never
from weakref import WeakSet

import aiohttp
from livekit.agents import DEFAULT_API_CONNECT_OPTIONS, APIConnectOptions, tts
from livekit.agents.types import NOT_GIVEN, NotGivenOr
from livekit.agents.utils import is_given
from livekit.plugins.playhead.attempt import Attempt
from livekit.plugins.playhead.choice import choose_engine
from livekit.plugins.playhead.options import SpeechOptions
from livekit.plugins.playhead.remote import RemoteEngine
from livekit.plugins.playhead.streams import ChunkedStream, SynthesizeStream

from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker import sdk_routing
from playhead.worker.client import EngineClient

SAMPLE_RATES_HZ = (8_000, 48_000)
"""Lowest and highest rate audio is resampled to; the engine's own is 24 kHz."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice the engine can speak with."""

    name: str
    """What `TTS(voice=...)` takes."""
    languages: tuple[str, ...]


class TTS(tts.TTS[Never]):
    """Speaks with Qwen3-TTS, or with the small English voice that is part of the package.

    The engine is the first of: `engine`, `base_url`, an own one if `model` or `profile` is
    given, the one `use_engine` lent, the server `PLAYHEAD_URL` names, an own one. An own
    engine is loaded into this process at first need, or at `prewarm`; all sessions share it.
    It needs the package's `engine` extra, the others do not.

    Args:
        voice: A name of `list_voices()`, or of a cloned voice that is stored where the engine runs;
            the model's first voice if not given.
        language: A language of the model, "auto", or a code such as "de" or "pt-BR".
        instructions: How to speak, in words, for models that take instructions.
        temperature: Of the talker; 0 is greedy. This and the next three: the model's own
            value if not given.
        top_k: How many codes compete; 0 is all of them.
        top_p: Share of probability that competes.
        repetition_penalty: Above 1 makes repeated codes less likely.
        seed: Equal seed, text and options give equal speech; 0 if not given.
        speed: 1.0; other values are refused: in rooms the voice is not stretched.
        pronunciations: From a word or phrase to how it is spelled when it is said; captions
            keep the word.
        normalize: Whether markup is left out and figures are read as words; True if not
            given.
        sample_rate: Of the audio, in Hz, 8000 to 48000; the engine's 24000 costs nothing.
        aligned_transcript: Whether word times go with the audio. If not given: where the
            engine knows them exactly. True also passes on estimated times.
        engine: A started client of an engine, or the socket path of a running one.
        base_url: A `playhead serve`, as http://host:8880.
        api_key: Key of that server; `PLAYHEAD_API_KEY` if not given.
        http_session: Session to connect with; stays its owner's.
        model: Checkpoint folder or Hub name for this process's own engine; `PLAYHEAD_MODEL`,
            then the embedded voice if not given.
        profile: Profile of this process's own engine: a built-in name or a YAML file.
    """

    def __init__(
        self,
        *,
        voice: NotGivenOr[str | None] = NOT_GIVEN,
        language: NotGivenOr[str | None] = NOT_GIVEN,
        instructions: NotGivenOr[str | None] = NOT_GIVEN,
        temperature: NotGivenOr[float | None] = NOT_GIVEN,
        top_k: NotGivenOr[int | None] = NOT_GIVEN,
        top_p: NotGivenOr[float | None] = NOT_GIVEN,
        repetition_penalty: NotGivenOr[float | None] = NOT_GIVEN,
        seed: NotGivenOr[int | None] = NOT_GIVEN,
        speed: NotGivenOr[float | None] = NOT_GIVEN,
        pronunciations: NotGivenOr[Mapping[str, str] | None] = NOT_GIVEN,
        normalize: NotGivenOr[bool | None] = NOT_GIVEN,
        sample_rate: int = SAMPLE_RATE_HZ,
        aligned_transcript: NotGivenOr[bool | None] = NOT_GIVEN,
        engine: NotGivenOr[EngineClient | str | Path | None] = NOT_GIVEN,
        base_url: NotGivenOr[str | None] = NOT_GIVEN,
        api_key: NotGivenOr[str | None] = NOT_GIVEN,
        http_session: aiohttp.ClientSession | None = None,
        model: NotGivenOr[str | None] = NOT_GIVEN,
        profile: NotGivenOr[str | None] = NOT_GIVEN,
    ) -> None:
        """Choose how to speak, and which engine does; the class tells what each name means.

        Raises ValueError: two engines were chosen, or a value is out of range.
        """
        _check(speed, sample_rate)
        super().__init__(
            capabilities=tts.TTSCapabilities(
                streaming=True, aligned_transcript=bool(aligned_transcript)
            ),
            sample_rate=sample_rate,
            num_channels=1,
        )
        self._model, self._engine = choose_engine(
            engine, base_url, api_key, http_session, model, profile
        )
        self._options = SpeechOptions()
        self._aligned = NOT_GIVEN if aligned_transcript is None else aligned_transcript
        self._streams: WeakSet[ChunkedStream | SynthesizeStream] = WeakSet()
        self.update_options(
            voice=voice,
            language=language,
            instructions=instructions,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
            pronunciations=pronunciations,
            normalize=normalize,
        )

    @property
    def model(self) -> str:
        """The model that speaks, as it was named, or as the server it is on names it."""
        named = self._engine.model if isinstance(self._engine, RemoteEngine) else ""
        return named or self._model

    @property
    def provider(self) -> Literal["playhead"]:
        """Always playhead."""
        return "playhead"

    def update_options(
        self,
        *,
        voice: NotGivenOr[str | None] = NOT_GIVEN,
        language: NotGivenOr[str | None] = NOT_GIVEN,
        instructions: NotGivenOr[str | None] = NOT_GIVEN,
        temperature: NotGivenOr[float | None] = NOT_GIVEN,
        top_k: NotGivenOr[int | None] = NOT_GIVEN,
        top_p: NotGivenOr[float | None] = NOT_GIVEN,
        repetition_penalty: NotGivenOr[float | None] = NOT_GIVEN,
        seed: NotGivenOr[int | None] = NOT_GIVEN,
        pronunciations: NotGivenOr[Mapping[str, str] | None] = NOT_GIVEN,
        normalize: NotGivenOr[bool | None] = NOT_GIVEN,
    ) -> None:
        """Change how the next stream speaks; streams that are open keep theirs.

        None takes the default again. Raises ValueError: an option is of no use.
        """
        self._options = self._options.changed(
            voice=voice,
            language=language,
            instructions=instructions,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
            pronunciations=pronunciations,
            normalize=normalize,
        )

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> ChunkedStream:
        """Speak a whole text, as fast as the engine's spare capacity allows."""
        stream = ChunkedStream(tts=self, input_text=text, conn_options=conn_options)
        self._streams.add(stream)
        return stream

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> SynthesizeStream:
        """Speak text as it is written; the first audio needs the first words only."""
        if not is_given(self._aligned) and self._engine.exact_times:
            self._capabilities.aligned_transcript = True
        stream = SynthesizeStream(tts=self, conn_options=conn_options)
        self._streams.add(stream)
        return stream

    def prewarm(self) -> None:
        """Load or connect the engine in the background; returns at once.

        Called in the main thread before any job starts, it also keeps jobs that are threads from
        racing for the creation of the SDK's process-wide client.
        """
        sdk_routing.touch()
        self._engine.begin()

    async def list_voices(self) -> list[Voice]:
        """Return the voices of the engine, stored ones included; waits until it is there.

        Raises PlayheadError where the stored ones can't be read.
        """
        client = await self._engine.client(DEFAULT_API_CONNECT_OPTIONS.timeout)
        status = client.status()
        names = list(status.voices)  # a server's include those stored there
        if status.clones:
            from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore

            names += [voice.name for voice in VoiceStore().voices(LOCAL_OWNER)]
        return [Voice(name, status.languages) for name in names]

    async def aclose(self) -> None:
        """End the streams that are open and close connections to a server.

        An engine of this process or machine stays: other sessions speak through it.
        """
        for stream in list(self._streams):
            await stream.aclose()
        self._streams.clear()
        await self._engine.aclose()

    def _attempt(self, emitter: tts.AudioEmitter, timeout_s: float, *, segmented: bool) -> Attempt:
        """Make a stream's next attempt."""
        return Attempt(
            emitter,
            timeout_s=timeout_s,
            segmented=segmented,
            all_words=self._aligned is True,
            sample_rate=self.sample_rate,
        )

    def _learn(self, attempt: Attempt) -> None:
        """Take from a finished attempt whether the engine times words exactly."""
        if not is_given(self._aligned):
            self._capabilities.aligned_transcript = attempt.exact_words


def _check(speed: NotGivenOr[float | None], sample_rate: int) -> None:
    low, high = SAMPLE_RATES_HZ
    if not isinstance(sample_rate, int) or not low <= sample_rate <= high:
        raise ValueError(f"sample_rate is {sample_rate!r}, allowed is {low} to {high}")
    if is_given(speed) and speed not in (None, 1.0):
        raise ValueError(f"speed is {speed!r}, allowed is 1.0: the voice is not stretched")
