"""Loading: every damage is told with the tensor or key, what was found and what is expected."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from playhead.engine.errors import CheckpointError, InputError
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Sampling
from playhead.engine.models.loader import is_slow_on_cpu, load_model
from playhead.engine.models.synthetic import write_checkpoint
from playhead.worker.bench.checkpoint import shape_config

HEAD = "talker.codec_head.weight"
TABLE = "decoder.quantizer.rvq_first.vq.layers.0._codebook.embedding_sum"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path, "tiny")


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def edit_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def test_load_when_checkpoint_is_whole(folder: Path) -> None:
    model = load_model(folder)
    assert model.text_front_end == "qwen_bpe"
    assert model.folder == folder
    assert model.config.voices[0] == "serena"
    assert model.config.max_new_frames == 8192
    assert model.config.segment_frames(512) == 512
    sampling = model.resolve_sampling(Sampling(top_k=7))
    assert (sampling.top_k, sampling.temperature, sampling.repetition_penalty) == (7, 0.9, 1.05)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Sampling(temperature=-1.0), r"temperature is -1\.0, allowed is 0\.0 to 10\.0"),
        (Sampling(temperature=float("nan")), r"temperature is nan, allowed"),
        (Sampling(predictor_top_p=1.5), r"predictor_top_p is 1\.5, allowed is 0\.0 to 1\.0"),
        (Sampling(repetition_penalty=0.0), r"repetition_penalty is 0\.0, allowed is 0\.01"),
    ],
)
def test_sampling_when_out_of_range(folder: Path, asked: Sampling, told: str) -> None:
    with pytest.raises(InputError, match=told):
        load_model(folder).resolve_sampling(asked)


def test_load_when_generation_config_is_bare(folder: Path) -> None:
    (folder / "generation_config.json").write_text("{}")
    model = load_model(folder)
    sampling = model.resolve_sampling(Sampling())
    assert (sampling.temperature, sampling.predictor_top_k) == (0.9, 50)
    assert model.config.max_new_frames == 2048


def test_load_when_weights_are_sharded(folder: Path) -> None:
    whole = load_model(folder)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    sharded = load_model(folder)
    assert torch.equal(sharded.talker.head, whole.talker.head)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002\.safetensors is missing"):
        load_model(folder)


def test_load_when_cloning_weights_are_there(folder: Path) -> None:
    extra = {"speaker_encoder.fc.weight": torch.zeros(2)}
    edit_weights(folder / "model.safetensors", lambda t: t.update(extra))
    extra_codec = {
        "encoder.downsample.conv.weight": torch.zeros(2),
        "decoder.quantizer.rvq_rest.input_proj.weight": torch.zeros(2),
    }
    edit_weights(folder / "speech_tokenizer/model.safetensors", lambda t: t.update(extra_codec))
    load_model(folder)


@pytest.mark.parametrize(
    ("file", "change", "told"),
    [
        ("model.safetensors", lambda t: t.pop(HEAD), rf"{HEAD} \[1152, 64\] is missing"),
        (
            "model.safetensors",
            lambda t: t.update({HEAD: t[HEAD][:-1].clone()}),
            rf"{HEAD} has shape \[1151, 64\], the config asks for \[1152, 64\]",
        ),
        (
            "model.safetensors",
            lambda t: t.update({"talker.extra.weight": torch.zeros(3)}),
            r"talker\.extra\.weight \[3\] is unexpected",
        ),
        ("speech_tokenizer/model.safetensors", lambda t: t.pop(TABLE), rf"{TABLE} .*is missing"),
    ],
    ids=["missing", "mis-shaped", "unexpected", "codec missing"],
)
def test_load_when_a_tensor_is_wrong(
    folder: Path, file: str, change: Callable[[dict[str, torch.Tensor]], object], told: str
) -> None:
    edit_weights(folder / file, change)
    with pytest.raises(CheckpointError, match=told):
        load_model(folder)


def test_load_when_a_file_is_cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    with pytest.raises(CheckpointError, match=r"tensor talker\.\S+ is cut off: it ends at byte"):
        load_model(folder)
    path.write_bytes(data[:20])
    with pytest.raises(CheckpointError, match=r"20 bytes and holds no whole safetensors header"):
        load_model(folder)


@pytest.mark.parametrize(
    ("file", "change", "told"),
    [
        (
            "config.json",
            lambda c: c["talker_config"].update(num_code_groups=32),
            r"num_code_groups is 32, expected 16",
        ),
        (
            "config.json",
            lambda c: c["talker_config"].pop("head_dim"),
            r"head_dim is None, expected a whole number",
        ),
        (
            "config.json",
            lambda c: c["talker_config"].update(codec_bos_id=9999),
            r"codec_bos_id is 9999, expected a whole number from 0 to 1151",
        ),
        (
            "config.json",
            lambda c: c["talker_config"].update(attention_bias=True),
            r"attention_bias is True, expected False",
        ),
        (
            "config.json",
            lambda c: c["talker_config"].update(spk_is_dialect={"eric": "moonish"}),
            r"spk_is_dialect\['eric'\] is 'moonish', expected false or one of english",
        ),
        (
            "config.json",
            lambda c: c["talker_config"].update(rope_scaling={"rope_type": "yarn"}),
            r"rope_scaling\.rope_type is 'yarn', expected 'default'",
        ),
        (
            "config.json",
            lambda c: c.update(model_type="qwen3"),
            r"model_type is 'qwen3', expected 'qwen3_tts'",
        ),
        (
            "config.json",
            lambda c: c.update(tokenizer_type="qwen3_tts_tokenizer_25hz"),
            r"tokenizer_type is 'qwen3_tts_tokenizer_25hz', expected 'qwen3_tts_tokenizer_12hz'",
        ),
        (
            "config.json",
            lambda c: c.update(tts_model_type="other"),
            r"tts_model_type is 'other', expected custom_voice",
        ),
        (
            "speech_tokenizer/config.json",
            lambda c: c["decoder_config"].update(upsample_rates=[8, 5, 4]),
            r"upsample_rates is \[8, 5, 4\], expected a product of 1920",
        ),
        (
            "generation_config.json",
            lambda c: c.update(temperature="hot"),
            r"temperature is 'hot', expected a number",
        ),
    ],
)
def test_load_when_a_config_value_is_wrong(
    folder: Path, file: str, change: Callable[[dict[str, Any]], object], told: str
) -> None:
    edit_json(folder / file, change)
    with pytest.raises(CheckpointError, match=told):
        load_model(folder)


@pytest.mark.parametrize(("shape", "slow"), [("0.6b-customvoice", True), ("tiny", False)])
def test_speed_when_it_runs_on_a_cpu(shape: str, slow: bool) -> None:
    assert is_slow_on_cpu(shape_config(shape)) == slow


def test_warning_when_the_embedded_voice_runs_on_a_cpu(caplog: pytest.LogCaptureFixture) -> None:
    model = load_model(EMBEDDED_VOICE)
    assert not is_slow_on_cpu(model.config) and model.talker is not None
    assert not caplog.records


def test_load_when_config_is_missing(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    with pytest.raises(CheckpointError, match=r"generation_config\.json is missing"):
        load_model(folder)


def test_load_when_name_is_no_folder() -> None:
    with pytest.raises(CheckpointError, match=r"'no-such-thing' is no folder"):
        load_model("no-such-thing")


def test_synthetic_checkpoint_when_made_twice(tmp_path: Path) -> None:
    first, second, other = (
        load_file(write_checkpoint(tmp_path / name, "tiny", seed=seed) / "model.safetensors")
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["talker.model.norm.weight"], other["talker.model.norm.weight"])
