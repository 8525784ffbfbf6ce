"""The voice store: clones kept in a folder, by content, with names that belong to owners.

    entries/<id>.safetensors          speaker vector, codes; id = SHA-256 of what it holds
    owners/<digest of owner>/<name>   a JSON object that points to an entry

Many processes may use one folder: files appear whole (written aside, then linked), additions and
deletions take a file lock, readers take none. An id is as hard to guess as the recording behind
it: whoever holds one may speak it, names are found for their owner alone. Torch-free, any thread.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from playhead.engine.errors import InputError, PlayheadError, UnknownVoice
from playhead.engine.models.prompt import Clone
from playhead.engine.units import CODEBOOKS

LOCAL_OWNER = "local"
"""Owner of the voices that the command line adds: everybody on this machine may use them."""
MAX_VOICES = 1000
"""Of one owner."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_ID = re.compile(r"[0-9a-f]{64}")


class VoiceStoreError(PlayheadError):
    """The folder can't be read or written, or an entry is damaged."""

    code = "voice_store"


class VoiceExists(InputError):
    """The owner has another voice of that name."""

    code = "voice_exists"


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """A name in the store."""

    name: str
    id: str
    created_s: int
    """Seconds since 1970."""
    reference_s: float
    in_context: bool
    """It holds the reference's codes and transcript beside the speaker vector."""
    warnings: tuple[str, ...]
    consent: str = ""
    """Who agreed to the voice being cloned, in the words of who added it."""


def default_folder() -> Path:
    """Return where voices of this user are kept unless told otherwise."""
    return Path.home() / ".local" / "share" / "playhead" / "voices"


def is_voice_id(text: str) -> bool:
    """Tell whether a text has the form of an entry's id."""
    return _ID.fullmatch(text) is not None


class VoiceStore:
    """A folder of clones."""

    def __init__(self, folder: Path | None = None) -> None:
        """Take the folder; it is made when the first voice is added."""
        self.folder = default_folder() if folder is None else folder
        self._entries = self.folder / "entries"

    def add(
        self,
        owner: str,
        name: str,
        clone: Clone,
        model: str,
        reference_s: float,
        warnings: tuple[str, ...] = (),
        consent: str = "",
    ) -> StoredVoice:
        """Keep a clone under an owner's name; the same clone under the same name changes nothing.

        `model` is Model.voice_fingerprint. Raises VoiceExists for a taken name, InputError for a
        bad one, VoiceStoreError when the folder can't be written.
        """
        key = _checked_name(name)
        content = _content(clone, model)
        voice_id = hashlib.sha256(content).hexdigest()
        voice = StoredVoice(
            key, voice_id, int(time.time()), reference_s, clone.codes is not None, warnings, consent
        )
        with self._locked():
            path = self._owner(owner) / key
            if path.exists():
                held = _read_name(path)
                if held.id == voice_id:
                    return held
                raise VoiceExists(
                    f"voice {key!r} exists already; delete it first, or take another name"
                )
            if len(_children(path.parent)) >= MAX_VOICES:
                raise InputError(f"{MAX_VOICES} voices are stored, which is the limit; delete some")
            self._write(self._entries / f"{voice_id}.safetensors", content)
            self._write(path, json.dumps(asdict(voice)).encode())
        return voice

    def voices(self, owner: str) -> list[StoredVoice]:
        """Return an owner's voices by name; VoiceStoreError when one can't be read."""
        found: list[StoredVoice] = []
        for path in sorted(_children(self._owner(owner))):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                found.append(_read_name(path))
        return found

    def find(self, owner: str, name: str) -> StoredVoice:
        """Return an owner's voice; UnknownVoice when the owner has none of that name."""
        path = self._owner(owner) / _checked_name(name)
        try:
            return _read_name(path)
        except FileNotFoundError:
            raise UnknownVoice(f"voice {name!r} is not stored; add it first") from None

    def delete(self, owner: str, name: str) -> None:
        """Forget an owner's voice, and its clone when no other name points to it."""
        with self._locked():
            path = self._owner(owner) / _checked_name(name)
            try:
                voice_id: str | None = _read_name(path).id
            except FileNotFoundError:
                raise UnknownVoice(f"voice {name!r} is not stored") from None
            except VoiceStoreError:
                voice_id = None  # a damaged name goes; nobody can tell what it pointed to
            self._unlink(path)
            if voice_id is not None and voice_id not in self._used():
                self._unlink(self._entries / f"{voice_id}.safetensors")

    def load(self, voice_id: str) -> tuple[Clone, str]:
        """Return a clone and the fingerprint of the model that made it.

        Raises UnknownVoice when there is no such entry, VoiceStoreError when it is damaged.
        """
        path = self._entries / f"{voice_id}.safetensors"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise UnknownVoice("the voice is no longer stored; add it again") from None
        except OSError as error:
            raise VoiceStoreError(f"{path} can't be read: {error.strerror}") from None
        if hashlib.sha256(content).hexdigest() != voice_id:
            raise VoiceStoreError(f"{path} is damaged; delete the voice and add it again")
        return _read_content(path)

    # -- files

    def _owner(self, owner: str) -> Path:
        return self.folder / "owners" / hashlib.sha256(owner.encode()).hexdigest()[:32]

    def _used(self) -> set[str]:
        """Return the ids that any name points to."""
        used: set[str] = set()
        for owner in _children(self.folder / "owners"):
            for path in _children(owner):
                with contextlib.suppress(VoiceStoreError):
                    used.add(_read_name(path).id)
        return used

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other writers of the folder out, in this process and others."""
        try:
            self._entries.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise self._unwritable(error) from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, path: Path, content: bytes) -> None:
        """Make a file appear whole or not at all."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise
        except OSError as error:
            raise self._unwritable(error) from None

    def _unlink(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> VoiceStoreError:
        return VoiceStoreError(
            f"voices can't be written to {self.folder}: {error.strerror}; nothing was changed. "
            "Free space or give another folder"
        )


def _checked_name(name: str) -> str:
    key = name.lower()
    if not _NAME.fullmatch(key) or is_voice_id(key):
        raise InputError(
            f"voice name {name!r}; allowed are 1 to 64 letters a to z, digits, '_', '-' and '.', "
            "a letter or digit first"
        )
    return key


def _children(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise VoiceStoreError(f"{folder} can't be read: {error.strerror}") from None


def _read_name(path: Path) -> StoredVoice:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return StoredVoice(**values | {"warnings": tuple(values["warnings"])})
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise VoiceStoreError(
            f"{path} is damaged ({type(error).__name__}); delete the voice and add it again"
        ) from None


def _content(clone: Clone, model: str) -> bytes:
    """Return the bytes of an entry: the same for the same clone, whenever it is made."""
    tensors: dict[str, NDArray[np.generic]] = {"speaker": clone.speaker.astype(np.float32)}
    if clone.codes is not None:
        tensors["codes"] = clone.codes.astype(np.int16)
    # One metadata key: the library writes several in an order that changes from run to run.
    about = json.dumps([model, clone.transcript])
    return save(tensors, metadata={"playhead_voice": about})


def _read_content(path: Path) -> tuple[Clone, str]:
    try:
        with safe_open(path, framework="numpy") as opened:
            model, transcript = json.loads(opened.metadata()["playhead_voice"])
            speaker: NDArray[np.float32] = opened.get_tensor("speaker")
            codes: NDArray[np.int16] | None = None
            if "codes" in opened.keys():  # noqa: SIM118 - the object is no mapping
                codes = opened.get_tensor("codes")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise VoiceStoreError(
            f"{path} is no voice ({type(error).__name__}); delete the voice and add it again"
        ) from None
    assert codes is None or codes.shape[1] == CODEBOOKS
    return Clone(speaker, codes, str(transcript)), str(model)
