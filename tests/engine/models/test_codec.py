"""Incremental decoding: any way of cutting frames into calls gives the samples of one call."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from playhead.engine.models.codec import Codec, codec_shapes
from playhead.engine.models.synthetic import SHAPES, draw
from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES

NUM_FRAMES = 200
CONFIG = SHAPES["tiny"].codec
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}


def codec_of(dtype: torch.dtype) -> Codec:
    weights = {name: draw(name, size, 3, "cpu") for name, size in codec_shapes(CONFIG).items()}
    with torch.inference_mode():
        return Codec(CONFIG, {name: tensor.to(dtype) for name, tensor in weights.items()})


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def codes() -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, CONFIG.num_codes, (1, NUM_FRAMES, CODEBOOKS), generator=generator)


@pytest.fixture(scope="module", params=list(TOLERANCES), ids=str)
def whole(request: pytest.FixtureRequest, codes: Tensor) -> tuple[Codec, Tensor, float]:
    """Return a codec, its one-call samples, and the difference allowed to other cuts."""
    codec = codec_of(request.param)
    with torch.inference_mode():
        samples = codec.decode(codes, codec.new_state(1), [0])
    assert 0.1 < samples.abs().max() < 1.0, "a clamped or silent wave hides differences"
    return codec, samples, TOLERANCES[request.param]


def cuts_of(sizes: Sequence[int]) -> list[int]:
    """Repeat the sizes until they cover all frames."""
    cuts: list[int] = []
    while sum(cuts) < NUM_FRAMES:
        cuts.append(min(sizes[len(cuts) % len(sizes)], NUM_FRAMES - sum(cuts)))
    return cuts


def random_cuts(seed: int) -> list[int]:
    return cuts_of(np.random.default_rng(seed).integers(1, 30, 100).tolist())


@torch.inference_mode()
def decode_in(codec: Codec, codes: Tensor, cuts: list[int]) -> Tensor:
    state = codec.new_state(1)
    pieces = [codec.decode(part, state, [0]) for part in torch.split(codes, cuts, 1)]
    return torch.cat(pieces, 1)


@pytest.mark.parametrize(
    "cuts",
    [cuts_of([1]), cuts_of([2]), cuts_of([5]), cuts_of([8]), cuts_of([25]), cuts_of([97]),
     cuts_of([1, 3, 2, 7, 25]), cuts_of([1, CONFIG.window_frames, CONFIG.window_frames + 1]),
     random_cuts(1), random_cuts(2), random_cuts(3)],
    ids=lambda cuts: "-".join(map(str, cuts[:4])),
)  # fmt: skip
def test_samples_when_cut_into_calls(
    whole: tuple[Codec, Tensor, float], codes: Tensor, cuts: list[int]
) -> None:
    codec, wanted, allowed = whole
    assert sum(cuts) == NUM_FRAMES
    assert (decode_in(codec, codes, cuts) - wanted).abs().max() <= allowed


def test_samples_when_last_frame_changes(whole: tuple[Codec, Tensor, float], codes: Tensor) -> None:
    codec, wanted, allowed = whole
    changed = codes.clone()
    changed[:, -1] = (changed[:, -1] + 5) % CONFIG.num_codes
    with torch.inference_mode():
        samples = codec.decode(changed, codec.new_state(1), [0])
    assert (samples - wanted)[:, :-FRAME_SAMPLES].abs().max() <= allowed
    assert (samples - wanted)[:, -FRAME_SAMPLES:].abs().max() > 0.01


def test_samples_when_rows_of_different_age_share_a_call(
    whole: tuple[Codec, Tensor, float], codes: Tensor
) -> None:
    codec, wanted, allowed = whole
    with torch.inference_mode():
        state = codec.new_state(5)
        codec.decode(codes[:, :3], state, [4])
        codec.decode(codes[:, :40], state, [1])
        rows = torch.cat([codes[:, 3:7], codes[:, 40:44], codes[:, :4]])
        samples = codec.decode(rows, state, [4, 1, 2])
    spans = [wanted[0, a * FRAME_SAMPLES : (a + 4) * FRAME_SAMPLES] for a in (3, 40, 0)]
    assert (samples - torch.stack(spans)).abs().max() <= allowed
    assert state.frames == [0, 44, 4, 0, 7]


def test_samples_when_slot_was_used_before(
    whole: tuple[Codec, Tensor, float], codes: Tensor
) -> None:
    codec, wanted, allowed = whole
    with torch.inference_mode():
        state = codec.new_state(2)
        codec.decode(codes.flip(1)[:, :50], state, [1])
        state.reset(1)
        samples = codec.decode(codes[:, :4], state, [1])
    assert (samples - wanted[:, : 4 * FRAME_SAMPLES]).abs().max() <= allowed
