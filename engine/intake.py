"""Intake: checks a Submit against the loaded checkpoint and turns it into a Request."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import NoneType

import numpy as np

from playhead.engine.clones import Clones
from playhead.engine.errors import InputError, TextTooLong
from playhead.engine.messages import Recording, Sampling, Submit
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt, build_prompt
from playhead.engine.profile import Profile
from playhead.engine.request import FrameCodes, Request
from playhead.engine.text.entry import open_text
from playhead.engine.text.feed import FeedMode, RowIds, TextFeed
from playhead.engine.text.front_end import load_front_end
from playhead.engine.text.pronunciations import check_pronunciations
from playhead.engine.units import CODEBOOKS
from playhead.engine.voice_store import VoiceStore

FIRST_CHARS, MORE_CHARS = 32, 128
"""Text is read in pieces: 100 characters of plain English take 0.1 ms, of other languages 0.3. The
first piece is enough to begin with; then texts that wait take turns, one piece a step, and steps
follow at once."""

_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("voice", "instruct"), (str, NoneType)),
    **dict.fromkeys(("language", "text"), (str,)),
    **{"seed": (int,), "max_frames": (int, NoneType), "sampling": (Sampling,)},
}
"""Callers in the same process can hand over anything."""


@dataclass(frozen=True, slots=True)
class ValidSubmit:
    """A Submit whose every part the checkpoint can honour."""

    submit: Submit
    prompt: Prompt
    sampling: ResolvedSampling
    recorded: tuple[FrameCodes, ...]


class Intake:
    """Knows what the checkpoint allows; holds its text front end."""

    def __init__(self, model: Model, profile: Profile, voices: VoiceStore | None = None) -> None:
        """Load the front end the checkpoint names; raises CheckpointError."""
        self._model = model
        self._profile = profile
        self._clones = Clones(model, voices or VoiceStore())
        self._front_end, self._traits = load_front_end(model.text_front_end, model.folder)
        self._row_ids = RowIds(end=model.config.tts_eos_id, pad=model.config.tts_pad_id)

    @property
    def exact_times(self) -> bool:
        """Word times of the front end have a verified error bound."""
        return self._traits.exact_times

    def check(self, submit: Submit) -> ValidSubmit:
        """Raise the InputError that says what is wrong, or return the request's parts."""
        for name, kinds in _KINDS.items():
            value = getattr(submit, name)
            if not isinstance(value, kinds):
                allowed = " or ".join(kind.__name__ for kind in kinds)
                raise InputError(f"{name} is of type {type(value).__name__}, allowed is {allowed}")
        if submit.max_frames is not None and submit.max_frames < 1:
            raise InputError(f"max_frames is {submit.max_frames}, at least 1 is allowed")
        check_pronunciations(submit.pronunciations, phonemes=self._traits.reads_figures)
        submit = replace(submit, voice=self._clones.resolve(submit.voice))
        return ValidSubmit(
            submit,
            self.prompt(submit, ()),
            self._model.resolve_sampling(submit.sampling),
            _recorded_frames(submit.recording, self._model.config.num_codes),
        )

    def prompt(self, submit: Submit, body: Sequence[int]) -> Prompt:
        """Build the prompt rows of a request's next segment; `body` where it holds the text."""
        return build_prompt(
            self._model,
            voice=submit.voice,
            language=submit.language,
            instruct=submit.instruct,
            text_mode=submit.text_mode,
            body=body,
            clone=self._clones.get(submit.voice),
        )

    def request(self, valid: ValidSubmit, slot: int, now_s: float) -> Request:
        """Make the request of a slot that is about to be opened."""
        submit, config = valid.submit, self._model.config
        recording = submit.recording
        request = Request(
            submit=submit,
            slot=slot,
            arrival_s=now_s,
            feed=None if recording else self._feed(submit),
            max_frames=min(submit.max_frames or config.max_new_frames, config.max_new_frames),
            exact_times=recording is not None or self._traits.exact_times,
            needs_prefill=recording is None,
        )
        if recording is not None:
            request.recorded.extend(valid.recorded)
            request.pending_words.extend(recording.words)
        return request

    def push(self, request: Request, text: str) -> None:
        """Add text to an open request, to be read. Raises InputError or TextTooLong."""
        feed = request.feed
        if feed is None:
            raise InputError("a recording takes no text; submit text and recording apart")
        if feed.over:
            raise InputError("the text was closed; submit a new request for more")
        total = feed.num_chars + len(text)
        if total > self._profile.max_text_chars:
            raise TextTooLong(
                f"{total} characters, allowed are {self._profile.max_text_chars}; split the text"
            )
        feed.push(text)

    def _feed(self, submit: Submit) -> TextFeed:
        segment_frames = self._model.config.segment_frames(self._profile.segment_frames)
        stream = open_text(
            self._front_end,
            self._traits,
            submit.language,
            submit.normalize,
            submit.pronunciations,
        )
        mode = self._feed_mode(submit)
        return TextFeed(stream, self._traits, self._row_ids, mode, segment_frames)

    def _feed_mode(self, submit: Submit) -> FeedMode:
        """Return how text goes in: an in-context clone's stands beside the reference's frames.

        Of a text that is not complete when it is asked for, such a voice speaks each sentence once
        it is, whenever that is: the codes depend on the text alone.
        """
        clone = self._clones.get(submit.voice)
        if clone is None or clone.codes is None:
            return submit.text_mode
        return "full" if submit.closed or submit.text_mode == "full" else "sentences"


def _recorded_frames(recording: Recording | None, codebook_size: int) -> tuple[FrameCodes, ...]:
    if recording is None:
        return ()
    flat = np.frombuffer(recording.codes, "<u2") if len(recording.codes) % 2 == 0 else np.zeros(0)
    if len(flat) == 0 or len(flat) % CODEBOOKS:
        raise InputError(
            f"recording has {len(recording.codes)} bytes; allowed are whole frames of "
            f"{CODEBOOKS} two-byte codes"
        )
    if int(flat.max()) >= codebook_size:
        raise InputError(f"recording has code {flat.max()}; allowed are 0 to {codebook_size - 1}")
    return tuple(flat.reshape(-1, CODEBOOKS).astype(np.int16))
