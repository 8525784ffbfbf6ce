"""Stored voices of HTTP clients: who owns which, and how a recording becomes one.

A voice belongs to the key that added it; names of other keys do not exist for it. Making one
decodes what a client sent, so it happens in a process of its own, one at a time, within a limit.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from playhead.engine.errors import InputError, PlayheadError
from playhead.engine.reference_audio import BadReference
from playhead.engine.voice_store import (
    LOCAL_OWNER,
    StoredVoice,
    VoiceExists,
    VoiceStore,
    VoiceStoreError,
)
from playhead.worker.http.problem import Problem
from playhead.worker.voice_process import (
    MAKE_S,
    VoiceProcess,
    VoiceProcessLate,
    VoiceProcessLost,
)

logger = logging.getLogger(__name__)

MAX_WAITING = 4
"""Recordings held in memory at a time; more are refused."""
BUSY_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class OwnVoices:
    """The voices one client may speak with: its own, then those of this machine."""

    store: VoiceStore
    owner: str

    def find(self, name: str) -> str | None:
        """Return what the engine knows a voice by; None where the client has none of that name.

        Raises Problem 500, as all of these do, when the store can't be read.
        """
        for owner in (self.owner, LOCAL_OWNER):
            with _told(), contextlib.suppress(InputError):  # no such voice, or no name at all
                return self.store.find(owner, name).id
        return None

    def listed(self) -> list[tuple[StoredVoice, bool]]:
        """Return the voices, and of each whether it is the client's own."""
        with _told():
            own = self.store.voices(self.owner)
            shared = [] if self.owner == LOCAL_OWNER else self.store.voices(LOCAL_OWNER)
        names = {voice.name for voice in own}
        return [(voice, True) for voice in own] + [
            (voice, False) for voice in shared if voice.name not in names
        ]

    def delete(self, name: str) -> None:
        """Forget one of the client's own voices; raises Problem 404 for any other name."""
        try:
            with _told():
                self.store.delete(self.owner, name)
        except InputError:
            message = "this key has no voice of that name"
            raise Problem(404, "voice_not_found", message, param="voice") from None


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn what is wrong with the folder into a line of the log and a Problem without paths."""
    try:
        yield
    except VoiceStoreError as error:
        logger.error("%s", error)
        message = "stored voices can't be read or written here; the log says why"
        raise Problem(500, "voice_store", message) from None


@dataclass(frozen=True, slots=True)
class Upload:
    """A checked request for a new voice."""

    name: str
    recording: bytes
    consent: str
    transcript: str = ""


class VoiceMaker:
    """Makes voices with the encoders of the checkpoint that is served."""

    def __init__(self, model: str | None, device: str = "cpu", limit_s: float = MAKE_S) -> None:
        """Take the folder or hub name and the device that the engine was given."""
        self._process = VoiceProcess(str(model), device, limit_s)
        self._num_waiting = 0
        self._closed = False

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Hold the place of one recording. Raises Problem 503."""
        if self._num_waiting >= MAX_WAITING:
            message = f"{MAX_WAITING} voices are being made; try again"
            raise Problem(503, "busy", message, retry_s=BUSY_RETRY_S)
        self._num_waiting += 1
        try:
            yield
        finally:
            self._num_waiting -= 1

    async def begin(self) -> None:
        """Load the encoders, so that the first upload finds them; returns before they are there."""
        if self._closed:
            return
        try:
            await self._process.begin()
        except VoiceProcessLost as error:
            logger.error("%s", error)

    async def close(self) -> None:
        """End the process that makes voices."""
        self._closed = True
        await self._process.close()

    async def make(self, voices: OwnVoices, upload: Upload) -> StoredVoice:
        """Make and keep a voice; raises Problem 400, 409, 500 or 504."""
        try:
            return await self._process.make(
                voices.store,
                voices.owner,
                upload.name,
                upload.recording,
                upload.transcript,
                upload.consent,
            )
        except BadReference as error:
            raise Problem(400, "bad_reference", str(error), param="audio") from None
        except VoiceExists as error:
            raise Problem(409, "voice_exists", str(error), param="name") from None
        except InputError as error:
            raise Problem(400, "invalid_request", str(error), param="name") from None
        except VoiceProcessLost as error:
            logger.error("no voice was made: %s", error)
            await self.begin()  # the next one finds it loaded
            if isinstance(error, VoiceProcessLate):
                raise Problem(504, "voice_timeout", str(error)) from None
            raise Problem(500, "voice_failed", str(error)) from None
        except PlayheadError as error:
            logger.error("no voice was made: %s, %s", error.code, error)
            message = "the voice can't be made here; the log says why"
            raise Problem(500, "voice_failed", message) from None
