"""CudaRunner: replays captured graphs behind the methods of runner.Runner; engine thread only.

    open/restart ─▶ prefill: joins and prefix copies ─▶ launch_frame ─▶ Flight
                                                        launch_codec ─▶ Flight   (second stream)

Everything is captured and allocated before the constructor returns; `captures` never grows later.
The host passes slots, text ids and flags; results come back through pinned memory. At most
`IN_FLIGHT` flights of a kind may be uncollected. On a CPU the same code runs without graphs,
through Triton's interpreter: that is how it is tested.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
from playhead.engine.cuda_codec import CodecBody, held_values
from playhead.engine.cuda_frame import FrameBody, FrameBuffers, PromptBody
from playhead.engine.cuda_joins import LONG_BYTES, Joins, SlotStart
from playhead.engine.cuda_reference import CACHE_BYTES, References
from playhead.engine.cuda_staging import CodecStaging, FrameStaging
from playhead.engine.cuda_state import Arena, CodecState, StateSizes, TalkerState, memory_table
from playhead.engine.cuda_weights import CodecWeights, FrameWeights
from playhead.engine.errors import TextTooLong
from playhead.engine.flight import Flight
from playhead.engine.graphs import (
    Body,
    DeviceEvent,
    GraphSizes,
    Recorder,
    codec_sizes,
    device_faults,
    pick_size,
)
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.prompt import Prompt
from playhead.engine.runner import CodecResult, FrameResult
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES
from playhead.kernels.launches import TRITON, Launches
from playhead.kernels.sampler import MAY_END

log = logging.getLogger(__name__)

IN_FLIGHT = 4
"""Uncollected flights of one kind that the pinned rings have room for: one a chunk size."""
JOINS_IN_FLIGHT = 3
"""Joins that may wait on the device: their settings stand in a ring of one more."""
TIMED_REPLAYS = 5
CODEC_PIECES = 4
"""Most replays of one codec flight."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One replay of a codec flight: from which row and frame, and where it lands."""

    row: int
    first_frame: int
    pcm: NDArray[np.int16]
    broken: NDArray[np.int16]


class CudaRunner:
    """Runs batches of slots by replaying graphs."""

    @device_faults()
    def __init__(
        self, frame: FrameWeights, codec: CodecWeights, sizes: StateSizes, graphs: GraphSizes,
        launches: Launches = TRITON, capture: bool = True,
    ) -> None:  # fmt: skip
        """Allocate all state, print the memory plan, capture every shape.

        `launches` is which kernels run; without `capture` each launch is made by the host.
        """
        self._launches = launches
        self.weights, self._codec_weights, self._sizes = frame, codec, sizes
        self._device, self._graphs = frame.code_rows.device, graphs
        self._on_device = self._device.type == "cuda"
        rows = max(*graphs.frame_batches, *graphs.prompt_rows)
        self.talker_state = TalkerState(frame, sizes)
        self._codec = CodecState(codec, sizes.num_slots)
        self.buffers = FrameBuffers(frame, self.talker_state, rows, launches)
        self._recorder = Recorder(self._device, graphs=capture)
        # A frame is hundreds of launches: those of a codec batch, first audio in it, go between.
        self._codec_recorder = Recorder(self._device, high_priority=True, graphs=capture)
        self._codec_pairs = codec_sizes(graphs.max_codec_streams, graphs.codec_frames)
        most = max(s * f for s, f in self._codec_pairs)
        held = (held_values(codec, self._codec.pasts_of, s, f) for s, f in self._codec_pairs)
        self._arena = Arena(max(held), codec.tables)
        # One copy brings both: slots first, then codes.
        self._codec_input = self.talker_state.wholes.new_zeros(most * (CODEBOOKS + 1))
        self._samples = torch.zeros(most * FRAME_SAMPLES, device=self._device)
        # Its flags have room for the widest graph, which may hold more than max_codec_streams.
        size = most * FRAME_SAMPLES + max(s for s, _ in self._codec_pairs)
        self._record = torch.zeros(size, dtype=torch.int16, device=self._device)
        self.frame_replays: dict[int, Body] = {}
        self.codec_replays: dict[tuple[int, int], tuple[Body, CodecBody]] = {}
        self._prompts: dict[int, tuple[Body, PromptBody]] = {}
        self._marks: deque[DeviceEvent | None] = deque(maxlen=JOINS_IN_FLIGHT)
        self._joined: dict[int, DeviceEvent | None] = {}
        """Slots whose join no frame has followed yet."""
        log.info("device memory planned:\n%s", memory_table(self.memory()))
        self._joins = Joins(frame, self.talker_state, self._codec, self._recorder, launches)
        with torch.inference_mode():
            self._capture_all()
        n, pin = IN_FLIGHT + 1, self._on_device
        self._frame_staging = FrameStaging(
            graphs.frame_batches, self.buffers.inputs, self.buffers.codes, n, pin
        )
        records = {size: body.record for size, (_, body) in self.codec_replays.items()}
        self._codec_staging = CodecStaging(records, self._codec_input, CODEC_PIECES * n, pin)
        replays = {size: replay for size, (replay, _) in self.codec_replays.items()}
        self._references = References(self._codec, replays, self._codec_input)
        if self._on_device:
            self._warm()
        self.captures_at_start = self.captures
        """`captures` when the runner was made: later ones must never happen."""

    @property
    def captures(self) -> int:
        """Graphs captured so far; constant once the runner is made."""
        return self._recorder.captures + self._codec_recorder.captures

    @property
    def frame_stream(self) -> "torch.cuda.Stream | None":
        """The stream of frames and prompts; None on a CPU."""
        return self._recorder.stream

    def wait(self) -> None:
        """Wait until the device has done everything launched so far: benchmarks only."""
        for recorder in (self._recorder, self._codec_recorder):
            if recorder.stream is not None:
                recorder.stream.synchronize()

    def memory(self) -> dict[str, int]:
        """Return device bytes by part: the plan the runner was built to."""
        t, c = self.talker_state, self._codec
        return {
            "weights, talker and predictor": self.weights.num_bytes,
            "weights, codec": self._codec_weights.num_bytes,
            "prefixes": t.prefixes.nbytes,
            "longer prefixes, at most": LONG_BYTES,
            f"talker keys and values, {self._sizes.pool_pages} pages": t.cache.nbytes,
            "slots": sum(x.nbytes for x in (t.carry, t.wholes, t.reals, t.seen, t.page_table)),
            "codec state": c.pasts.nbytes + c.ring.nbytes,
            "codec states behind references, at most": CACHE_BYTES,
            "frame buffers": self.buffers.num_bytes,
            "codec buffers": self._arena.values.nbytes + self._samples.nbytes + self._record.nbytes,
        }

    def _capture_all(self) -> None:
        """Capture every shape, largest first, over scratch slot 0."""
        for rows in sorted(self._graphs.frame_batches, reverse=True):
            body = FrameBody(self.weights, self.talker_state, self.buffers, rows)
            self.frame_replays[rows] = self._recorder.capture(body.run)
        for rows in sorted(self._graphs.prompt_rows, reverse=True):
            prompt = PromptBody(self.weights, self.talker_state, self.buffers, rows)
            self._prompts[rows] = self._recorder.capture(prompt.run), prompt
        for streams, frames in self._codec_pairs:
            codec = CodecBody(
                self._codec_weights, self._codec, self._arena, streams, frames,
                self._codec_input[streams:], self._codec_input, self._samples, self._record,
                self._launches,
            )  # fmt: skip
            self.codec_replays[streams, frames] = self._codec_recorder.capture(codec.run), codec

    def _warm(self) -> None:
        """Join a stream by a run, then by a copy: what no graph holds compiles and loads now."""
        ids = np.zeros(2, np.int64)
        prompt = Prompt(ids, ids, num_constant_rows=1)
        for _ in range(2):
            self.open(1, prompt, ResolvedSampling(0.0, 0, 1.0, 1.0, 0.0, 0, 1.0), seed=0)
            self.prefill([1])
        self.close(1)
        self._joined.clear()

    @device_faults()
    @torch.inference_mode()  # where graphs are off, a replay is the body itself
    def costs(self) -> StepCosts:
        """Return what the smallest and the largest batches take, timed over scratch slot 0."""
        if not self._on_device:
            return StepCosts()
        sizes = sorted(self._graphs.frame_batches)
        frames = [(size, self._time_s(self.frame_replays[size])) for size in (sizes[0], sizes[-1])]
        pairs = self._codec_pairs[-1], self._codec_pairs[0]
        codecs = [(s * f, self._time_s(self.codec_replays[s, f][0])) for s, f in pairs]
        return StepCosts.measured(frames, codecs)

    def _time_s(self, replay: Body) -> float:
        with torch.cuda.stream(self._recorder.stream):
            began, ended = DeviceEvent(enable_timing=True), DeviceEvent(enable_timing=True)  # type: ignore[no-untyped-call]
            replay()
            began.record()
            for _ in range(TIMED_REPLAYS):
                replay()
            ended.record()
            ended.synchronize()
        return float(began.elapsed_time(ended)) / 1e3 / TIMED_REPLAYS

    # -- streams

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        """Start a stream; return the prompt rows to run.

        Raises TextTooLong when the prompt does not fit a segment, Busy when no pages are left.
        """
        self._reserve(slot, prompt)
        self._joins.starts[slot] = SlotStart(prompt, sampling, seed, new_stream=True)
        return prompt.num_rows - self._joins.stored_rows(prompt)

    def restart(self, slot: int, prompt: Prompt) -> int:
        """Start a new talker segment; codec state, seed, frame counter and penalty go on."""
        self._reserve(slot, prompt)
        held = self._joins.starts[slot]
        new = held.new_stream and not held.joined
        self._joins.starts[slot] = SlotStart(prompt, held.sampling, held.seed, new_stream=new)
        return prompt.num_rows - self._joins.stored_rows(prompt)

    def close(self, slot: int) -> None:
        """Give the pages of an ended stream back; the slot may be opened again at any time."""
        self.talker_state.pool.release(slot)
        self._joins.starts.pop(slot, None)

    def _reserve(self, slot: int, prompt: Prompt) -> None:
        if prompt.num_rows > self._sizes.prompt_positions:
            raise TextTooLong(
                f"the prompt takes {prompt.num_rows} rows, allowed are "
                f"{self._sizes.prompt_positions}; shorten the instruction, the voice's "
                "reference, or the text of one full-text request"
            )
        # One position more: a row that ends may run a surplus frame before the host knows.
        positions = prompt.num_rows + self._sizes.segment_frames + 1
        self.talker_state.pool.reserve(slot, min(positions, self._sizes.max_positions))

    # -- prompts

    @torch.inference_mode()
    def prefill(self, slots: Sequence[int]) -> None:
        """Join freshly opened or restarted slots: stored prefixes are copied, the rest is run."""
        with device_faults(), self._on(self._recorder):
            if len(self._marks) == JOINS_IN_FLIGHT and self._marks[0] is not None:
                self._marks[0].synchronize()  # its settings are about to be overwritten
            references = self._joins.references(slots)
            for slot, first, last in self._joins.join(slots):
                self._run_prompt(slot, first, last)
                self._joins.keep_prefix(slot, last)
            # A join clears codec frame counts. A collected frame proves that it is over; recorded
            # speech decodes without one and has to wait.
            self._marks.append(self._mark(self._recorder))
            self._joined.update(dict.fromkeys(slots, self._marks[-1]))
        for slot, reference in references.items():
            with device_faults(), self._on(self._codec_recorder):
                self._after_join(slot)
                self._references.start(slot, reference)

    def _run_prompt(self, slot: int, first: int, last: int) -> None:
        """Run prompt rows first..last - 1 of one slot in captured pieces."""
        rows = self._joins.prompt_rows(slot, first, last)
        biggest = max(self._graphs.prompt_rows)
        sizes = tuple(sorted(self._graphs.prompt_rows))
        for start in range(first, last, biggest):
            num = min(biggest, last - start)
            replay, prompt = self._prompts[pick_size(sizes, num)]
            prompt.slots.zero_()
            prompt.positions.zero_()
            prompt.x.zero_()
            prompt.slots[:num] = slot
            torch.arange(start, start + num, out=prompt.positions[:num])
            prompt.x[:num] = rows[start - first : start - first + num]
            replay()

    # -- frames

    def frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> FrameResult:
        """Make the next frame of each slot and wait for it."""
        return self.launch_frame(slots, text_ids, may_end).result()

    @torch.inference_mode()
    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        """Start the next frame of each slot; a row that ended before is ended again.

        The next launch may come before this one is collected: a row that ends here then runs one
        frame too many, which reads `ended` and is dropped.
        """
        num = len(slots)
        rows = pick_size(self._graphs.frame_batches, num)
        for slot in self._joined.keys() & set(slots) if self._joined else ():
            del self._joined[slot]
        views = self._frame_staging.next(rows)
        block = views.block
        block[:, num:] = 0
        block[0, :num], block[1, :num], block[2, :num] = slots, text_ids, may_end
        block[2] *= MAY_END
        with device_faults(), self._on(self._recorder):
            began = self._mark(self._recorder)
            views.inputs.copy_(views.staged, non_blocking=True)
            self.frame_replays[rows]()
            views.landing.copy_(views.record, non_blocking=True)
            event = self._mark(self._recorder)

        def finish() -> FrameResult:
            made = views.made[:num]
            return FrameResult(made[:, :CODEBOOKS].astype(np.int16), made[:, CODEBOOKS] != 0)

        return Flight(finish, event, began)

    # -- codec

    @torch.inference_mode()
    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        """Start decoding the next n frames of each slot; any n and B, in captured pieces.

        The samples may be a view of pinned memory: use them before IN_FLIGHT further launches.
        """
        num_streams, num_frames, _ = codes.shape
        pieces: list[_Piece] = []
        with device_faults(), self._on(self._codec_recorder):
            for slot in self._joined.keys() & set(slots) if self._joined else ():
                self._after_join(slot)
            at, began = 0, self._mark(self._codec_recorder)
            while at < num_frames:
                step = max(f for f in self._graphs.codec_frames if f <= num_frames - at)
                most = max(s for s, f in self._codec_pairs if f == step)
                for row in range(0, num_streams, most):
                    end = min(row + most, num_streams)
                    part = codes[row:end, at : at + step]
                    pieces.append(_Piece(row, at, *self._replay_codec(slots[row:end], part)))
                at += step
            event = self._mark(self._codec_recorder)
        assert len(pieces) <= CODEC_PIECES, "a codec batch this large has no room in the rings"

        def finish() -> CodecResult:
            if len(pieces) == 1:
                return CodecResult(pieces[0].pcm, pieces[0].broken != 0)
            pcm = np.empty((num_streams, num_frames * FRAME_SAMPLES), np.int16)
            broken = np.zeros(num_streams, np.bool_)
            for piece in pieces:
                rows, samples = piece.pcm.shape
                start = piece.first_frame * FRAME_SAMPLES
                pcm[piece.row : piece.row + rows, start : start + samples] = piece.pcm
                broken[piece.row : piece.row + rows] |= piece.broken != 0
            return CodecResult(pcm, broken)

        return Flight(finish, event, began)

    def _after_join(self, slot: int) -> None:
        """Let the codec's stream wait for the join of a slot."""
        event = self._joined.pop(slot)
        if event is not None and self._codec_recorder.stream is not None:
            self._codec_recorder.stream.wait_event(event)

    def _replay_codec(
        self, slots: Sequence[int], codes: NDArray[np.int16]
    ) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """Start one captured call; return where its PCM and its broken flags land."""
        num, frames, _ = codes.shape
        streams = min(s for s, f in self._codec_pairs if f == frames and s >= num)
        views = self._codec_staging.next(streams, frames)
        views.slots[:num], views.slots[num:] = slots, 0
        views.codes[: codes.size], views.codes[codes.size :] = codes.reshape(-1), 0
        views.inputs.copy_(views.staged, non_blocking=True)
        self.codec_replays[streams, frames][0]()
        views.landing.copy_(views.record, non_blocking=True)
        return views.pcm[:num], views.broken[:num]

    # -- streams of the device

    def _on(self, recorder: Recorder) -> "torch.cuda.StreamContext":
        return recorder.context

    def _mark(self, recorder: Recorder) -> DeviceEvent | None:
        if recorder.stream is None:
            return None
        event = DeviceEvent(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(recorder.stream)
        return event
