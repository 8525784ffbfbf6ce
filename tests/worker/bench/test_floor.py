"""The floor of the published sizes is what an independent count of them says."""

import pytest

from playhead.engine.models.codec import codec_shapes
from playhead.worker.bench.checkpoint import shape_config
from playhead.worker.bench.floor import Ceilings, codec_work, fit_line, frame_work

CARD = Ceilings(4.18e12, 500e12)


def test_a_frame_reads_talker_once_and_predictor_fifteen_times() -> None:
    one = frame_work(shape_config(), rows=1, context=0, value_bytes=2)
    assert one.num_bytes == pytest.approx(2.83e9 + 15 * 161.5e6, rel=0.01)
    assert one.least_ms(CARD) == pytest.approx(1.26, rel=0.01)
    assert one.flop == pytest.approx(2.8e9 + 2.5e9, rel=0.05)


def test_keys_and_values_count_by_row_and_position() -> None:
    config = shape_config()
    short, long = (frame_work(config, 64, context, 2) for context in (0, 63))
    assert long.num_bytes - short.num_bytes == 64 * 63 * 114_688


def test_the_larger_term_is_the_floor() -> None:
    config = shape_config()
    few, many = (frame_work(config, rows, 63, 2) for rows in (8, 256))
    assert few.least_ms(CARD) == few.num_bytes / CARD.bytes_per_s * 1e3
    assert many.least_ms(CARD) == many.flop / CARD.flop_per_s * 1e3


@pytest.mark.parametrize("shape", ["1.7b-customvoice", "tiny"])
def test_codec_weights_are_the_matrices_of_its_tensors(shape: str) -> None:
    codec = shape_config(shape).codec
    wanted = sum(
        _size(tensor)
        for name, tensor in codec_shapes(codec).items()
        if len(tensor) > 1 and "quantizer" not in name
    )
    found = codec_work(codec, rows=3, frames=2, value_bytes=1).num_bytes
    assert found == pytest.approx(wanted, rel=0.001)


def test_codec_operations_of_a_frame() -> None:
    codec = shape_config().codec
    work = codec_work(codec, 8, 4, 2)
    assert work.flop == pytest.approx(32 * 4.9e9, rel=0.02)


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for side in shape:
        total *= side
    return total


def test_a_line_is_found_again_and_noise_is_told() -> None:
    exact = [(n, 0.6 + 0.016 * n) for n in (1, 8, 64, 512)]
    line = fit_line(exact)
    assert (line.fixed, line.per_unit) == pytest.approx((0.6, 0.016))
    assert line.worst < 1e-9 and line.at(10) == pytest.approx(0.76)
    bent = fit_line([*exact[:-1], (512, exact[-1][1] * 1.3)])
    assert bent.worst > 0.02


@pytest.mark.parametrize("points", [[], [(1, 2.0)], [(1, 2.0), (1, 3.0)], [(1, 1.0), (2, 0.0)]])
def test_no_line_goes_through_too_little(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="no line"):
        fit_line(points)


def test_small_counts_weigh_as_much_as_large_ones() -> None:
    points = [(1, 0.616), (2, 0.632), (8, 0.728), (256, 5.5), (512, 8.0)]
    assert fit_line(points).at(1) == pytest.approx(0.616, rel=0.03)
