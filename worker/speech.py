"""Speech: one utterance of a room, from first text to last heard word; on the room's loop."""

import asyncio

from playhead.engine.clock import PlaybackClock, total_s
from playhead.engine.errors import EmptyText
from playhead.engine.messages import Done, Pcm, PlaybackSnapshot, Submit, Word
from playhead.engine.receiver import ReceiverEstimate
from playhead.engine.units import SAMPLE_BYTES, samples_to_s
from playhead.worker.client import Utterance
from playhead.worker.events import ClockReading
from playhead.worker.heard import begun, heard_text
from playhead.worker.pace import LITTLE_S, Pace


class Speech:
    """Text goes in through `append` and `close`; the speaker does the rest."""

    def __init__(self, submit: Submit, request_id: str) -> None:
        """Take the request without its text; `request_id` is the room's name for it."""
        self.submit = submit
        self.request_id = request_id
        self.words: list[Word] = []
        self.done: Done | None = None
        self.started = False
        self.over = False
        """Further text is of no use: it ended, failed or was cut."""
        self._clock: PlaybackClock | None = None
        self._utterance: Utterance | None = None
        self._text: list[str] = []
        self._num_captioned = 0
        self._received_samples = 0
        self._received_at_s: float | None = None
        """When the last chunk came; None where the next one waits for something else."""
        self._held_s = 0.0
        """How much sound was there to be played then."""
        self._came_s = 0.0
        """How much of it came then."""
        self._needed_s = 0.0
        """What would have had to be held before the waits in a row that count, to bridge them."""
        self._chunk_frames = 0
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def clock(self) -> PlaybackClock:
        """The playback of this speech; there from admission on."""
        assert self._clock is not None, "not admitted yet"
        return self._clock

    def append(self, text: str) -> None:
        """Add text."""
        if self._utterance is not None:
            self._utterance.append(text)
        else:
            self._text.append(text)
            self._changed.set()

    def close(self) -> None:
        """Say that no more text comes."""
        self._closed = True
        self._changed.set()
        if self._utterance is not None:
            self._utterance.close()

    async def first_text(self) -> str:
        """Wait for something worth a slot; return all text so far. Raises EmptyText."""
        while not any(piece.strip() for piece in self._text):
            if self._closed:
                raise EmptyText("the text is empty; send at least one word")
            self._changed.clear()
            await self._changed.wait()
        text = "".join(self._text)
        self._text.clear()
        return text

    def admitted(self, utterance: Utterance, receiver: ReceiverEstimate) -> None:
        """Take the engine's utterance and pass on what came since it was asked for."""
        self._utterance = utterance
        self._clock = PlaybackClock(utterance.request_id, receiver)
        if self._text:
            utterance.append("".join(self._text))
            self._text.clear()
        if self._closed:
            utterance.close()

    def cancel(self) -> None:
        """Stop its generation; idempotent, at once."""
        self.over = True
        if self._utterance is not None:
            self._utterance.cancel()

    def report(self, snapshot: PlaybackSnapshot) -> None:
        """Tell the engine where playback stands, while it still generates."""
        if self._utterance is not None and self.done is None:
            self._utterance.report(snapshot)

    def received(self, chunk: Pcm, pace: Pace, now_s: float) -> None:
        """Count a chunk that came from the engine, and tell how long it was waited for.

        Where chunks bring less than the time they take, each adds to what had to be held for all.
        """
        if self._received_at_s is None or self._held_s >= LITTLE_S:
            self._needed_s = 0.0
        else:
            short_s = max(self._needed_s - self._came_s, 0.0)
            self._needed_s = now_s - self._received_at_s + short_s
            pace.waited(self._needed_s)
        self._came_s = samples_to_s(len(chunk.pcm) // SAMPLE_BYTES)
        self._received_samples = chunk.start_sample + len(chunk.pcm) // SAMPLE_BYTES
        self._chunk_frames = chunk.num_frames
        playing = self.clock.state == "playing"
        self._received_at_s = now_s if playing else None
        self._held_s = samples_to_s(self._received_samples - self.clock.exited_samples(now_s))

    def starved(self) -> None:
        """The next chunk waits for text, not for the engine."""
        self._received_at_s = None

    def reading(self, snapshot: PlaybackSnapshot) -> ClockReading:
        """Return a snapshot of its clock as the room is told."""
        waiting_s = samples_to_s(self._received_samples - snapshot.pushed_samples)
        return ClockReading(
            request_id=self.request_id,
            clock_s=snapshot.at_s,
            pushed_s=samples_to_s(snapshot.pushed_samples),
            exited_s=samples_to_s(snapshot.exited_samples),
            heard_s=samples_to_s(snapshot.heard_samples),
            slack_s=snapshot.dry_at_s - snapshot.at_s + waiting_s,
            bridge_s=snapshot.bridge_s,
            state=snapshot.state,
            source=snapshot.source,
            gaps=self.num_gaps,
            chunk_frames=self._chunk_frames,
        )

    def heard_s(self, now_s: float) -> float:
        """Return how much of it reached the ear."""
        return samples_to_s(self._clock.heard_samples(now_s)) if self._clock else 0.0

    def heard_text(self, now_s: float) -> str:
        """Return the words that reached the ear."""
        return heard_text(self.words, self.heard_s(now_s))

    def new_caption(self, now_s: float) -> str:
        """Return the words that began to be heard since the last call."""
        num = begun(self.words, self.heard_s(now_s)) if self.heard_s(now_s) > 0 else 0
        text = "".join(word.text for word in self.words[self._num_captioned : num])
        self._num_captioned = max(self._num_captioned, num)
        return text

    def rest_of_caption(self) -> str:
        """Return the words no caption showed yet."""
        text = "".join(word.text for word in self.words[self._num_captioned :])
        self._num_captioned = len(self.words)
        return text

    @property
    def num_gaps(self) -> int:
        """Silences inside it that no missing text explains."""
        return len(self._clock.gaps) if self._clock else 0

    def breaks_s(self) -> dict[str, float]:
        """Return the time lost inside it, by cause, as its last event tells."""
        if self._clock is None:
            return {}
        clock = self._clock
        kinds = {
            "gap_s": clock.gaps,
            "stretched_s": clock.stretches,
            "text_wait_s": clock.text_waits,
        }
        return {name: round(total_s(breaks), 3) for name, breaks in kinds.items()}

    @property
    def captioned(self) -> bool:
        """Some caption of it went out."""
        return self._num_captioned > 0

    def heard_at_s(self, now_s: float) -> float | None:
        """Return when its last sample reaches the ear; None while samples may still come."""
        if self.done is None:
            return None
        if self.clock.pushed_samples < self.done.num_samples:
            return None
        if self.clock.heard_samples(now_s) >= self.done.num_samples:
            return now_s
        return self.clock.dry_at_s(now_s) + self.clock.receiver.delay_s(now_s)
