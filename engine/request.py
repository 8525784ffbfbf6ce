"""Request: everything the engine knows of one utterance; engine thread only."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from playhead.engine.messages import Guard, PlaybackSnapshot, Submit, Word, Words
from playhead.engine.scheduler import LIVE, OFFLINE, SPECULATIVE
from playhead.engine.text.feed import NEVER, TextFeed
from playhead.engine.trim import LeadingSilenceTrim
from playhead.engine.units import s_to_samples, samples_to_s, to_pcm

FrameCodes = NDArray[np.int16]
"""One frame: 16 codes."""


@dataclass(slots=True, eq=False)
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
    prompt_rows: int = 0
    """Prompt rows that the prefill has to run; 0 where all are stored."""
    ended: bool = False
    """No further frame will be made."""
    released: bool = False
    """Its last result is out; only batches in flight still hold the slot."""
    confirmed: bool = False
    """The listener hears it: no longer speculative."""
    void_frames: int = 0
    """Frames in flight that were launched past the end of a segment, to be dropped."""
    reached_limit: bool = False
    guard: Guard = ""
    """The first guard that ended a segment."""
    trim: LeadingSilenceTrim = field(default_factory=LeadingSilenceTrim)
    pending_words: list[Word] = field(default_factory=list)
    text_wait_since_s: float | None = None
    first_text_s: float | None = None
    first_frame_s: float | None = None
    """When its first frame batch was launched."""
    first_codec_s: float | None = None
    """When its first codec batch was launched."""
    playback: PlaybackSnapshot | None = None

    @property
    def id(self) -> str:
        """The caller's id."""
        return self.submit.request_id

    @property
    def unconfirmed(self) -> bool:
        """It was submitted for a turn that may not come, and nobody hears it yet."""
        return self.submit.speculative and not self.confirmed

    @property
    def kind(self) -> int:
        """LIVE, SPECULATIVE or OFFLINE."""
        if not self.submit.live:
            return OFFLINE
        return SPECULATIVE if self.unconfirmed else LIVE

    @property
    def text_known(self) -> bool:
        """The next frame's text row (or recorded frame) is there."""
        return self.feed is None or self.feed.has_row

    @property
    def prompt_known(self) -> bool:
        """The prompt can be run: one that holds text only once that text is there."""
        return self.feed is None or self.feed.segment_known

    @property
    def can_frame(self) -> bool:
        """The next frame can be made as soon as the prompt was run."""
        if self.ended or not self.text_known or (self.needs_prefill and not self.prompt_known):
            return False
        return self.feed is None or not self.feed.exhausted

    @property
    def waits_for_text(self) -> bool:
        """Everything known is spoken or on its way, and the text is open."""
        if self.feed is not None and self.feed.unread:
            return False
        prompt_to_run = self.needs_prefill and self.prompt_known
        return not (self.ended or self.text_known or prompt_to_run)

    @property
    def frozen(self) -> bool:
        """The listener's playback stands still."""
        return self.playback is not None and self.playback.state != "playing"

    def first_times_s(self, now_s: float) -> tuple[float, float | None, float, float]:
        """Return when text came, a frame was begun, a chunk was begun, and audio is out: now."""
        text_s = self.first_text_s or self.arrival_s
        return text_s, self.first_frame_s, self.first_codec_s or now_s, now_s

    @property
    def words_from(self) -> int:
        """Frames launched from which on words wait for the next samples."""
        if not self.submit.word_times:
            return NEVER
        if self.pending_words:
            return 0
        return NEVER if self.feed is None else self.feed.words_from

    def audible(self, pcm: NDArray[np.int16], last: bool, next_s: float) -> NDArray[np.int16]:
        """Trim decoded samples [n * 1920]; return those to publish, maybe none.

        A live listener's first ones wait until they last for the `next_s` to the next chunk.
        """
        if self.trim.open:
            return pcm
        least_samples = s_to_samples(next_s) if self.kind == LIVE else 0
        kept = to_pcm(self.trim.push(pcm.astype(np.float32) / 32767.0, last, least_samples))
        return kept if self.trim.open else kept[:0]

    def timed_words(self, num_frames: int) -> list[Words]:
        """Move words begun in the frames launched to published time: the trimmed lead is off."""
        words, trim = self.pending_words, self.trim
        if self.feed is not None:
            found = self.feed.take_words(num_frames)
            words = self.pending_words = words + found if words else found
        if not self.submit.word_times:
            words.clear()
        if not (words and trim.open):
            return []
        self.pending_words = []
        if trim.dropped_samples:
            lead_s = samples_to_s(trim.dropped_samples)
            words = [
                Word(w.text, max(w.start_s - lead_s, 0.0), max(w.end_s - lead_s, 0.0))
                for w in words
            ]
        return [Words(self.submit.request_id, tuple(words), not self.exact_times)]

    def next_recorded(self) -> FrameCodes:
        """Take the next frame of the recording."""
        codes = self.recorded.popleft()
        self.ended = not self.recorded
        return codes
