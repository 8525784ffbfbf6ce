"""Make the goldens with the reference package; README.md has the command.

Runs in the reference's environment, never in a test. Everything is greedy, fp32 and made twice;
the two runs must be identical.
"""

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from qwen_tts import Qwen3TTSModel
from safetensors.torch import save_file

from playhead.engine.models.synthetic import write_checkpoint

HERE = Path(__file__).parent
TEXT = "hello world, this is a test of speech: Grüße, 你好!"
INSTRUCT = "speak slowly"
NUM_FRAMES = 40
LOGIT_STEPS = (0, 1, 2, 20, 39)
PREDICTOR_FRAMES = (0, 20)
PCM_CASES = ("streaming", "one_width")
# name: (shape, voice, language, instruct, text mode)
CASES = {
    "streaming": ("tiny", "ryan", "english", None, "streaming"),
    "streaming_dialect_instruct": ("tiny", "eric", "auto", INSTRUCT, "streaming"),
    "streaming_dialect_kept_out": ("tiny", "dylan", "english", None, "streaming"),
    "full": ("tiny", "ryan", "auto", None, "full"),
    "full_language_instruct": ("tiny", "vivian", "chinese", INSTRUCT, "full"),
    "one_width": ("tiny-one-width", "aiden", "french", None, "full"),
}
END_STEPS = (2, 3, 8, 32)
"""First allowed step, the next, after a whole chunk of 8 frames, the last of 33 steps."""


def load(folder: Path) -> Any:
    wrapper = Qwen3TTSModel.from_pretrained(
        str(folder), dtype=torch.float32, attn_implementation="eager"
    )
    wrapper.model.eval()
    wrapper.model.speech_tokenizer.model.eval()
    return wrapper


def generate(wrapper: Any, case: tuple[str, ...], max_new_tokens: int) -> dict[str, torch.Tensor]:
    _, voice, language, instruct, mode = case
    model, seen = wrapper.model, SimpleNamespace(rows=[], hidden=[], logits=[], predictor=[])
    talker = model.talker
    hooks = [
        talker.model.register_forward_pre_hook(
            lambda _m, _a, kw: seen.rows.append(kw["inputs_embeds"][0].clone()), with_kwargs=True
        ),
        talker.model.register_forward_hook(
            lambda _m, _a, out: seen.hidden.append(out.last_hidden_state[0, -1].clone())
        ),
        talker.codec_head.register_forward_hook(
            lambda _m, _a, out: seen.logits.append(out[0, -1].clone())
        ),
    ]
    for head in talker.code_predictor.lm_head:
        hooks.append(
            head.register_forward_hook(
                lambda _m, _a, out: seen.predictor.append(out[0, -1].clone())
            )
        )
    ids = wrapper._tokenize_texts([wrapper._build_assistant_text(TEXT)])[0]
    out = {"input_ids": ids[0]}
    told = [None]
    if instruct:
        told = [wrapper._tokenize_texts([wrapper._build_instruct_text(instruct)])[0]]
        out["instruct_ids"] = told[0][0]
    with torch.inference_mode():
        codes, _ = model.generate(
            input_ids=[ids],
            instruct_ids=told,
            languages=[language],
            speakers=[voice],
            non_streaming_mode=mode == "full",
            do_sample=False,
            subtalker_dosample=False,
            repetition_penalty=1.05,
            max_new_tokens=max_new_tokens,
        )
    for hook in hooks:
        hook.remove()
    frames = len(codes[0])
    return out | {
        "prompt": seen.rows[0],
        "hidden": torch.stack(seen.hidden),
        "logits": torch.stack(seen.logits),
        "predictor": torch.stack(seen.predictor).view(-1, 15, seen.predictor[0].numel())[:frames],
        "codes": codes[0],
    }


def decode(wrapper: Any, codes: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return wrapper.model.speech_tokenizer.model.decoder(codes.T[None].long())[0, 0]


def kept(name: str, run: dict[str, torch.Tensor], wrapper: Any) -> dict[str, torch.Tensor]:
    config = wrapper.model.config.talker_config
    columns = [*range(config.vocab_size - 1024), config.codec_eos_token_id]
    num_pcm = NUM_FRAMES if name in PCM_CASES else 2
    out = {
        "input_ids": run["input_ids"].int(),
        "prompt": run["prompt"],
        "codes": run["codes"].short(),
        "logits": run["logits"][list(LOGIT_STEPS)][:, columns],
        "predictor": run["predictor"][list(PREDICTOR_FRAMES)],
        "pcm": decode(wrapper, run["codes"])[: num_pcm * 1920],
    }
    if "instruct_ids" in run:
        out["instruct_ids"] = run["instruct_ids"].int()
    return {f"{name}.{key}": value.clone().contiguous() for key, value in out.items()}


def end_rows(hidden: torch.Tensor) -> dict[int, torch.Tensor]:
    """Solve for end-of-speech rows whose score wins at one step and loses before it."""
    rows = {}
    for step in END_STEPS:
        wanted = torch.full((step + 1,), -5.0, dtype=torch.float64)
        wanted[step] = 60.0
        rows[step] = torch.linalg.lstsq(hidden[: step + 1].double(), wanted).solution.float()
    return rows


def main() -> None:
    arrays: dict[str, torch.Tensor] = {}
    with tempfile.TemporaryDirectory() as temporary:
        shapes = {case[0] for case in CASES.values()}
        loaded = {
            shape: load(write_checkpoint(Path(temporary) / shape, shape, dtype=torch.float32))
            for shape in sorted(shapes)
        }
        for name, case in CASES.items():
            wrapper = loaded[case[0]]
            run, again = (generate(wrapper, case, NUM_FRAMES + 1) for _ in range(2))
            assert all(torch.equal(run[key], again[key]) for key in run), name
            assert run["codes"].shape == (NUM_FRAMES, 16), run["codes"].shape
            arrays |= kept(name, run, wrapper)
            if name == "streaming":
                rows = end_rows(run["hidden"])
        for step, row in rows.items():
            folder = Path(temporary) / f"end{step}"
            wrapper = load(write_checkpoint(folder, "tiny", dtype=torch.float32, eos_row=row))
            run = generate(wrapper, CASES["streaming"], max(step, 2) + 2)
            assert len(run["codes"]) == step, (step, run["codes"].shape)
            arrays |= {f"end{step}.row": row, f"end{step}.codes": run["codes"].short()}
        early = run["hidden"][:2].sum(0)  # best from the very first step on
        wrapper = load(write_checkpoint(folder, "tiny", dtype=torch.float32, eos_row=early))
        run = generate(wrapper, CASES["streaming"], 8)
        arrays |= {"early.row": early, "early.codes": run["codes"].short()}
    save_file(arrays, HERE / "reference.safetensors")
    cases = {
        k: dict(zip(("shape", "voice", "language", "instruct", "mode"), v, strict=True))
        for k, v in CASES.items()
    }
    record = {
        "text": TEXT,
        "num_frames": NUM_FRAMES,
        "logit_steps": LOGIT_STEPS,
        "predictor_frames": PREDICTOR_FRAMES,
        "end_steps": END_STEPS,
        "cases": cases,
    }
    (HERE / "reference.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print({k: tuple(v.shape) for k, v in arrays.items()}, file=sys.stderr)


if __name__ == "__main__":
    main()
