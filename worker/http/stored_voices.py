"""Stored voices of HTTP clients: who owns which, and how a recording becomes one.

A voice belongs to the key that added it; names of other keys do not exist for it. Making one
decodes what a client sent, so it happens in a process of its own, one at a time, within a limit.
"""

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from playhead.engine.errors import InputError
from playhead.engine.voice_store import LOCAL_OWNER, StoredVoice, VoiceStore, VoiceStoreError
from playhead.worker.http.problem import Problem

logger = logging.getLogger(__name__)

MAKE_S = 120.0
"""For one voice: most of it is loading the encoders."""
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

    def __init__(self, model: str | None, limit_s: float = MAKE_S) -> None:
        """Take the folder or hub name that the engine was given."""
        self._model, self._limit_s = model, limit_s
        self._turn = asyncio.Lock()
        self._num_waiting = 0

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

    async def make(self, voices: OwnVoices, upload: Upload) -> StoredVoice:
        """Make and keep a voice; raises Problem 400, 409, 500 or 504."""
        fields = {
            "folder": str(voices.store.folder),
            "owner": voices.owner,
            "name": upload.name,
            "model": self._model,
            "transcript": upload.transcript,
            "consent": upload.consent,
        }
        async with self._turn:
            said = await self._ask(json.dumps(fields).encode() + b"\n" + upload.recording)
        if "error" not in said:
            return StoredVoice(**{**said, "warnings": tuple(said["warnings"])})
        code, message = said["code"], said["error"]
        if code == "bad_reference":
            raise Problem(400, "bad_reference", message, param="audio")
        if code == "voice_exists":
            raise Problem(409, "voice_exists", message, param="name")
        if code == InputError.code:
            raise Problem(400, "invalid_request", message, param="name")
        logger.error("no voice was made: %s, %s", code, message)
        raise Problem(500, "voice_failed", "the voice can't be made here; the log says why")

    async def _ask(self, request: bytes) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "playhead.worker.voice_making",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(self._limit_s):
                answer, _ = await process.communicate(request)
            found: dict[str, Any] = json.loads(answer)
        except TimeoutError:
            message = f"the voice was not made within {self._limit_s:g} s; send it again later"
            raise Problem(504, "voice_timeout", message) from None
        except ValueError:
            logger.error("the process that makes voices ended with %s", process.returncode)
            return {"error": "", "code": "process"}
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return found
