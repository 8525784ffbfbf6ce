"""Greedy codes of the bare models, without runner or engine: what parity is measured on."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from playhead.engine.messages import Sampling
from playhead.engine.models.config import MIN_FRAMES
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt
from playhead.engine.models.sampling import BatchSampling
from playhead.engine.models.talker import TalkerCache
from playhead.engine.units import CODEBOOKS

GREEDY = Sampling(temperature=0.0, predictor_temperature=0.0, repetition_penalty=1.05)


@torch.inference_mode()
def greedy_codes(
    model: Model, prompt: Prompt, text_ids: Sequence[int], max_frames: int
) -> NDArray[np.int16]:
    """Return codes [F, 16] of one utterance, F at most `max_frames` (fewer when speech ends).

    `text_ids` are those of the first frames (body and end when text streams); pad follows.
    """
    config, talker, device = model.config, model.talker, model.device
    cache = TalkerCache(config, 1, prompt.num_rows + max_frames, talker.code_rows)
    rows = talker.prompt_rows(prompt, 0, prompt.num_rows)
    positions = torch.arange(prompt.num_rows, device=device)
    talker.run(rows, positions, cache.attend_rows(0, 0, prompt.num_rows))
    settings = [model.resolve_sampling(GREEDY)]
    sampling = BatchSampling.of(settings, [0], config.num_codes, CODEBOOKS, device)
    seen = torch.zeros(1, config.num_codes + 1, dtype=torch.bool, device=device)
    go_on = torch.ones(1, dtype=torch.bool, device=device)
    carry, frames = talker.start_row(prompt)[None], list[NDArray[np.int16]]()
    for frame in range(max_frames):
        text = text_ids[frame] if frame < len(text_ids) else config.tts_pad_id
        at = prompt.num_rows + frame
        x = carry + talker.text_rows(torch.tensor([text], device=device))
        x = talker.run(x, torch.tensor([at], device=device), cache.attend_steps([0], [at]))
        hidden = talker.stack.final(x)
        must_go_on = go_on if frame < MIN_FRAMES else None
        scores = sampling.first_scores(talker.scores(hidden), seen, must_go_on)
        first = sampling.talker.choose(scores, None)
        if int(first) == config.num_codes:
            break
        seen[0, first] = True
        codes = model.code_predictor.run(
            hidden, first, lambda logits, _: sampling.predictor.choose(logits, None)
        )
        carry = talker.frame_rows(codes)
        frames.append(codes[0].cpu().numpy().astype(np.int16))
    return np.stack(frames)
