"""Request: everything the engine knows of one utterance; engine thread only."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from playhead.engine.messages import Pcm, PlaybackSnapshot, Submit, Word, Words
from playhead.engine.scheduler import LIVE, OFFLINE, SPECULATIVE, Columns
from playhead.engine.text.feed import TextFeed
from playhead.engine.trim import LeadingSilenceTrim
from playhead.engine.units import samples_to_s

FrameCodes = NDArray[np.int16]
"""One frame: 16 codes."""


@dataclass(slots=True)
class Request:
    """One utterance with a slot, from Accepted to its last result."""

    submit: Submit
    slot: int
    arrival_s: float
    feed: TextFeed | None
    """None when a recording is spoken."""
    max_frames: int
    exact_times: bool
    recorded: deque[FrameCodes] = field(default_factory=deque)
    needs_prefill: bool = True
    ended: bool = False
    """No further frame will be made."""
    reached_limit: bool = False
    num_frames: int = 0
    segment_frames: int = 0
    undecoded: deque[FrameCodes] = field(default_factory=deque)
    trim: LeadingSilenceTrim = field(default_factory=LeadingSilenceTrim)
    published_samples: int = 0
    pending_words: list[Word] = field(default_factory=list)
    starved: bool = False
    """Starved was sent and no text came since."""
    text_wait_since_s: float | None = None
    first_text_s: float | None = None
    playback: PlaybackSnapshot | None = None
    assumed_dry_s: float = 0.0
    """When a listener that reports nothing runs dry: real time from the first publish."""

    @property
    def id(self) -> str:
        """The caller's id."""
        return self.submit.request_id

    @property
    def kind(self) -> int:
        """LIVE, SPECULATIVE or OFFLINE."""
        if not self.submit.live:
            return OFFLINE
        return SPECULATIVE if self.submit.speculative else LIVE

    @property
    def text_known(self) -> bool:
        """The next frame's text row (or recorded frame) is there."""
        return self.feed is None or self.feed.has_row

    @property
    def prompt_known(self) -> bool:
        """The prompt can be run: in full-text mode only once the text is complete."""
        return self.feed is None or self.submit.text_mode == "streaming" or self.feed.closed

    @property
    def can_frame(self) -> bool:
        """The next frame can be made now."""
        if self.needs_prefill or self.ended or not self.text_known:
            return False
        return self.feed is None or not self.feed.exhausted

    @property
    def waits_for_text(self) -> bool:
        """Everything known is spoken or on its way, and the text is open."""
        return not self.ended and not self.text_known

    @property
    def frozen(self) -> bool:
        """The listener's playback stands still."""
        return self.playback is not None and self.playback.state != "playing"

    def slack_s(self, now_s: float) -> float:
        """Return the time to the soft deadline of the next sample to publish."""
        snapshot = self.playback
        if snapshot is None:
            return self.assumed_dry_s - now_s if self.published_samples else 0.0
        since_s = snapshot.at_s if self.frozen else now_s
        unpushed = self.published_samples - snapshot.pushed_samples
        return snapshot.dry_at_s - since_s + samples_to_s(unpushed)

    def take_codes(self, num_frames: int) -> NDArray[np.int16]:
        """Remove the oldest undecoded frames; return them as [num_frames, 16] int16."""
        return np.stack([self.undecoded.popleft() for _ in range(num_frames)])

    def publish(self, pcm: NDArray[np.float32], num_frames: int, now_s: float) -> list[Pcm | Words]:
        """Trim decoded samples [n * 1920] and return what the world gets: words, then audio."""
        kept = self.trim.push(pcm, last=self.ended and not self.undecoded)
        if not self.trim.open or len(kept) == 0:
            return []
        out: list[Pcm | Words] = self.timed_words()
        data = np.clip(np.rint(kept * 32767.0), -32768, 32767).astype("<i2").tobytes()
        out.append(Pcm(self.id, self.published_samples, data, num_frames))
        self.published_samples += len(kept)
        self.assumed_dry_s = max(self.assumed_dry_s, now_s) + samples_to_s(len(kept))
        self.starved = False
        return out

    def timed_words(self) -> list[Pcm | Words]:
        """Move timed words to published time: the trimmed lead is taken off."""
        if self.feed is not None:
            self.pending_words += self.feed.take_words()
        if not self.pending_words or not self.trim.open:
            return []
        lead_s = samples_to_s(self.trim.dropped_samples)
        words = tuple(
            Word(w.text, max(w.start_s - lead_s, 0.0), max(w.end_s - lead_s, 0.0))
            for w in self.pending_words
        )
        self.pending_words.clear()
        return [Words(self.id, words, estimated=not self.exact_times)]

    def record_frame(self) -> None:
        """Take the next frame of the recording."""
        self.undecoded.append(self.recorded.popleft())
        self.num_frames += 1
        self.ended = not self.recorded


def columns_of(requests: list[Request], now_s: float) -> Columns:
    """Lay requests out for the scheduler, one row each."""
    flags = [(r.published_samples > 0, r.needs_prefill and r.prompt_known) for r in requests]
    return Columns(
        kind=np.array([r.kind for r in requests], np.int64),
        arrival_s=np.array([r.first_text_s or r.arrival_s for r in requests], np.float64),
        audible=np.array([audible for audible, _ in flags], np.bool_),
        needs_prefill=np.array([prefill for _, prefill in flags], np.bool_),
        can_frame=np.array([r.can_frame for r in requests], np.bool_),
        undecoded=np.array([len(r.undecoded) for r in requests], np.int64),
        slack_s=np.array([r.slack_s(now_s) for r in requests], np.float64),
        frozen=np.array([r.frozen for r in requests], np.bool_),
    )
