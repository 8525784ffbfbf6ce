"""Keys: who may ask, and how much at a time; the file is read again when it changes.

One key a line: NAME KEY [max_streams=N] [chars_per_minute=N]. KEY is the key itself or
sha256:HEX of it. Loop thread only; keys never appear in a log, a message or a metric.
"""

import hashlib
import hmac
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playhead.engine.errors import ConfigError
from playhead.worker.http.problem import Problem

logger = logging.getLogger(__name__)

MIN_KEY_CHARS = 16
CONCURRENCY_RETRY_S = 1.0
_HASHED = "sha256:"


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one key may ask for; 0 is no limit."""

    max_streams: int = 0
    chars_per_minute: int = 0


@dataclass(slots=True)
class Account:
    """What one key has in use."""

    name: str
    digest: bytes
    limits: KeyLimits
    in_file: bool = False
    """The file names it; keys given beside the file have a number for a name."""
    num_streams: int = 0
    _chars_left: float | None = None
    _chars_at_s: float = 0.0

    @property
    def owner(self) -> str:
        """Whose stored voices it uses: the file's name outlives a key that is replaced."""
        return f"name {self.name}" if self.in_file else f"key {self.digest.hex()}"

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Hold one of the key's streams; raises Problem 429."""
        most = self.limits.max_streams
        if most and self.num_streams >= most:
            raise Problem(
                429,
                "concurrency_limit",
                f"{self.num_streams} streams of this key are live, most are {most}",
                retry_s=CONCURRENCY_RETRY_S,
            )
        self.num_streams += 1
        try:
            yield
        finally:
            self.num_streams -= 1

    def spend(self, num_chars: int, now_s: float) -> None:
        """Take characters from the key's minute; raises Problem 429 with the time to wait."""
        most = self.limits.chars_per_minute
        if not most:
            return
        left = most if self._chars_left is None else self._chars_left
        left = min(left + (now_s - self._chars_at_s) * most / 60, most)
        self._chars_left, self._chars_at_s = left, now_s
        if num_chars > most:
            raise Problem(
                413, "text_too_long", f"{num_chars} characters, this key has {most} a minute"
            )
        if num_chars > left:
            raise Problem(
                429,
                "rate_limit_exceeded",
                f"{num_chars} characters, {left:.0f} are left of this key's {most} a minute",
                retry_s=(num_chars - left) * 60 / most,
            )
        self._chars_left = left - num_chars

    def give_back(self, num_chars: int) -> None:
        """Return characters that were spent on what was then refused."""
        if self._chars_left is not None:
            self._chars_left += num_chars  # at most a minute's: `spend` sees to it


ANONYMOUS = "anonymous"


@dataclass(slots=True)
class KeyRing:
    """All keys; without any, everybody is one anonymous account without limits."""

    path: Path | None = None
    fixed: Sequence[str] = ()
    """Keys given beside the file, without limits."""
    _accounts: list[Account] = field(default_factory=list)
    _stamp: tuple[int, int, int] | None = None
    _anonymous: Account = field(default_factory=lambda: Account(ANONYMOUS, b"", KeyLimits()))

    def __post_init__(self) -> None:
        """Read the file; raises ConfigError, so that a server never starts without its keys."""
        fixed = [Account(f"env-{i}", _digest(key), KeyLimits()) for i, key in enumerate(self.fixed)]
        if any(len(key) < MIN_KEY_CHARS for key in self.fixed):
            raise ConfigError(f"an API key is shorter than {MIN_KEY_CHARS} characters")
        self._accounts = fixed
        if self.path is not None:
            self._stamp = _stamp(self.path)
            self._accounts = fixed + read_keys(self.path)

    @property
    def required(self) -> bool:
        """A key must be given."""
        return self.path is not None or bool(self.fixed)

    def account(self, key: str | None) -> Account:
        """Return whose key it is; raises Problem 401. Takes as long for any key of a length."""
        self._reread()
        if not self.required:
            return self._anonymous
        if not key:
            raise Problem(401, "missing_api_key", "give a key: Authorization: Bearer KEY")
        digest = _digest(key)
        found: Account | None = None
        for account in self._accounts:  # no early end: the time tells nothing
            if hmac.compare_digest(account.digest, digest):
                found = account
        if found is None:
            raise Problem(401, "invalid_api_key", "this key is not known here")
        return found

    def check(self, account: Account) -> None:
        """Raise Problem 401 if the account's key was taken away since a connection opened."""
        self._reread()
        if self.required and not any(each is account for each in self._accounts):
            raise Problem(401, "invalid_api_key", "this key was taken away; open a connection anew")

    def _reread(self) -> None:
        if self.path is None:
            return
        try:
            stamp = _stamp(self.path)
            if stamp == self._stamp:
                return
            fresh = read_keys(self.path)
        except ConfigError as error:
            logger.error("keys stay as they were: %s", error)
            return
        self._stamp = stamp
        old = {account.digest: account for account in self._accounts}
        kept: list[Account] = []
        for account in fresh:  # what a key has in use outlives a rewrite of the file
            known = old.get(account.digest, account)
            known.name, known.limits = account.name, account.limits
            kept.append(known)
        self._accounts = self._accounts[: len(self.fixed)] + kept
        logger.info("read %d keys again", len(fresh))


def read_keys(path: Path) -> list[Account]:
    """Return the keys of a file; raises ConfigError that names the line, never the key."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"keys file {path}: {type(error).__name__}") from None
    accounts: list[Account] = []
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if words:
            accounts.append(_account(words, f"keys file {path}, line {number}"))
    if not accounts:
        raise ConfigError(f"keys file {path} has no key; a line is: NAME KEY [max_streams=N]")
    return accounts


def _account(words: list[str], where: str) -> Account:
    if len(words) < 2:
        raise ConfigError(f"{where}: expected NAME KEY")
    name, key, *rest = words
    if key.startswith(_HASHED):
        try:
            digest = bytes.fromhex(key.removeprefix(_HASHED))
        except ValueError:
            digest = b""
        if len(digest) != hashlib.sha256().digest_size:
            raise ConfigError(f"{where}: sha256: needs 64 hex digits")
    elif len(key) < MIN_KEY_CHARS:
        raise ConfigError(f"{where}: the key is shorter than {MIN_KEY_CHARS} characters")
    else:
        digest = _digest(key)
    limits: dict[str, int] = {}
    for word in rest:
        limit, _, value = word.partition("=")
        if limit not in KeyLimits.__dataclass_fields__ or not value.isdecimal():
            allowed = ", ".join(KeyLimits.__dataclass_fields__)
            raise ConfigError(f"{where}: expected LIMIT=NUMBER, limits are {allowed}")
        limits[limit] = int(value)
    return Account(name, digest, KeyLimits(**limits), in_file=True)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise ConfigError(f"keys file {path}: {type(error).__name__}") from None
    return found.st_mtime_ns, found.st_size, found.st_ino
