"""Everything that crosses the border between the engine and the world; torch-free values.

World to engine: Submit, Append, Close, Cancel, Playback.
Engine to world: Accepted, Refused, Pcm, Words, Starved, Done, Failed.
Every result of a request follows its Accepted, and exactly one of Refused, Done or Failed ends it.
All sample counts and times of a request count published samples: after the leading-silence trim.
Nobody changes a message once it is made. Those that come with every chunk do not enforce it, as
that alone made them four times as slow to create.
"""

from dataclasses import dataclass, field
from typing import Literal

ClockState = Literal["waiting", "playing", "paused", "gone"]
ClockSource = Literal["exact", "reported", "assumed"]
TextMode = Literal["streaming", "full"]
DoneReason = Literal["stop", "length", "cancelled"]
Guard = Literal["", "duration", "repetition", "silence"]
"""What ended speech that went on behind its text: more frames than the text can take, the same
codes over and over, or silence; empty: nothing had to."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of both models; None takes the checkpoint's own value. Temperature 0 is greedy."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    predictor_temperature: float | None = None
    predictor_top_k: int | None = None
    predictor_top_p: float | None = None


@dataclass(slots=True, unsafe_hash=True)
class Word:
    """A piece of the input text and when it sounds, in seconds from the first published sample.

    `text` carries its own trailing space: the pieces of a request joined are its input text.
    """

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Recording:
    """Stored speech: codes [F, 16] little-endian uint16 as bytes, and the words in it.

    A request with a recording skips talker and predictor; its codes go through the codec, trim
    and chunks like any other. Word times count from the first code frame, before the trim.
    """

    codes: bytes
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Submit:
    """Ask for one utterance. Text may be complete (`closed`) or follow in Append messages."""

    request_id: str
    voice: str | None = None
    """Speaker name; None takes the checkpoint's first."""
    language: str = "auto"
    instruct: str | None = None
    text: str = ""
    closed: bool = False
    text_mode: TextMode = "streaming"
    live: bool = True
    """A listener plays it in real time; False: made at full speed in spare rows (files)."""
    speculative: bool = False
    """The turn is not confirmed yet: spare rows only, dropped first."""
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    max_frames: int | None = None
    """Most frames of the utterance; None takes the checkpoint's limit."""
    recording: Recording | None = None
    normalize: bool = True
    """Take out markup and read figures as words; False: the text goes in as it is written."""
    pronunciations: tuple[tuple[str, str], ...] = ()
    """(word or phrase, respelling); the English voice also takes phonemes, as in "/həlˈO/"."""
    word_times: bool = True
    """Words are to be sent; False for callers that have no use for them."""


@dataclass(frozen=True, slots=True)
class Append:
    """Add text to an open request."""

    request_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Close:
    """No more text comes for this request."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Drop the request now; idempotent. Done('cancelled') follows if it was live."""

    request_id: str


@dataclass(slots=True, unsafe_hash=True)
class PlaybackSnapshot:
    """Where a listener's playback stands; times on the host's monotonic clock, counts post-trim."""

    request_id: str
    at_s: float
    """When it was taken."""
    pushed_samples: int
    """Handed to the sender so far."""
    exited_samples: int
    """Left the sender's queue."""
    dry_at_s: float
    """When the last pushed sample leaves the sender (as if playing from at_s); what comes too late
    and yet leaves as if it had not, where missed time is made good, is late since then."""
    bridge_s: float
    """How long after dry_at_s the receiver's jitter buffer hides a withheld stream."""
    heard_samples: int
    state: ClockState
    source: ClockSource


@dataclass(slots=True, unsafe_hash=True)
class Playback:
    """Tell the engine where playback stands; the newest snapshot of a request wins."""

    snapshot: PlaybackSnapshot


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request holds a slot."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The request was not admitted; nothing of it is kept."""

    request_id: str
    code: str
    message: str
    retry_s: float | None = None
    """When to try again; None: never as given (an input error)."""


@dataclass(slots=True, unsafe_hash=True)
class Pcm:
    """The next samples of a request: signed 16-bit little-endian mono at 24 kHz."""

    request_id: str
    start_sample: int
    pcm: bytes
    num_frames: int
    """Codec frames it was decoded with, trimmed ones included; none where speech waited for more
    and no more came."""


@dataclass(slots=True, unsafe_hash=True)
class Words:
    """Words whose times are now known; sent before or with the audio that holds them."""

    request_id: str
    words: tuple[Word, ...]
    estimated: bool
    """True where the method has no verified error bound."""


@dataclass(frozen=True, slots=True)
class Starved:
    """All text so far is spoken; silence after `end_sample` is not an underrun, text is awaited."""

    request_id: str
    end_sample: int


@dataclass(frozen=True, slots=True)
class Done:
    """The request ended; `num_samples` were published in all."""

    request_id: str
    reason: DoneReason
    num_samples: int
    num_frames: int
    """Frames generated, trimmed and never-published ones included."""
    guard: Guard = ""
    """The guard that ended a part of the speech, the first of several. `reason` is `length` where
    it ended the last part."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The request broke; its slot is free and no other request was touched."""

    request_id: str
    code: str
    message: str


Command = Submit | Append | Close | Cancel | Playback
Result = Accepted | Refused | Pcm | Words | Starved | Done | Failed
