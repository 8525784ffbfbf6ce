"""Greedy codes of the reference package (qwen-tts), as JSON; run by its own Python, as a file.

    PYTHON verify_reference.py CHECKPOINT CASE.json

Imports nothing of this package: the reference lives in an environment of its own.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    """Print the codes [F, 16] of the case."""
    import numpy as np
    import torch
    from qwen_tts import Qwen3TTSModel  # type: ignore[import-not-found]

    case = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    wrapper = Qwen3TTSModel.from_pretrained(
        sys.argv[1], dtype=torch.float32, attn_implementation="eager"
    )
    call = {
        "input_ids": wrapper._tokenize_texts([wrapper._build_assistant_text(case["text"])]),
        "languages": [case["language"]],
        "non_streaming_mode": False,
        "do_sample": False,
        "subtalker_dosample": False,
        "repetition_penalty": 1.05,
        "max_new_tokens": case["num_frames"] + 1,
    }
    if case["voice"]:
        call["speakers"] = [case["voice"]]
    if case["instruct"]:
        told = wrapper._build_instruct_text(case["instruct"])
        call["instruct_ids"] = wrapper._tokenize_texts([told])
    if case["samples"]:
        wave = np.load(case["samples"])
        items = wrapper.create_voice_clone_prompt((wave, 24_000), x_vector_only_mode=True)
        call["voice_clone_prompt"] = wrapper._prompt_items_to_voice_clone_prompt(items)
        call["ref_ids"] = [None]
    with torch.inference_mode():
        codes, _ = wrapper.model.generate(**call)
    print(json.dumps(codes[0].tolist()))


if __name__ == "__main__":
    main()
