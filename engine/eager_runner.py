"""EagerRunner: runs batches of slots eagerly on one torch device; what it launches has landed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from playhead.engine.admission import StepCosts
from playhead.engine.errors import TextTooLong
from playhead.engine.flight import Flight
from playhead.engine.models.config import MIN_FRAMES, ResolvedSampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt
from playhead.engine.models.sampling import BatchSampling
from playhead.engine.models.talker import TalkerCache
from playhead.engine.profile import Profile
from playhead.engine.runner import PROMPT_POSITIONS, CodecResult, FrameResult
from playhead.engine.tensor_cache import TensorCache
from playhead.engine.units import CODEBOOKS, to_pcm

PREFIX_CACHE_BYTES = 64 << 20
REFERENCE_CACHE_BYTES = 64 << 20
"""The codec's state behind a reference takes 5 MB at the published sizes."""
REFERENCE_FRAMES = 8
"""Frames of a reference decoded at a time: bounds memory, not the result."""


@dataclass(slots=True)
class _Slot:
    """What the host knows of one stream."""

    prompt: Prompt
    sampling: ResolvedSampling
    seed: int
    codec_started: bool = False
    """The codec stands where speech begins: behind the reference, where there is one."""
    position: int = 0
    """Talker positions filled in this segment."""
    segment_frames: int = 0
    frames: int = 0
    """Frames of the utterance so far: the noise counter."""


class EagerRunner:
    """Runs batches of slots eagerly on one device; all per-stream state lives in slot arrays."""

    def __init__(
        self,
        model: Model,
        max_streams: int,
        max_segment_frames: int = 512,
        num_threads: int | None = None,
        prefix_cache_bytes: int = PREFIX_CACHE_BYTES,
    ) -> None:
        """Reserve state for `max_streams` streams of segments of `max_segment_frames` frames.

        `num_threads` sets torch's CPU threads for the whole process; None leaves them.
        """
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        self.model = model
        self.max_positions = PROMPT_POSITIONS + max_segment_frames
        num_slots = max_streams + 1
        config, like = model.config, model.talker.code_rows
        with torch.inference_mode():
            self._cache = TalkerCache(config, num_slots, self.max_positions, like)
            self._carry = like.new_zeros(num_slots, config.talker.hidden)
            self._seen = torch.zeros(
                num_slots, config.num_codes + 1, dtype=torch.bool, device=model.device
            )
            self._codec_state = model.codec.new_state(num_slots)
        self._slots: dict[int, _Slot] = {}
        self._prefixes = TensorCache(prefix_cache_bytes)
        """Talker keys and values of constant prompt rows."""
        self._references = TensorCache(REFERENCE_CACHE_BYTES)
        """The codec's past behind references."""
        self._batch: tuple[tuple[int, ...], BatchSampling, Tensor] | None = None

    # -- streams

    @torch.inference_mode()
    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        """Start a stream; return the prompt rows to run. Raises TextTooLong."""
        rows = self._rows_to_run(prompt)
        self._slots[slot] = _Slot(prompt, sampling, seed)
        self._seen[slot].zero_()
        self._codec_state.reset(slot)
        self._batch = None
        return rows

    def restart(self, slot: int, prompt: Prompt) -> int:
        """Start a new talker segment; return the prompt rows to run. Raises TextTooLong."""
        rows = self._rows_to_run(prompt)
        held = self._slots[slot]
        held.prompt, held.position, held.segment_frames = prompt, 0, 0
        return rows

    def close(self, slot: int) -> None:
        """Forget the stream; its memory belongs to the slot."""
        self._slots.pop(slot, None)

    def _rows_to_run(self, prompt: Prompt) -> int:
        if prompt.num_rows > PROMPT_POSITIONS:
            raise TextTooLong(
                f"the prompt takes {prompt.num_rows} rows, allowed are {PROMPT_POSITIONS}; "
                "shorten the instruction, the voice's reference, or the text of one full-text "
                "request"
            )
        stored = self._prefixes.get(prompt.constant_key) is not None
        return prompt.num_rows - (prompt.num_constant_rows if stored else 0)

    def costs(self) -> StepCosts:
        """Return the guesses of a CPU: the first batches correct them."""
        return StepCosts()

    # -- stages

    @torch.inference_mode()
    def prefill(self, slots: Sequence[int]) -> None:
        """Run the prompts of freshly opened or restarted slots."""
        for slot in slots:
            held = self._slots[slot]
            prompt = held.prompt
            if prompt.reference is not None and not held.codec_started:
                self._start_codec(slot, prompt.reference)
            held.codec_started = True
            prefix = self._prefixes.get(prompt.constant_key)
            if prefix is None:
                self._run_rows(slot, prompt, 0, prompt.num_constant_rows)
                rows = self._cache.read(slot, prompt.num_constant_rows)
                self._prefixes.put(prompt.constant_key, rows)
            else:
                self._cache.write(slot, prefix)
            if prompt.num_rows > prompt.num_constant_rows:
                self._run_rows(slot, prompt, prompt.num_constant_rows, prompt.num_rows)
            held.position = prompt.num_rows
            self._carry[slot] = self.model.talker.start_row(prompt)

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        """Make the next frame of each slot now."""
        return Flight.landed(self.frame(slots, text_ids, may_end))

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        """Decode the next n frames of each slot now: codes [B, n, 16]."""
        samples = self.codec(slots, codes)
        broken = np.logical_not(np.isfinite(samples).all(axis=1), dtype=np.bool_)
        if broken.any():
            samples = np.nan_to_num(samples)
        return Flight.landed(CodecResult(to_pcm(samples), broken))

    @torch.inference_mode()
    def frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> FrameResult:
        """Make the next frame of each slot from its text id; `may_end` False masks the end.

        The first frame of a segment completes the prompt (prompt.py says with which id).
        """
        model, device = self.model, self.model.device
        held = [self._slots[s] for s in slots]
        sampling, at = self._settings(slots)
        x = self._carry.index_select(0, at)
        x = x + model.talker.text_rows(torch.tensor(text_ids, device=device))
        positions = [h.position for h in held]
        assert max(positions) < self.max_positions, "a segment outgrew its reservation"
        attend = self._cache.attend_steps(slots, positions)
        hidden = model.talker.run(x, torch.tensor(positions, device=device), attend)
        hidden = model.talker.stack.final(hidden)
        codes, ended = self._choose(hidden, held, sampling, at, may_end)
        self._carry[at] = model.talker.frame_rows(codes)
        for state in held:
            state.position += 1
            state.frames += 1
            state.segment_frames += 1
        return FrameResult(codes.cpu().numpy().astype(np.int16), ended.cpu().numpy())

    @torch.inference_mode()
    def codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> NDArray[np.float32]:
        """Decode the next n frames of each slot: codes [B, n, 16] -> samples [B, n * 1920]."""
        rows = torch.from_numpy(codes.astype(np.int64)).to(self.model.device)
        return self.model.codec.decode(rows, self._codec_state, slots).cpu().numpy()

    # -- parts of a stage

    def _run_rows(self, slot: int, prompt: Prompt, start: int, end: int) -> None:
        """Run prompt rows start..end - 1 through the talker for their keys and values."""
        x = self.model.talker.prompt_rows(prompt, start, end)
        positions = torch.arange(start, end, device=self.model.device)
        self.model.talker.run(x, positions, self._cache.attend_rows(slot, start, end - start))

    def _start_codec(self, slot: int, reference: NDArray[np.int16]) -> None:
        """Bring a slot's codec where a reference [R, 16] ends; its audio goes nowhere."""
        key = reference.tobytes()
        state = self._references.get(key)
        if state is not None:
            self._codec_state.write(slot, state, len(reference))
            return
        for first in range(0, len(reference), REFERENCE_FRAMES):
            self.codec([slot], reference[None, first : first + REFERENCE_FRAMES])
        self._references.put(key, self._codec_state.read(slot))

    def _settings(self, slots: Sequence[int]) -> tuple[BatchSampling, Tensor]:
        """Return the batch's sampling tensors and slot indices; a repeated batch reuses them."""
        key = tuple(slots)
        if self._batch is None or self._batch[0] != key:
            held = [self._slots[s] for s in slots]
            device, num_codes = self.model.device, self.model.config.num_codes
            sampling = BatchSampling.of(
                [h.sampling for h in held], [h.seed for h in held], num_codes, CODEBOOKS, device
            )
            self._batch = key, sampling, torch.tensor(slots, device=device)
        return self._batch[1], self._batch[2]

    def _choose(
        self,
        hidden: Tensor,
        held: Sequence[_Slot],
        sampling: BatchSampling,
        at: Tensor,
        may_end: Sequence[bool],
    ) -> tuple[Tensor, Tensor]:
        """Choose the 16 codes [B, 16] of a frame and which rows ended [B] from final states."""
        model, device = self.model, self.model.device
        num_codes = model.config.num_codes
        go_on = [
            h.segment_frames < MIN_FRAMES or not end for h, end in zip(held, may_end, strict=True)
        ]
        must_go_on = torch.tensor(go_on, device=device) if any(go_on) else None
        noise = sampling.noise(torch.tensor([h.frames for h in held], device=device), num_codes)
        scores = sampling.first_scores(
            model.talker.scores(hidden), self._seen.index_select(0, at), must_go_on
        )
        first = sampling.talker.choose(scores, None if noise is None else noise[:, 0])
        ended = first == num_codes
        first = first.masked_fill(ended, 0)
        self._seen[at, first] = True

        def choose(logits: Tensor, book: int) -> Tensor:
            drawn = None if noise is None else noise[:, book, :num_codes]
            return sampling.predictor.choose(logits, drawn)

        return model.code_predictor.run(hidden, first, choose), ended


def eager_runner(model: Model, profile: Profile) -> EagerRunner:
    """Build the runner that executes batches eagerly (CPU, or any torch device)."""
    return EagerRunner(
        model,
        max_streams=profile.max_streams,
        max_segment_frames=profile.segment_frames,
        num_threads=profile.num_threads or None,
    )
