"""Making a clone: a checked reference through the encoders of a Base checkpoint, once a voice."""

import numpy as np
import torch
from numpy.typing import NDArray

from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Clone


def make_clone(model: Model, samples: NDArray[np.float32], transcript: str = "") -> Clone:
    """Read a voice out of samples [N] in -1..1 at 24 kHz.

    With a transcript the clone also holds the reference's codes, for in-context speech. Raises
    CheckpointError where the checkpoint has no encoders.
    """
    wave = torch.from_numpy(np.ascontiguousarray(samples)).to(model.device)
    speaker = model.speaker_encoder.embed(wave).cpu().numpy()
    said = transcript.strip()
    if not said:
        return Clone(speaker)
    codes = model.speech_encoder.encode(wave).cpu().numpy().astype(np.int16)
    return Clone(speaker, codes, said)
