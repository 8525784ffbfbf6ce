"""HttpOptions: everything the HTTP service is told at its start, frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

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

    @property
    def max_body_bytes(self) -> int:
        """JSON may write every character as two escapes of six bytes."""
        return 12 * self.max_chars + 65_536
