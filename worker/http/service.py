"""Service: what every route shares: the engine, its readiness, the keys and the counters.

Lives on one loop. Ready means: the engine answered, and spoke one utterance since it last began.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator

from playhead.engine.errors import InputError, PlayheadError
from playhead.engine.messages import Submit
from playhead.engine.profile import Profile
from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore
from playhead.worker.client import EngineClient, Utterance
from playhead.worker.http.fields import Known
from playhead.worker.http.keys import Account, KeyRing
from playhead.worker.http.options import HttpOptions
from playhead.worker.http.problem import Problem
from playhead.worker.http.prometheus import HttpCounters
from playhead.worker.http.stored_voices import OwnVoices, VoiceMaker
from playhead.worker.http.voices import Models, Voices
from playhead.worker.interpreter import search_garbage
from playhead.worker.tracing import Traced, Traces

logger = logging.getLogger(__name__)

POLL_S = 0.1
WARM_TEXT = "Ready to speak."
NOT_READY_RETRY_S = 2.0


class Service:
    """The speaking side of the HTTP service; routes are its clients."""

    def __init__(
        self, client: EngineClient, options: HttpOptions, profile: Profile | None = None
    ) -> None:
        """Take a client that may not be started yet. Raises ConfigError for a bad keys file."""
        self.client = client
        self.profile = profile or Profile()
        self.options = options
        self.keys = KeyRing(options.keys_file, options.keys)
        self.counters = HttpCounters()
        self.traces = Traces(options.traces)
        self.draining = False
        self._traced: dict[str, Traced] = {}
        self._aliases = Voices(options.voice_aliases)
        self._models = Models(options.model)
        self.voice_store = VoiceStore()
        self.voice_maker = VoiceMaker(options.model, self.profile.device)
        self._warm = False
        self._instructable = False
        self._clones = False

    @property
    def ready(self) -> bool:
        """New work is taken."""
        return self._warm and not self.draining and self.client.status().ready

    def own_voices(self, account: Account) -> OwnVoices:
        """Return the stored voices of a key; where none is needed, those of this machine."""
        owner = account.owner if self.keys.required else LOCAL_OWNER
        return OwnVoices(self.voice_store, owner)

    def known(self, account: Account | None = None) -> Known:
        """Return what can be asked for now, and by whom; None: by those who have no key."""
        status = self.client.status()
        whose = OwnVoices(self.voice_store, LOCAL_OWNER)
        if account is not None:
            whose = self.own_voices(account)
        return Known(
            voices=status.voices,
            languages=status.languages,
            aliases=self._aliases,
            models=self._models,
            max_chars=self.options.max_chars,
            instructable=self._instructable,
            stored=whose if self._clones else None,
        )

    def check_ready(self) -> None:
        """Raise Problem 503 while no new work is taken."""
        if not self.ready:
            reason = "draining: it will end soon" if self.draining else "not ready yet"
            raise Problem(503, "not_ready", f"the server is {reason}", retry_s=NOT_READY_RETRY_S)

    @contextlib.asynccontextmanager
    async def speaking(
        self, submit: Submit, account: Account | None = None, num_chars: int = 0
    ) -> AsyncIterator[Utterance]:
        """Ask the engine and hold the utterance; it is cancelled on any way out.

        `num_chars`: what the account spent on it, given back if the engine refuses. Raises Busy,
        InputError, TransportError or Problem.
        """
        with self.traces.utterance(submit.request_id, submit.live) as traced:
            try:
                utterance = await self.client.submit(submit)
            except PlayheadError:
                if account is not None:
                    account.give_back(num_chars)
                raise
            self.counters.utterances += 1
            self._traced[submit.request_id] = traced
            try:
                yield utterance
            finally:
                self._traced.pop(submit.request_id, None)
                utterance.cancel()

    def handed(self, request_id: str, num_samples: int) -> None:
        """Count samples that went to the client of a request."""
        self.counters.audio_samples += num_samples
        if (traced := self._traced.get(request_id)) is not None:
            traced.audio()

    @contextlib.contextmanager
    def holding(self, account: Account) -> Iterator[None]:
        """Count one live utterance against its key. Raises Problem 429 or 503."""
        self.check_ready()
        with account.stream():
            self.counters.live_utterances += 1
            try:
                yield
            finally:
                self.counters.live_utterances -= 1

    def spend(self, account: Account, num_chars: int) -> None:
        """Take characters from a key's minute; raises Problem 429."""
        account.spend(num_chars, time.monotonic())

    async def keep_warm(self) -> None:
        """Speak one utterance whenever a fresh engine is there; runs until cancelled."""
        told = ""
        while True:
            status = self.client.status()
            if not status.ready:
                self._warm = False
            elif not self._warm:
                try:
                    await self._warm_up()
                except PlayheadError as error:
                    if str(error) != told:  # once, not ten times a second
                        told = str(error)
                        logger.warning("not ready: the warm-up failed, %s; trying again", told)
            if not self.counters.live_utterances:
                search_garbage()
            await asyncio.sleep(POLL_S)

    async def _warm_up(self) -> None:
        voices = self.client.status().voices
        try:
            await self._speak_once(None)
            self._clones = False
        except InputError:
            self._clones = True
            await self.voice_maker.begin()
            await self._speak_as_clone()
        if not self._clones and (wrong := self._aliases.unknown(voices)):
            logger.warning("aliases of voices this checkpoint has not: %s", ", ".join(wrong))
        self._instructable = await self._follows_instructions()
        self._warm = True
        logger.info("warmed up, %d voices", len(voices))

    async def _speak_as_clone(self) -> None:
        """Try the first stored voice of this checkpoint; without one there is nothing to try."""
        for voice, _ in OwnVoices(self.voice_store, LOCAL_OWNER).listed():
            with contextlib.suppress(InputError):
                await self._speak_once(voice.id)
                return

    async def _speak_once(self, voice: str | None) -> None:
        submit = Submit("warm-up", voice, text=WARM_TEXT, closed=True, live=False)
        async with self.speaking(submit) as utterance:
            async for _ in utterance:
                continue

    async def _follows_instructions(self) -> bool:
        probe = Submit("probe", text="", instruct="Speak calmly.", closed=True, live=False)
        try:
            async with self.speaking(probe):
                return True
        except InputError:
            return False
