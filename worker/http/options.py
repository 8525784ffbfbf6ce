"""HttpOptions: everything the HTTP service is told at its start, frozen."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from playhead.engine.errors import ConfigError

_ORIGIN = re.compile(r"https?://[^/\s]+")
_ADDRESS = re.compile(r"https?://[^/\s]+(/\S*)?")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Where to listen, whom to serve, and how much of it."""

    host: str = "127.0.0.1"
    port: int = 8880
    model: str | None = None
    """As given to the engine; only its name is told to clients."""
    keys_file: Path | None = None
    keys: tuple[str, ...] = field(default=(), repr=False)
    voice_aliases: Mapping[str, str] = field(default_factory=dict)
    cors_origins: tuple[str, ...] = ()
    """Web pages that may ask; none by default."""
    max_chars: int = 20_000
    """Most characters of one request or utterance."""
    idle_s: float = 30.0
    """An open utterance without new text, a connection without any message, or a body that does
    not end, is given up after it."""
    stall_s: float = 30.0
    """A client that takes no audio for so long is dropped."""
    traces: str | None = None
    """Address of an OpenTelemetry collector; None traces nothing."""
    max_utterances: int = 8
    """Most utterances of one WebSocket at a time."""

    def __post_init__(self) -> None:
        """Raise ConfigError for what could never do what it was given for."""
        if not all(limit > 0 for limit in (self.max_chars, self.idle_s, self.stall_s)):  # nan isn't
            raise ConfigError("--max-chars, --idle-s and --stall-s must be above 0")
        for origin in self.cors_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"--cors-origin {origin!r}; allowed is one as browsers send it, such as "
                    "https://page.example, without a path; give the flag once for each"
                )
        if self.traces is not None and not _ADDRESS.fullmatch(self.traces):
            raise ConfigError(f"--traces {self.traces!r}; allowed is http://HOST:4318")

    @property
    def max_body_bytes(self) -> int:
        """JSON may write every character as two escapes of six bytes."""
        return 12 * self.max_chars + 65_536
