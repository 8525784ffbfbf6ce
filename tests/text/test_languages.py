"""A language is what the caller says, whatever the text is written in; nothing written is lost."""

from pathlib import Path

import pytest
import torch
import yaml
from tokenizers import decoders

from playhead.engine.eager_runner import eager_runner
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Refused, Submit
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.profile import Profile
from playhead.engine.text.english.front_end import EnglishFrontEnd
from playhead.engine.text.entry import open_text
from playhead.engine.text.front_end import TRAITS
from playhead.engine.text.qwen_bpe import QwenBpeFrontEnd, load_tokenizer
from tests.engine.driver import Driver
from tests.engine.flying import FlyingDriver, Times
from tests.engine.made_up import MadeUp, never

pytest.importorskip("babel")
pytest.importorskip("unicode_rbnf")

ROOT = Path(__file__).parents[2]
QWEN_FOLDER = ROOT / "tests" / "data" / "goldens" / "qwen_bpe"
SENTENCES = yaml.safe_load((ROOT / "worker" / "verify_sentences.yaml").read_text(encoding="utf-8"))
DIALECTS = ("beijing_dialect", "sichuan_dialect")
MIXED = [
    # (language, text, what is said)
    ("english", "It is 9.9 yuan.", "It is nine point nine yuan."),
    ("english", "I paid 9.9元 yesterday.", "I paid nine point nine元 yesterday."),
    ("english", "今天是2005年。It costs $5.", "今天是two thousand five年。it costs five dollars."),
    ("english", "From 2006~2007.", "From two thousand six to two thousand seven."),
    ("english", "Да-5кг", "Да minus five кг"),
    ("english", "1次", "one次"),
    ("chinese", "It is 9.9 yuan.", "It is 九点九 yuan."),
    ("chinese", "2005年到2006~2007年", "二零零五年到二千零六到二零零七年"),
    ("chinese", "今天是2005年。It costs $5.", "今天是二零零五年。It costs 五美元."),
    ("chinese", "1次", "一次"),
    ("german", "Das kostet 9.9 yuan, 九点九元.", "Das kostet neun Komma neun yuan, 九点九元."),
    ("japanese", "It is 9.9 yuan.", "It is 九点九 yuan."),
    ("auto", "It is 9.9 yuan.", "It is nine point nine yuan."),
    ("auto", "今天我们的九点九元就是9.9元。", "今天我们的九点九元就是九点九元。"),
    ("auto", "1次", "1次"),
]


@pytest.fixture(scope="module")
def front_end() -> QwenBpeFrontEnd:
    return QwenBpeFrontEnd(QWEN_FOLDER)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny"), "tiny", dtype=torch.float32)


def said(
    front_end: QwenBpeFrontEnd, parts: list[str], language: str, normalize: bool = True
) -> str:
    """What the ids that go into the talker stand for."""
    stream = open_text(front_end, TRAITS["qwen_bpe"], language, normalize, ())
    units = [unit for part in parts for unit in stream.push(part)] + stream.close()
    assert "".join(unit.text for unit in units) == "".join(parts)
    tokenizer = load_tokenizer(QWEN_FOLDER)
    tokenizer.decoder = decoders.ByteLevel()
    return str(tokenizer.decode([token for unit in units for token in unit.token_ids]))


@pytest.mark.parametrize(("language", "text", "wanted"), MIXED)
def test_figures_are_read_in_the_language_that_was_asked_for(
    front_end: QwenBpeFrontEnd, language: str, text: str, wanted: str
) -> None:
    assert said(front_end, [text], language) == wanted
    assert said(front_end, list(text), language) == wanted
    assert said(front_end, [text], language, normalize=False) == text


@pytest.mark.parametrize("language", [*SENTENCES, "auto"])
def test_no_letter_is_lost_in_another_language(front_end: QwenBpeFrontEnd, language: str) -> None:
    text = "7".join(sentences[0] for sentences in SENTENCES.values())  # glued to figures
    letters = [char for char in text if char.isalpha() and char > "\u0370"]  # not Latin
    spoken = said(front_end, [text], language)
    assert len(letters) > 50
    missing = {char for char in letters if spoken.count(char) < text.count(char)}
    assert not missing, missing


@pytest.mark.parametrize("language", ["english", "chinese"])
@pytest.mark.parametrize("text", ["9.9 yuan", "2005年到2006~2007年", "九点九元 is 9.9"])
def test_speech_of_mixed_text_is_bounded(tiny: Path, language: str, text: str) -> None:
    driver = FlyingDriver(Times(0.0, 0.0), None, lambda *_: MadeUp(never), model=tiny)
    driver.submit(Submit("a", text=text, language=language, closed=True, live=False))
    driver.finish("a")
    assert driver.done("a").reason == "length"
    assert driver.done("a").num_frames <= 512
    assert "".join(word.text for word in driver.words("a")) == text


@pytest.mark.slow
def test_every_language_and_dialect_speaks(tiny: Path) -> None:
    """Its own sentences and a foreign one: the tag in the prompt is that of the language named."""
    driver = FlyingDriver(Times(0.0, 0.0), Profile(), eager_runner, model=tiny)
    engine = driver.engine
    assert set(engine.languages) == {*SENTENCES, *DIALECTS}
    for language in engine.languages:
        own = SENTENCES["chinese" if language in DIALECTS else language][0]
        foreign = SENTENCES["german" if language != "german" else "korean"][0]
        for number, text in enumerate((own, foreign)):
            submit = Submit(
                f"{language}{number}", text=text, language=language, closed=True, live=False,
                max_frames=8,
            )  # fmt: skip
            tags = engine._intake.prompt(submit, ()).codec_ids.tolist()
            assert engine.model.config.language_ids[language] in tags
            driver.submit(submit)
            driver.finish(submit.request_id)
            assert driver.done(submit.request_id).num_frames == 8
            assert "".join(word.text for word in driver.words(submit.request_id)) == text
    driver.settled()


def test_a_language_the_checkpoint_lacks_is_refused_with_those_it_has() -> None:
    driver = Driver()
    driver.submit(Submit("a", text="Guten Tag.", language="german", closed=True))
    driver.finish("a")
    (refused,) = driver.results["a"]
    assert isinstance(refused, Refused) and refused.code == "unknown_language"
    assert "auto" in refused.message and "english" in refused.message


def test_the_embedded_voice_reads_latin_letters_as_english_and_no_others() -> None:
    front_end = EnglishFrontEnd(EMBEDDED_VOICE)

    def num_rows(text: str) -> int:
        stream = open_text(front_end, TRAITS["english_in_step"], "auto", True, ())
        return sum(len(unit.token_ids) for unit in stream.push(text) + stream.close())

    assert num_rows("Grüße aus München") > 5
    assert num_rows("Привет мир") == num_rows("你好") == num_rows("مرحبا") == 0
    assert num_rows("你好 hello") == num_rows("hello")
