"""Device kernels behind one front door; `reference` holds their plain torch twins."""

from playhead.kernels.reference import (
    philox_gumbel,
    philox_words,
    repetition_penalty,
    rms_norm,
    rope,
    rope_tables,
    snake,
    top_k_threshold,
    top_p_threshold,
)

__all__ = [
    "philox_gumbel",
    "philox_words",
    "repetition_penalty",
    "rms_norm",
    "rope",
    "rope_tables",
    "snake",
    "top_k_threshold",
    "top_p_threshold",
]
