"""VoiceProcess: the process that makes voices of recordings, kept warm and replaced when it dies.

HTTP uploads, `playhead voice add` and the benchmark of new clones all go this way. One recording
is read at a time; whatever it does to the process, its caller alone is told, and the next one
gets a fresh process. On one loop.
"""

import asyncio
import contextlib
import json
import sys
from typing import Any

from playhead.engine.errors import CheckpointError, ConfigError, InputError, PlayheadError
from playhead.engine.reference_audio import BadReference
from playhead.engine.voice_store import StoredVoice, VoiceExists, VoiceStore, VoiceStoreError

MAKE_S = 120.0
"""For loading, and again for each recording: a slow CPU that also speaks takes its time."""
MAX_ANSWER_BYTES = 1 << 20
END_S = 5.0
"""For a process to be gone that closed its output, or was killed."""
_ERRORS: dict[str, type[PlayheadError]] = {
    kind.code: kind
    for kind in (
        *(BadReference, VoiceExists, InputError),
        *(CheckpointError, ConfigError, VoiceStoreError),
    )
}


class VoiceProcessLost(PlayheadError):
    """The process ended under a recording, or could not be started."""

    code = "voice_process"


class VoiceProcessLate(VoiceProcessLost):
    """It took too long and was ended."""

    code = "voice_timeout"


class VoiceProcess:
    """Makes voices with the encoders of one base checkpoint; ends with the process that made it."""

    def __init__(self, model: str, device: str = "cpu", limit_s: float = MAKE_S) -> None:
        """Take a folder or hub name, and a profile's device; nothing is started yet."""
        self._model, self._device, self._limit_s = model, device, limit_s
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._loaded = False
        self._owed_until_s: float | None = None
        """An answer nobody has read is due by then: of loading, or of a caller who left."""

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        process = self._running()
        return None if process is None else process.pid

    async def begin(self) -> None:
        """Start loading unless it runs; returns before it is ready. Raises VoiceProcessLost."""
        async with self._turn:
            if self._running() is None:
                await self._start()

    async def make(
        self,
        store: VoiceStore,
        owner: str,
        name: str,
        recording: bytes,
        transcript: str = "",
        consent: str = "",
    ) -> StoredVoice:
        """Make and keep a voice. Raises what voice_making's functions do, and VoiceProcessLost.

        A caller that is cancelled takes no one's place: its recording is read to its end or its
        limit, and its answer is dropped.
        """
        fields = {
            "folder": str(store.folder),
            "owner": owner,
            "name": name,
            "num_bytes": len(recording),
            "transcript": transcript,
            "consent": consent,
        }
        async with self._turn:
            process = await self._ready()
            said = await self._asked(process, json.dumps(fields).encode() + b"\n" + recording)
        return StoredVoice(**{**said, "warnings": tuple(said["warnings"])})

    async def close(self) -> None:
        """End the process; a recording that is being read is lost."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdout is not None
        if process.stdout.at_eof():  # it ends by itself: a kill now would lose its exit status
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), END_S)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_S)

    def _running(self) -> asyncio.subprocess.Process | None:
        process = self._process
        if process is None or process.returncode is not None:
            return None
        assert process.stdout is not None
        return None if process.stdout.at_eof() else process

    async def _start(self) -> None:
        await self.close()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "playhead.worker.voice_making"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_ANSWER_BYTES,
                start_new_session=True,  # a terminal's Ctrl-C is its caller's affair
            )
        except OSError as error:
            message = f"the process that makes voices can't be started: {error.strerror}"
            raise VoiceProcessLost(message) from None
        self._loaded = False
        self._owe()
        assert self._process.stdin is not None
        loads = {"model": self._model, "device": self._device}
        self._process.stdin.write(json.dumps(loads).encode() + b"\n")

    async def _ready(self) -> asyncio.subprocess.Process:
        """Return a loaded process that owes no answer."""
        process = self._running()
        if process is not None and self._loaded and self._owed_until_s is not None:
            with contextlib.suppress(PlayheadError):  # it was for a caller who left
                await self._answer(process)
            process = self._running()
        if process is None:
            await self._start()
            process = self._process
            assert process is not None
        if not self._loaded:
            try:
                await self._answer(process)
            except PlayheadError:
                await self.close()
                raise
            self._loaded = True
        return process

    async def _asked(self, process: asyncio.subprocess.Process, request: bytes) -> dict[str, Any]:
        assert process.stdin is not None
        self._owe()
        process.stdin.write(request)
        return await self._answer(process)

    def _owe(self) -> None:
        self._owed_until_s = asyncio.get_running_loop().time() + self._limit_s

    async def _answer(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        """Read the answer that is due; raises the error it tells. Without one the process ends."""
        assert process.stdin is not None and process.stdout is not None
        try:
            async with asyncio.timeout_at(self._owed_until_s):
                with contextlib.suppress(ConnectionError):  # then there is no line either
                    await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            await self.close()
            raise VoiceProcessLate(
                f"the voice was not made within {self._limit_s:g} s; send it again later"
            ) from None
        if not line.endswith(b"\n"):
            await self.close()
            raise VoiceProcessLost(
                f"the process that makes voices ended ({process.returncode}) while it read this "
                "recording; send it again, or save it anew if that happens twice"
            )
        self._owed_until_s = None
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise _ERRORS.get(said["code"], PlayheadError)(said["error"])
        return said
