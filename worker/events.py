"""What a speaker tells its room, as values and as the JSON of `playhead.events`; pure.

Of every request exactly one of Finished, Interrupted and SpeechError comes, and comes last.
User text is in these values, so they are never logged.
"""

import json
from dataclasses import asdict, dataclass

from playhead.engine.messages import Guard, Word


@dataclass(frozen=True, slots=True)
class Started:
    """The first sample of the request is on its way."""

    request_id: str


@dataclass(frozen=True, slots=True)
class WordsTimed:
    """Words whose times (seconds from the first sample) are now known."""

    request_id: str
    words: tuple[Word, ...]
    estimated: bool


@dataclass(frozen=True, slots=True)
class Caption:
    """Text that begins to sound now; `final` closes the request's caption."""

    request_id: str
    text: str
    final: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """All of the request was heard."""

    request_id: str
    reason: str
    """stop, or length if a limit cut the speech."""
    heard_text: str
    heard_s: float
    gaps: int
    """Silences inside the speech that were no text's fault."""
    gap_s: float = 0.0
    """How long these silences lasted together."""
    stretched_s: float = 0.0
    """Time the sender sent nothing and the receiver lengthened the sound instead."""
    text_wait_s: float = 0.0
    """Silence while text was awaited."""
    guard: Guard = ""
    """What ended speech that went on behind its text; empty: nothing had to."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The request was cut; what was heard of it."""

    request_id: str
    reason: str
    """interrupted, replaced, no_listener or closed."""
    heard_text: str
    heard_s: float
    gaps: int
    gap_s: float = 0.0
    stretched_s: float = 0.0
    text_wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SpeechError:
    """The request was refused or broke; the room goes on."""

    request_id: str
    code: str
    message: str
    retry_s: float | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about a request that does not end it: text_idle, text_aborted."""

    request_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Where the playback of the request stands; about twelve a second, where asked for."""

    request_id: str
    clock_s: float
    """Monotonic time of the worker's host; all other times are seconds of the request's audio."""
    pushed_s: float
    exited_s: float
    heard_s: float
    slack_s: float
    """Until the sender runs dry, audio that still waits to be handed over included."""
    bridge_s: float
    state: str
    source: str
    gaps: int
    chunk_frames: int
    """Codec frames of the newest chunk."""


SpeakerEvent = (
    Started | WordsTimed | Caption | ClockReading | Finished | Interrupted | SpeechError | Notice
)

_TYPES: dict[type[SpeakerEvent], str] = {
    Started: "started",
    WordsTimed: "words",
    ClockReading: "clock",
    Finished: "finished",
    Interrupted: "interrupted",
    SpeechError: "error",
    Notice: "notice",
}


def to_json(event: SpeakerEvent) -> bytes:
    """Return the event as it goes out on `playhead.events`; captions travel elsewhere."""
    return json.dumps({"type": _TYPES[type(event)], **asdict(event)}).encode()
