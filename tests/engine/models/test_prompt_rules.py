"""Who speaks and in what language: every speaker and language of the published checkpoints."""

import math

import pytest
import torch

from playhead.engine.errors import InputError
from playhead.engine.models.loader import Model, load_model
from playhead.engine.models.prompt import NONE, Clone, Prompt, build_prompt
from playhead.engine.models.synthetic import write_checkpoint

SPEAKERS = "vivian serena uncle_fu dylan eric ryan aiden ono_anna sohee".split()
LANGUAGES = (
    "english german spanish chinese japanese french korean russian italian portuguese "
    "beijing_dialect sichuan_dialect"
).split()
DIALECTS = {"dylan": "beijing_dialect", "eric": "sichuan_dialect"}
DESCRIPTION = "speak slowly and low"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("checkpoints")
    shapes = "tiny", "tiny-one-width", "tiny-voicedesign", "tiny-base"
    return {s: load_model(write_checkpoint(folder / s, s, dtype=torch.float32)) for s in shapes}


def prompt(
    model: Model, voice: str | None, language: str = "auto", instruct: str | None = None
) -> Prompt:
    return build_prompt(
        model, voice=voice, language=language, instruct=instruct, text_mode="streaming"
    )


def spoken(model: Model, ids: list[int]) -> str | None:
    """Return the language whose tag stands in the prompt."""
    names = {number: name for name, number in model.config.language_ids.items()}
    found = [names[i] for i in ids if i in names]
    assert len(found) <= 1
    return found[0] if found else None


def test_checkpoint_when_published_has_these_speakers_and_languages(
    models: dict[str, Model],
) -> None:
    config = models["tiny"].config
    assert set(config.voices) == set(SPEAKERS) and len(SPEAKERS) == 9
    assert set(config.languages) == set(LANGUAGES)
    assert config.dialects == DIALECTS


@pytest.mark.parametrize("voice", SPEAKERS)
def test_tag_when_a_speaker_meets_a_language(models: dict[str, Model], voice: str) -> None:
    """Its dialect in place of auto and chinese, never otherwise; auto has no tag."""
    model = models["tiny"]
    ids = model.config.codec_ids
    for language in ("auto", *LANGUAGES):
        codec = prompt(model, voice.upper(), language.upper()).codec_ids.tolist()
        assert codec.count(model.config.voice_ids[voice]) == 1
        others = set(model.config.voice_ids.values()) - {model.config.voice_ids[voice]}
        assert not others & set(codec), "nobody else speaks"
        wanted: str | None = language
        if language in ("auto", "chinese"):
            wanted = DIALECTS.get(voice, None if language == "auto" else language)
        assert spoken(model, codec) == wanted, (voice, language)
        assert (ids.think in codec, ids.nothink in codec) == (wanted is not None, wanted is None)


def test_instruction_when_the_checkpoint_follows_one(models: dict[str, Model]) -> None:
    """It is a turn of its own before everything else, and changes nothing behind it."""
    for shape, voice in (("tiny", "ryan"), ("tiny-voicedesign", None)):
        model = models[shape]
        told, plain = prompt(model, voice, instruct=DESCRIPTION), prompt(model, voice)
        turn = model.instruct_ids(DESCRIPTION)
        assert turn and told.text_ids.tolist() == [*turn, *plain.text_ids.tolist()]
        assert told.codec_ids.tolist() == [NONE] * len(turn) + plain.codec_ids.tolist()
        assert told.num_constant_rows == told.num_rows, "the same for every text"


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ("tiny-one-width", r"0\.6B custom-voice model was not trained to follow one; leave it out"),
        ("tiny-base", r"base checkpoints take their manner from the reference voice; leave it out"),
    ],
)
def test_instruction_when_the_checkpoint_follows_none(
    models: dict[str, Model], shape: str, told: str
) -> None:
    model = models[shape]
    clone = None
    if model.config.kind == "base":
        vector = torch.ones(model.config.talker.hidden) / math.sqrt(model.config.talker.hidden)
        clone = Clone(vector.numpy())
    with pytest.raises(InputError, match=told):
        build_prompt(
            model, voice=None, language="auto", instruct=DESCRIPTION, text_mode="streaming",
            clone=clone,
        )  # fmt: skip


def test_voice_when_the_checkpoint_designs_them(models: dict[str, Model]) -> None:
    """A name would be ignored, and somebody else heard."""
    with pytest.raises(InputError, match=r"'ryan' is unknown: this checkpoint \(voice_design\)"):
        prompt(models["tiny-voicedesign"], "ryan", instruct=DESCRIPTION)
