"""The physical floor of a step: bytes it must read over bandwidth, operations over rate. Pure.

Counted from the config alone: each weight once a pass, keys and values of the context once a row;
activations, norms, tables and launches are free. No version runs faster than the larger of the two
times on a device whose copy bandwidth and matrix rate are those measured beside it.
"""

import math
from dataclasses import dataclass

from playhead.engine.models.config import CodecConfig, ModelConfig, StackConfig
from playhead.engine.units import CODEBOOKS

_PASSES = CODEBOOKS - 1
"""Code predictor passes a frame; the first has two rows a stream."""
_RESIDUAL_UNITS = 3
_KERNEL = 7


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the device does at best, measured in the same run."""

    bytes_per_s: float
    """Device-to-device copy of a large block: bytes read plus bytes written."""
    flop_per_s: float
    """A large matrix product on random numbers, in the model's dtype."""


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes to read and operations to do."""

    num_bytes: float
    flop: float

    def least_ms(self, ceilings: Ceilings) -> float:
        """Return the floor in milliseconds."""
        times_s = self.num_bytes / ceilings.bytes_per_s, self.flop / ceilings.flop_per_s
        return max(times_s) * 1e3


def layer_weights(stack: StackConfig) -> int:
    """Return the weights of one layer's matrices."""
    heads = (2 * stack.num_heads + 2 * stack.num_kv_heads) * stack.head_dim
    return stack.hidden * (heads + 3 * stack.intermediate)


def frame_work(config: ModelConfig, rows: int, context: int, value_bytes: int) -> Work:
    """Return the work of one frame: talker, head, 15 predictor passes with their heads."""
    t, p = config.talker, config.predictor
    talker = t.num_layers * layer_weights(t) + (config.num_codes + 1) * t.hidden
    stack, head = p.num_layers * layer_weights(p), config.num_codes * p.hidden
    bridge = 0 if t.hidden == p.hidden else t.hidden * p.hidden
    read = talker + _PASSES * (stack + head) + bridge
    kv = 2 * t.num_layers * t.num_kv_heads * t.head_dim * (context + 1) * rows
    used = talker + (_PASSES + 1) * stack + _PASSES * head + bridge
    attention = 2 * t.num_layers * t.num_heads * t.head_dim * (context + 1)
    return Work((read + kv) * value_bytes, 2.0 * rows * (used + attention))


def codec_work(config: CodecConfig, rows: int, frames: int, value_bytes: int) -> Work:
    """Return the work of decoding `frames` frames of each of `rows` streams."""
    weights, per_frame = 0, 0

    def add(values: int, times: int) -> None:
        nonlocal weights, per_frame
        weights += values
        per_frame += values * times

    c, s = config, config.stack
    add(3 * c.codebook_width * c.latent, 1)
    add(2 * c.latent * s.hidden + s.num_layers * layer_weights(s), 1)
    num_rows = 1
    for ratio in c.upsample_ratios:
        add(c.latent * c.latent * ratio, num_rows)
        num_rows *= ratio
        add(8 * c.latent * c.latent + _KERNEL * c.latent, num_rows)
    add(_KERNEL * c.latent * c.decoder_width, num_rows)
    width = c.decoder_width
    for rate in c.decoder_rates:
        add(width * (width // 2) * 2 * rate, num_rows)
        num_rows, width = num_rows * rate, width // 2
        add(_RESIDUAL_UNITS * (_KERNEL + 1) * width * width, num_rows)
    add(_KERNEL * width, num_rows)
    return Work(weights * value_bytes, 2.0 * per_frame * rows * frames)


@dataclass(frozen=True, slots=True)
class Line:
    """Time against count: fixed + per_unit * n."""

    fixed: float
    per_unit: float
    worst: float
    """Largest relative distance of a point from it."""

    def at(self, count: float) -> float:
        """Return the time the line gives for a count."""
        return self.fixed + self.per_unit * count


def fit_line(points: list[tuple[float, float]]) -> Line:
    """Fit (count, time) points by least squares of relative errors, so small counts weigh as much.

    Raises ValueError for fewer than two different counts or a time that is not above 0.
    """
    if len({count for count, _ in points}) < 2 or any(time <= 0 for _, time in points):
        raise ValueError(f"no line goes through {points}")
    w = [1.0 / time**2 for _, time in points]
    total = math.fsum(w)
    mean_n = math.fsum(k * n for k, (n, _) in zip(w, points, strict=True)) / total
    mean_t = math.fsum(k * t for k, (_, t) in zip(w, points, strict=True)) / total
    moment = math.fsum(k * (n - mean_n) ** 2 for k, (n, _) in zip(w, points, strict=True))
    mixed = math.fsum(k * (n - mean_n) * (t - mean_t) for k, (n, t) in zip(w, points, strict=True))
    slope = mixed / moment
    fixed = mean_t - slope * mean_n
    worst = max(abs(fixed + slope * n - t) / t for n, t in points)
    return Line(fixed, slope, worst)
