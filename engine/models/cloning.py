"""Making a clone: a checked reference through the encoders of a Base checkpoint, once a voice."""

import numpy as np
import torch
from numpy.typing import NDArray

from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Clone


def make_clone(
    model: Model, samples: NDArray[np.float32], transcript: str = "", tail_samples: int = 0
) -> Clone:
    """Read a voice out of samples [N] in -1..1 at 24 kHz.

    With a transcript the clone also holds the codes of the reference and of `tail_samples` of
    silence behind it, for in-context speech. Raises CheckpointError where the checkpoint has no
    encoders.
    """
    wave = torch.from_numpy(np.ascontiguousarray(samples)).to(model.device)
    speaker = model.speaker_encoder.embed(wave).cpu().numpy()
    said = transcript.strip()
    if not said:
        return Clone(speaker)
    heard = torch.nn.functional.pad(wave, (0, tail_samples))
    codes = model.speech_encoder.encode(heard).cpu().numpy().astype(np.int16)
    return Clone(speaker, codes, said)
