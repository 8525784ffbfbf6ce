"""The whole way of a text to units: written text is kept, speech is what the stages say."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from playhead.engine.errors import InputError
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import TextMode
from playhead.engine.text.english.front_end import EnglishFrontEnd
from playhead.engine.text.english.phonemes import NUM_SOUNDS, PAIR_BASE, SOUNDS, sounds_of
from playhead.engine.text.entry import open_text
from playhead.engine.text.feed import RowIds, TextFeed
from playhead.engine.text.front_end import TRAITS, FrontEnd, Traits
from playhead.engine.text.pronunciations import check_pronunciations
from playhead.engine.text.qwen_bpe import QwenBpeFrontEnd
from playhead.engine.text.unit import TextUnit

QWEN_FOLDER = Path(__file__).parents[1] / "data" / "goldens" / "qwen_bpe"
QWEN, ENGLISH = TRAITS["qwen_bpe"], TRAITS["english_in_step"]
WORDS = (
    "今天 天气 很好 我们 明天 再见 北京 上海 你好 世界 谢谢 一共 时候 中国 人民 银行 "
    "今日 です 東京 ありがとう"
)
CHINESE = WORDS.replace(" ", "")
SCRIPTS = {
    "chinese": "今天天气很好我们明天去北京看看。",
    "japanese": "今日はいい天気ですね、また明日会いましょう。",
    "korean": "안녕하세요 오늘은 날씨가 좋아요.",
    "hindi": "नमस्ते दुनिया आप कैसे हैं।",
    "bengali": "আপনি কেমন আছেন বন্ধু।",
    "tamil": "வணக்கம் நண்பரே நலமா.",
    "arabic": "مرحبا بالعالم كيف حالك؟",
    "persian": "می‌خواهم به خانه بروم.",
    "hebrew": "שלום עולם מה שלומך?",
    "thai": "สวัสดีครับวันนี้อากาศดี",
    "russian": "Привет мир, как дела?",
    "joined": "one.Two three.Four",
}


@pytest.fixture(scope="module")
def english() -> EnglishFrontEnd:
    return EnglishFrontEnd(EMBEDDED_VOICE)


@pytest.fixture(scope="module")
def chinese_bpe(tmp_path_factory: pytest.TempPathFactory) -> QwenBpeFrontEnd:
    """A tokenizer that learnt ideographs, as the published one did."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = WORDS.split() * 3
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder = tmp_path_factory.mktemp("bpe")
    tokenizer.model.save(str(folder))
    return QwenBpeFrontEnd(folder)


def units_of(
    front_end: FrontEnd,
    traits: Traits,
    parts: Iterable[str],
    language: str = "auto",
    normalize: bool = True,
    pronunciations: tuple[tuple[str, str], ...] = (),
) -> list[TextUnit]:
    stream = open_text(front_end, traits, language, normalize, pronunciations)
    return [unit for part in parts for unit in stream.push(part)] + stream.close()


def texts(units: list[TextUnit]) -> list[str]:
    return [unit.text for unit in units]


def ids(units: list[TextUnit]) -> list[int]:
    return [token for unit in units for token in unit.token_ids]


def sounds(units: list[TextUnit]) -> list[str]:
    slots = [SOUNDS[half] for row in ids(units) for half in divmod(row - PAIR_BASE, NUM_SOUNDS)]
    return [sound for at, sound in enumerate(slots) if at == 0 or slots[at - 1] != sound]


def test_units_keep_what_was_written(english: EnglishFrontEnd) -> None:
    text = "**Hello** 😀 see [it](http://a.b/c): $42.50 `now`.\n"
    units = units_of(english, ENGLISH, [text])
    assert "".join(texts(units)) == text
    assert texts(units)[0] == "**Hello** "
    plain = units_of(english, ENGLISH, ["Hello see it: $42.50 now.\n"])
    assert ids(units) == ids(plain)


def test_a_number_is_one_unit_with_all_its_rows() -> None:
    front_end = QwenBpeFrontEnd(QWEN_FOLDER)
    units = units_of(front_end, QWEN, ["Es kostet 42,50 € heute."], language="german")
    assert "".join(texts(units)) == "Es kostet 42,50 € heute."
    (number,) = [unit for unit in units if "42" in unit.text]
    said = units_of(front_end, QWEN, [" zweiundvierzig Euro fünfzig"], normalize=False)
    assert number.token_ids == tuple(ids(said))


def test_unchanged_text_when_normalize_is_off() -> None:
    front_end = QwenBpeFrontEnd(QWEN_FOLDER)
    text = "**Es** kostet 42,50 € 😀"
    off = units_of(front_end, QWEN, [text], language="german", normalize=False)
    stream = front_end.open()
    assert off == stream.push(text) + stream.close()
    assert ids(off) != ids(units_of(front_end, QWEN, [text], language="german"))


def test_a_split_number_is_read_once_and_whole(english: EnglishFrontEnd) -> None:
    front_end = QwenBpeFrontEnd(QWEN_FOLDER)
    for parts in (["It cost $1,2", "50.7", "5 in all."], list("It cost $1,250.75 in all.")):
        whole = ["".join(parts)]
        assert units_of(english, ENGLISH, parts) == units_of(english, ENGLISH, whole)
        assert units_of(front_end, QWEN, parts, "english") == units_of(
            front_end, QWEN, whole, "english"
        )


def test_timed_pieces_join_to_the_text(english: EnglishFrontEnd) -> None:
    text = "# News\n- **Rent** is $1,200 😀\n- see https://a.com/b?c=d `x_y`\n\n| a | b |\n"
    mode: TextMode = "streaming"
    feed = TextFeed(open_text(english, ENGLISH, "auto", True, ()), ENGLISH, RowIds(1, 0), mode, 512)
    for char in text:
        feed.push(char)
        feed.read(1)
    feed.close()
    feed.read(0)
    frame = 0
    while feed.speakable:
        frame += feed.run(frame, frame, 512).num_frames
    words = feed.take_words(frame) + feed.take_rest()
    assert "".join(word.text for word in words) == text
    starts = [word.start_s for word in words]
    assert starts == sorted(starts)


def test_text_without_sound_has_no_rows(english: EnglishFrontEnd) -> None:
    for text in ("😀", "**", "```\ncode\n```\n", "<br/>", "![](http://a.b/c)", "|---|\n"):
        units = units_of(english, ENGLISH, [text])
        assert ids(units) == []
        assert "".join(texts(units)) == text


def test_linger_gives_what_is_known_of_an_open_word(english: EnglishFrontEnd) -> None:
    stream = open_text(english, ENGLISH, "auto", True, (("ACME", "acme corporation of"),))
    first = stream.push("ACME Ltd")
    lingering = stream.linger()
    assert first == [] and lingering is not None
    assert lingering.text == "ACME" and lingering.token_ids
    rest = stream.push(" is") + stream.close()
    assert "ACME" + "".join(texts(rest)) == "ACME Ltd is"


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_stream_token_by_token(chinese_bpe: QwenBpeFrontEnd, name: str) -> None:
    text = SCRIPTS[name]
    stream = open_text(chinese_bpe, QWEN, "auto", True, ())
    first = next(at for at, char in enumerate(text, 1) if stream.push(char))
    spaced = text.index(" ") + 2 if " " in text else 12
    assert first <= {"chinese": 6, "japanese": 6, "thai": 12}.get(name, spaced)
    by_characters = units_of(chinese_bpe, QWEN, text)
    whole = units_of(chinese_bpe, QWEN, [text])
    assert texts(by_characters) == texts(whole)
    assert ids(by_characters) == ids(whole)
    assert "".join(texts(whole)) == text


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.sampled_from(CHINESE + "。，的がか\u3099ば a1"), max_size=24))
@example(text="か\u3099あa")  # a composed character on the left of a border
def test_ideographs_have_the_same_ids_however_they_come(
    chinese_bpe: QwenBpeFrontEnd, text: str
) -> None:
    whole = chinese_bpe._tokenizer.encode(text, add_special_tokens=False).ids
    stream = chinese_bpe.open()
    units = [unit for char in text for unit in stream.push(char)] + stream.close()
    assert ids(units) == whole
    stream = chinese_bpe.open()
    assert stream.push(text) + stream.close() == units


ALPHABET = st.sampled_from(
    [*list("ae .,!?$5:17-/%()\n*_`#|<>[]"), "$5 ", "Dr. ", "acme ", "New York", "😀", "今天", "3个"]
)


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(ALPHABET, max_size=24), use_english=st.booleans())
def test_any_text_survives_when_cut_anywhere(
    english: EnglishFrontEnd, parts: list[str], use_english: bool
) -> None:
    front_end: FrontEnd = english if use_english else QwenBpeFrontEnd(QWEN_FOLDER)
    traits = ENGLISH if use_english else QWEN
    said = (("acme", "ack me"), ("new york", "noo york"))
    text = "".join(parts)
    whole = units_of(front_end, traits, [text], "english", True, said)
    assert "".join(texts(whole)) == text
    for cut in (parts, list(text)):
        units = units_of(front_end, traits, cut, "english", True, said)
        assert texts(units) == texts(whole)
        assert ids(units) == ids(whole)


def test_words_are_said_as_the_caller_asked(english: EnglishFrontEnd) -> None:
    said = (("SQL", "sequel"), ("new york", "noo york"), ("Nguyen", "/nəɡwˈɪn/"))
    units = units_of(
        english, ENGLISH, ["My sql in New York. Mr. Nguyen's mysql."], "auto", True, said
    )
    assert "".join(texts(units)) == "My sql in New York. Mr. Nguyen's mysql."
    same = units_of(english, ENGLISH, ["My sequel in noo york."])
    assert sounds(units)[:20] == sounds(same)[:20]
    phonemes = [SOUNDS[sound] for sound in sounds_of("nəɡwˈɪnz")]
    spoken = sounds(units)
    assert any(spoken[at : at + len(phonemes)] == phonemes for at in range(len(spoken)))


@pytest.mark.parametrize(
    ("given_pairs", "phonemes", "says"),
    [
        ((("a", "b"),) * 201, True, "201 entries, most are 200"),
        ((("", "b"),), True, "the word of '' has 0 characters"),
        ((("a" * 65, "b"),), True, "65 characters, allowed are 1 to 64"),
        ((("a", ""),), True, "the respelling of 'a' has 0 characters"),
        ((("a", "b" * 201),), True, "allowed are 1 to 200"),
        ((("a", "/hɛlqO/"),), True, "'a' has 'hɛlqO', allowed are words of b d f"),
        ((("a", "/ /"),), True, "allowed are words of"),
        ((("a", "/hˈ/"),), True, "allowed are words of"),
        ((("a", "/həlˈO/"),), False, "this checkpoint does not take"),
    ],
)
def test_pronunciations_that_cannot_be_used_are_named(
    given_pairs: tuple[tuple[str, str], ...], phonemes: bool, says: str
) -> None:
    with pytest.raises(InputError, match="pronunciations") as caught:
        check_pronunciations(given_pairs, phonemes)
    assert says in str(caught.value)


def test_pronunciations_that_can_be_used_pass() -> None:
    check_pronunciations(
        (("AC/DC", "a c d c"), ("Ng", "/ɪŋ/"), ("naïve", "/nIˈiv tˈu/"), ("北京", "běijīng"))
    )


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hello there, how are you?", "english"),
        ("Hello there, how are you?", "auto"),
        ("Guten Tag, wie geht es?", "german"),
        ("今天天气很好。", "chinese"),
        ("Привет мир, как дела?", "russian"),
    ],
)
def test_stages_hold_back_no_first_word(
    english: EnglishFrontEnd, chinese_bpe: QwenBpeFrontEnd, text: str, language: str
) -> None:
    front_ends: list[tuple[FrontEnd, Traits]] = [(chinese_bpe, QWEN), (english, ENGLISH)]
    for front_end, traits in front_ends:
        firsts = []
        for normalize in (False, True):
            stream = open_text(front_end, traits, language, normalize, ())
            firsts.append(next((at for at, char in enumerate(text) if stream.push(char)), None))
        assert firsts[0] == firsts[1], (text, traits)
