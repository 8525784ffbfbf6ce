"""The stored voices an engine speaks: found by name or id, checked against the checkpoint, kept.

Engine thread only. A request's voice is resolved once, when it comes in: deleting or renaming a
voice never changes who finishes a sentence.
"""

from collections import OrderedDict

from playhead.engine.errors import InputError, UnknownVoice
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Clone
from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore, is_voice_id

KEPT = 256
"""Clones held in memory: a speaker vector of 2048 values takes 8 KiB, codes of 30 s 12 KiB."""


class Clones:
    """Clones by the id that stands in for a request's voice."""

    def __init__(self, model: Model, store: VoiceStore) -> None:
        """Take a checkpoint, which need not be one that clones, and the store."""
        self._model = model
        if model.config.kind == "base" and model.config.speaker is not None:
            assert model.voice_fingerprint  # reads weights: not within the first clone's step
        self._store = store
        self._kept: OrderedDict[str, Clone] = OrderedDict()

    def resolve(self, voice: str | None) -> str | None:
        """Return a stored voice's id for its name or id; any other voice comes back as it is.

        Raises UnknownVoice, InputError for a clone of another checkpoint, VoiceStoreError.
        """
        config = self._model.config
        if voice is None or config.kind != "base" or voice.lower() in config.voice_ids:
            return voice
        voice_id = voice if is_voice_id(voice) else self._store.find(LOCAL_OWNER, voice).id
        if voice_id not in self._kept:
            self._kept[voice_id] = self._checked(voice, voice_id)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(voice_id)
        return voice_id

    def get(self, voice: str | None) -> Clone | None:
        """Return the clone of a resolved voice; None where the voice is no clone."""
        if voice is None or self._model.config.kind != "base" or not is_voice_id(voice):
            return None
        clone = self._kept.get(voice)
        return self._checked(voice, voice) if clone is None else clone

    def _checked(self, asked: str, voice_id: str) -> Clone:
        try:
            clone, model = self._store.load(voice_id)
        except UnknownVoice:
            raise UnknownVoice(f"voice {asked!r} is not stored; add it first") from None
        if model != self._model.voice_fingerprint:
            raise InputError(
                f"voice {asked!r} was made with another checkpoint and would be another person's "
                "with this one; add it again with the checkpoint loaded"
            )
        return clone
