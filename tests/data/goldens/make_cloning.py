"""Make the goldens of cloning and voice design with the reference package; README.md tells how.

Runs in the reference's environment, never in a test. Everything is greedy, fp32 and made twice;
the two runs must be identical.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from qwen_tts import Qwen3TTSModel
from safetensors.torch import save_file

from playhead.engine.models.synthetic import write_checkpoint
from tests.voices import RATE_HZ, TRANSCRIPT, as_float, reference_wave

HERE = Path(__file__).parent
NUM_FRAMES = 34
LONG_S = 12.0
PROMPT_STEP = 2
"""Every second column of a prompt row is kept: the codes that follow depend on all of them."""
TEXT = "hello world, this is a test: ü, 你!"
DESCRIPTION = "this is a test of the slow"
SHORT_TRANSCRIPT = "speech"
# name: (shape, voice number, reference seconds, transcript or None, language, instruct, mode)
CASES = {
    "vector": ("tiny-base", 1, 3.0, None, "english", None, "streaming"),
    "vector_full": ("tiny-base", 2, 3.0, None, "auto", None, "full"),
    "context": ("tiny-base", 3, 3.3, TRANSCRIPT, "german", None, "streaming"),
    "context_full": ("tiny-base", 4, 3.0, TRANSCRIPT, "auto", None, "full"),
    "context_text_longer": ("tiny-base", 5, 1.0, SHORT_TRANSCRIPT, "auto", None, "streaming"),
    "context_one_width": ("tiny-base-one-width", 6, 2.5, TRANSCRIPT, "auto", None, "streaming"),
    "vector_one_width": ("tiny-base-one-width", 7, 2.5, None, "french", None, "full"),
    "design": ("tiny-voicedesign", None, 0, None, "english", DESCRIPTION, "streaming"),
    "design_full": ("tiny-voicedesign", None, 0, None, "auto", DESCRIPTION, "full"),
    "design_without": ("tiny-voicedesign", None, 0, None, "auto", None, "full"),
}
LONG_CASE = ("tiny-base", 8, LONG_S)


def load(folder: Path) -> Any:
    wrapper = Qwen3TTSModel.from_pretrained(
        str(folder), dtype=torch.float32, attn_implementation="eager"
    )
    wrapper.model.eval()
    wrapper.model.speech_tokenizer.model.eval()
    return wrapper


def clone_of(wrapper: Any, voice: int, duration_s: float, transcript: str | None) -> Any:
    wave = as_float(reference_wave(voice, duration_s))
    return wrapper.create_voice_clone_prompt(
        (wave, RATE_HZ), ref_text=transcript, x_vector_only_mode=transcript is None
    )[0]


def generate(wrapper: Any, case: tuple[Any, ...]) -> dict[str, torch.Tensor]:
    _, voice, duration_s, transcript, language, instruct, mode = case
    ids = wrapper._tokenize_texts([wrapper._build_assistant_text(TEXT)])[0]
    out = {"input_ids": ids[0].int()}
    call: dict[str, Any] = {}
    if instruct:
        told = wrapper._tokenize_texts([wrapper._build_instruct_text(instruct)])[0]
        call["instruct_ids"], out["instruct_ids"] = [told], told[0].int()
    if voice is not None:
        item = clone_of(wrapper, voice, duration_s, transcript)
        call["voice_clone_prompt"] = wrapper._prompt_items_to_voice_clone_prompt([item])
        call["ref_ids"] = [None]
        out["speaker"] = item.ref_spk_embedding
        if transcript is not None:
            said = wrapper._tokenize_texts([wrapper._build_ref_text(transcript)])[0]
            call["ref_ids"], out["ref_ids"] = [said], said[0].int()
            out["ref_codes"] = item.ref_code.short()
    rows: list[torch.Tensor] = []
    hook = wrapper.model.talker.model.register_forward_pre_hook(
        lambda _m, _a, kw: rows.append(kw["inputs_embeds"][0].clone()), with_kwargs=True
    )
    with torch.inference_mode():
        codes, _ = wrapper.model.generate(
            input_ids=[ids],
            languages=[language],
            non_streaming_mode=mode == "full",
            do_sample=False,
            subtalker_dosample=False,
            repetition_penalty=1.05,
            max_new_tokens=NUM_FRAMES + 1,
            **call,
        )
    hook.remove()
    return out | {"prompt": rows[0][:, ::PROMPT_STEP], "codes": codes[0].short()}


def main() -> None:
    arrays: dict[str, torch.Tensor] = {}
    with tempfile.TemporaryDirectory() as temporary:
        loaded = {
            shape: load(write_checkpoint(Path(temporary) / shape, shape, dtype=torch.float32))
            for shape in sorted({case[0] for case in CASES.values()})
        }
        for name, case in CASES.items():
            run, again = (generate(loaded[case[0]], case) for _ in range(2))
            assert all(torch.equal(run[key], again[key]) for key in run), name
            assert run["codes"].shape == (NUM_FRAMES, 16), run["codes"].shape
            arrays |= {f"{name}.{key}": v.clone().contiguous() for key, v in run.items()}
        shape, voice, duration_s = LONG_CASE
        item = clone_of(loaded[shape], voice, duration_s, TRANSCRIPT)
        arrays["long.ref_codes"] = item.ref_code.short().contiguous()
        arrays["long.speaker"] = item.ref_spk_embedding.clone()
        assert len(item.ref_code) == np.ceil(duration_s * 12.5)
    save_file(arrays, HERE / "cloning.safetensors")
    keys = ("shape", "voice", "reference_s", "transcript", "language", "instruct", "mode")
    record = {
        "text": TEXT,
        "num_frames": NUM_FRAMES,
        "prompt_step": PROMPT_STEP,
        "long": dict(zip(("shape", "voice", "reference_s"), LONG_CASE, strict=True)),
        "cases": {name: dict(zip(keys, case, strict=True)) for name, case in CASES.items()},
    }
    (HERE / "cloning.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
