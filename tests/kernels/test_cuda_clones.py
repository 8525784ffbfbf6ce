"""In-context clones joining the captured runner's state, on a CPU: rows as the eager runner's."""

from pathlib import Path

import numpy as np
import pytest
import torch

from playhead.engine.cuda_joins import Joins, SlotStart
from playhead.engine.cuda_state import CodecState, StateSizes, TalkerState
from playhead.engine.cuda_weights import fold_codec, fold_frame
from playhead.engine.models.greedy import GREEDY
from playhead.engine.models.loader import load_model
from playhead.engine.models.prompt import Clone, build_prompt
from playhead.engine.models.synthetic import write_checkpoint
from tests.kernels.interpreter import ON_DEVICE

pytestmark = pytest.mark.skipif(
    ON_DEVICE,
    reason="the tiny heads are narrower than a matrix instruction; gpu_spike checks there",
)
SIZES = StateSizes(max_streams=2, segment_frames=16, prompt_positions=48, prefix_entries=2)


def test_rows_when_voices_in_and_out_of_context_join(tmp_path: Path) -> None:
    model = load_model(write_checkpoint(tmp_path, "tiny-base", dtype=torch.float32))
    draw = np.random.RandomState(2)
    speaker = draw.normal(size=model.config.talker.hidden).astype(np.float32)
    codes = draw.randint(0, model.config.num_codes, (9, 16)).astype(np.int16)
    clones = Clone(speaker, codes, "hello"), Clone(speaker)
    frame = fold_frame(model.config, model.main_weights(), SIZES.max_positions, torch.float32)
    codec = fold_codec(model.config.codec, model.codec_weights(), torch.float32)
    talker = TalkerState(frame, SIZES)
    joins = Joins(frame, talker, CodecState(codec, SIZES.num_slots), False)
    sampling = model.resolve_sampling(GREEDY)
    prompts = [
        build_prompt(
            model, voice=None, language="auto", instruct=None, text_mode="streaming",
            body=(5, 6), clone=clone,
        )
        for clone in clones
    ]  # fmt: skip
    for slot, prompt in enumerate(prompts, start=1):
        joins.starts[slot] = SlotStart(prompt, sampling, seed=0, new_stream=True)
    with torch.inference_mode():
        assert joins.join([1, 2]) == [(1, 0, prompts[0].num_rows), (2, 0, prompts[1].num_rows)]
        for slot, prompt in enumerate(prompts, start=1):
            torch.testing.assert_close(talker.carry[slot], model.talker.start_row(prompt))
            for first, last in ((0, prompt.num_rows), (4, prompt.num_rows - 2)):
                ours = joins.prompt_rows(slot, first, last)
                torch.testing.assert_close(ours, model.talker.prompt_rows(prompt, first, last))
    assert not torch.equal(talker.carry[1], talker.carry[2])
