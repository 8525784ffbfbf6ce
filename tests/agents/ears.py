"""Whisper tiny as a speech recogniser of LiveKit Agents: whole segments, offline, on the CPU."""

import asyncio

import numpy as np
from livekit import rtc
from livekit.agents import APIConnectOptions, LanguageCode, stt, utils
from livekit.agents.types import NOT_GIVEN, NotGivenOr

from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.demo.asr import Transcriber


class WhisperSTT(stt.STT):
    """Hears what the session's voice activity detector cut out."""

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=False, interim_results=False))
        self._transcriber = Transcriber(num_threads=1)
        self.heard: list[str] = []

    async def _recognize_impl(
        self,
        buffer: utils.AudioBuffer,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions,
    ) -> stt.SpeechEvent:
        frame = rtc.combine_audio_frames(buffer)
        resampler = rtc.AudioResampler(frame.sample_rate, SAMPLE_RATE_HZ)
        pieces = [*resampler.push(frame), *resampler.flush()]
        pcm = np.frombuffer(b"".join(bytes(piece.data) for piece in pieces), "<i2")
        text = await asyncio.to_thread(self._transcriber.transcribe, pcm)
        self.heard.append(text)
        return stt.SpeechEvent(
            type=stt.SpeechEventType.FINAL_TRANSCRIPT,
            alternatives=[stt.SpeechData(language=LanguageCode("en"), text=text)],
        )
