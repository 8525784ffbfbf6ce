"""open_model: speech from Python without a server; the engine runs on a thread of its own."""

import queue
import threading
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from playhead.engine.engine import Engine
from playhead.engine.errors import Busy, EngineFailure, InputError
from playhead.engine.messages import (
    Append,
    Cancel,
    Close,
    Done,
    Failed,
    Pcm,
    Refused,
    Result,
    Sampling,
    Submit,
    TextMode,
)
from playhead.engine.profile import Profile, load_profile

EMBEDDED_VOICE = Path(__file__).parent / "voice"


class Tts:
    """A loaded model that speaks; use it as a context manager."""

    def __init__(self, model: str | Path, profile: Profile) -> None:
        """Load the model and start its thread. Raises CheckpointError or ConfigError."""
        self._inboxes: dict[str, queue.SimpleQueue[Result]] = {}
        self.engine = Engine(model, profile, self._deliver)
        self._thread = threading.Thread(target=self.engine.run, name="playhead-engine")
        self._thread.start()

    def __enter__(self) -> Self:
        """Return the model itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the engine; streams that still run end."""
        self.close()

    def close(self) -> None:
        """Stop the engine thread; idempotent."""
        self.engine.stop()
        self._thread.join()

    def stream(
        self,
        text: str | Iterable[str],
        *,
        voice: str | None = None,
        language: str = "auto",
        instruct: str | None = None,
        text_mode: TextMode = "streaming",
        sampling: Sampling | None = None,
        seed: int = 0,
        live: bool = False,
    ) -> Iterator[bytes]:
        """Yield PCM chunks (signed 16-bit little-endian mono, 24 kHz) as they are made.

        `text` may be an iterator of pieces: speech starts with its first words. Closing the
        iterator early frees the engine. Raises InputError, Busy or EngineFailure.
        """
        request_id = uuid.uuid4().hex
        inbox: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._inboxes[request_id] = inbox
        whole = text if isinstance(text, str) else ""
        submit = Submit(
            request_id=request_id,
            voice=voice,
            language=language,
            instruct=instruct,
            text=whole,
            closed=isinstance(text, str),
            text_mode=text_mode,
            live=live,
            sampling=sampling or Sampling(),
            seed=seed,
        )
        self.engine.post(submit)
        writer = None
        if not isinstance(text, str):
            writer = threading.Thread(target=self._write, args=(request_id, text), daemon=True)
            writer.start()
        try:
            yield from _pcm_of(inbox)
        finally:
            self.engine.post(Cancel(request_id))
            del self._inboxes[request_id]

    def _write(self, request_id: str, pieces: Iterable[str]) -> None:
        for piece in pieces:
            if request_id not in self._inboxes:
                return
            self.engine.post(Append(request_id, piece))
        self.engine.post(Close(request_id))

    def _deliver(self, results: list[Result]) -> None:
        for result in results:
            inbox = self._inboxes.get(result.request_id)
            if inbox is not None:
                inbox.put(result)


def open_model(model: str | Path | None = None, profile: str | Profile = "cpu") -> Tts:
    """Open a checkpoint by folder or hub name; None opens the embedded English voice."""
    chosen = load_profile(profile) if isinstance(profile, str) else profile
    return Tts(EMBEDDED_VOICE if model is None else model, chosen)


def _pcm_of(inbox: "queue.SimpleQueue[Result]") -> Iterator[bytes]:
    while True:
        result = inbox.get()
        if isinstance(result, Pcm):
            yield result.pcm
        elif isinstance(result, Done):
            return
        elif isinstance(result, Refused):
            if result.retry_s is not None:
                raise Busy(result.message, result.retry_s)
            raise InputError(result.message)
        elif isinstance(result, Failed):
            raise EngineFailure(result.message)
