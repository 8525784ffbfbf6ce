"""Flights, rings, graph sizes, joins: the host side of the captured runner."""

import numpy as np
import pytest
import torch

from playhead.engine.cuda_joins import JOIN_SIZES, Joins, SlotStart
from playhead.engine.cuda_state import CodecState, PagePool, StateSizes, TalkerState, memory_table
from playhead.engine.cuda_weights import CodecWeights, FrameWeights
from playhead.engine.errors import Busy, DeviceFault
from playhead.engine.flight import Flight
from playhead.engine.graphs import (
    CODEC_ROW_FRAMES,
    FRAME_BATCHES,
    DeviceEvent,
    PinnedRing,
    Recorder,
    codec_sizes,
    pick_size,
)
from playhead.engine.models.prompt import Prompt
from playhead.kernels.sampler import SEED_HIGH, SEED_LOW
from tests.bench.true_shapes import SAMPLING, true_config, true_weights
from tests.kernels.interpreter import DEVICE


class _Event:
    """Stands for a device event."""

    def __init__(self) -> None:
        self.done, self.waits = False, 0

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.waits += 1


def test_flight_collects_once() -> None:
    event, calls = _Event(), []
    flight: Flight[int] = Flight(lambda: calls.append(1) or len(calls), event)
    assert not flight.ready()
    assert flight.result() == flight.result() == 1 and event.waits == 1
    event.done = True
    assert flight.ready()
    assert Flight.landed(7).ready() and Flight.landed(7).result() == 7


@pytest.mark.parametrize("question", ["query", "synchronize", "elapsed_time"])
def test_an_event_says_that_the_device_broke(
    question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(event: object, *others: object) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda.Event, question, broken)
    event = DeviceEvent(enable_timing=True)  # type: ignore[no-untyped-call]
    others = [event] if question == "elapsed_time" else []
    with pytest.raises(DeviceFault, match="illegal memory access"):
        getattr(event, question)(*others)


def test_ring_hands_out_every_buffer_in_turn() -> None:
    ring = PinnedRing(3, 4, torch.int32, pin=False)
    starts = [ring.next().data_ptr() for _ in range(6)]
    assert len(set(starts)) == 3 and starts[:3] == starts[3:]


@pytest.mark.parametrize(("wanted", "size"), [(1, 8), (8, 8), (9, 16), (97, 128), (256, 256)])
def test_pick_size_takes_the_next_captured_batch(wanted: int, size: int) -> None:
    assert pick_size(FRAME_BATCHES, wanted) == size


def test_codec_sizes_stay_under_the_limit_and_cover_every_batch() -> None:
    pairs = codec_sizes(256)
    assert all(s * f <= CODEC_ROW_FRAMES for s, f in pairs)
    assert pairs[0][0] * pairs[0][1] == max(s * f for s, f in pairs)
    assert {(1, 1), (256, 2), (64, 8), (128, 4)} <= set(pairs)
    assert max(s for s, _ in codec_sizes(5)) == 8


def test_recorder_counts_and_runs_eagerly_without_a_device() -> None:
    recorder, ran = Recorder(torch.device("cpu")), []
    replay = recorder.capture(lambda: ran.append(1))
    assert recorder.captures == 1 and not ran
    replay()
    assert ran == [1]


@pytest.fixture(scope="module")
def weights() -> tuple[FrameWeights, CodecWeights]:
    return true_weights(DEVICE, torch.float32, 96, true_config("tiny"))


def _prompt(voice: int) -> Prompt:
    return Prompt(np.array([1, 2, 3]), np.array([-1, voice, 5]), num_constant_rows=3)


def test_prefixes_are_kept_until_another_needs_the_room(
    weights: tuple[FrameWeights, CodecWeights],
) -> None:
    sizes = StateSizes(3, 32, 64, prefix_entries=2)
    state = TalkerState(weights[0], sizes)
    codec = CodecState(weights[1], sizes.num_slots)
    joins = Joins(weights[0], state, codec, Recorder(torch.device(DEVICE)))

    def join(voice: int, seed: int = 0) -> bool:
        """Return whether the prompt had to be run."""
        state.pool.reserve(2, 64)
        joins.starts[2] = SlotStart(_prompt(voice), SAMPLING, seed, new_stream=True)
        to_run = joins.join([2])
        if to_run:
            joins.keep_prefix(2, 3)
        return bool(to_run)

    assert [join(1), join(2), join(1), join(3), join(1), join(2)] == [
        True, True, False, True, False, True,
    ]  # fmt: skip
    join(1, seed=0x9234_5678_FFFF_FFFE)
    halves = state.wholes[2, [SEED_LOW, SEED_HIGH]].cpu().numpy().view(np.uint32)
    assert halves.tolist() == [0xFFFF_FFFE, 0x9234_5678]


def test_any_number_of_streams_joins_like_one_at_a_time(
    weights: tuple[FrameWeights, CodecWeights],
) -> None:
    num = JOIN_SIZES[-1] + 3
    sizes = StateSizes(num, 16, 16, prefix_entries=1)
    states = [TalkerState(weights[0], sizes) for _ in range(2)]
    scratch = states[0].reals[0].clone()
    slots = list(range(1, num + 1))
    for state, batches in zip(states, ([slots], [[slot] for slot in slots]), strict=True):
        codec = CodecState(weights[1], sizes.num_slots)
        codec.frames += 5
        joins = Joins(weights[0], state, codec, Recorder(torch.device(DEVICE)))
        for slot in slots:
            state.pool.reserve(slot, 16)
            joins.starts[slot] = SlotStart(_prompt(slot), SAMPLING, 7 * slot, new_stream=True)
        to_run = [each for batch in batches for each in joins.join(batch)]
        assert to_run == [(slot, 0, 3) for slot in slots]
        assert codec.frames[1:].count_nonzero() == 0
        assert torch.equal(state.reals[0], scratch)
    together, alone = states
    for name in ("carry", "wholes", "reals", "seen", "page_table"):
        assert torch.equal(getattr(together, name)[1:], getattr(alone, name)[1:]), name
    assert together.wholes[1:, SEED_LOW].tolist() == [7 * slot for slot in slots]


def test_memory_table_adds_up() -> None:
    table = memory_table({"weights": 3 << 20, "keys": 1 << 20}).splitlines()
    assert table[-1].split() == ["total", "4.0", "MiB"] and len(table) == 3


def test_pages_are_held_refused_and_given_back() -> None:
    pool = PagePool(num_pages=10, num_slots=4, pages_per_slot=6)
    pool.reserve(1, 65)
    pool.reserve(2, 80)
    assert pool.num_free == 0 and (pool.table[1:3, :5] > 0).all() and not pool.table[:, 5].any()
    assert len(set(pool.table[1:3, :5].flatten().tolist())) == 10
    before = pool.table.copy()
    with pytest.raises(Busy):
        pool.reserve(3, 16)
    with pytest.raises(Busy):
        pool.reserve(1, 96)
    assert (pool.table == before).all()
    pool.reserve(2, 16)  # a shorter segment gives pages back
    pool.reserve(3, 64)
    pool.release(1)
    assert pool.num_free == 5 and not pool.table[1].any()
