"""The cleaner: what nobody says is not spoken, and all of the text is kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.engine.text.spoken.clean import Cleaner
from playhead.engine.text.staged import Span


def spans_of(parts: list[str]) -> list[Span]:
    cleaner = Cleaner()
    return [span for part in parts for span in cleaner.push(part)] + cleaner.close()


def clean(text: str) -> str:
    return "".join(span.spoken for span in spans_of([text]))


CASES = [
    ("**bold** and *it* __x__ ***y***", "bold and it x y"),
    ("# Title\nText", "Title.\nText"),
    ("### What?\nText", "What?\nText"),
    ("- one\n- two **b**\n* three\n", "one.\ntwo b.\nthree.\n"),
    ("1. first\n2) second\n", "1. first.\n2) second.\n"),
    ("- [ ] open\n- [x] done\n", "open.\ndone.\n"),
    ("> quoted\n> twice", "quoted\ntwice"),
    ("one\n\n---\n\ntwo", "one\n\n\ntwo"),
    ("a ![alt](http://x.y/z.png) [link](https://e.com/a_b(c) ) end", None),
    ('see [the page](https://e.com/a?b=c "title") now', "see the page now"),
    ("a [link][ref] and ![a cat](cat.png)", "a link and a cat"),
    ("fact[1] and more [2].", "fact and more 2."),
    ("footnote[^1] here", "footnote here"),
    ("call `my_func()` now", "call my func now"),
    ("x\n```python\nprint(1)\n```\nafter", "x\nafter"),
    ("~~~\nfence\n~~~\nafter", "after"),
    ("```\nnever closed", ""),
    ("| a | b |\n|---|:-:|\n| 1 | 2 |\nrest", "a, b.\n1, 2.\nrest"),
    ("hi 😀 there 👍🏽!", "hi there !"),
    ("20㎡ or 5㎞", "20m2 or 5km"),
    ("🇩🇪 1️⃣ 👩‍👩‍👧‍👦 ok", "1 ok"),
    ("Hello :-) ok", "Hello ok"),
    ("see https://www.example.com/a/b?x=1#y. Next", "see example.com/a/b. Next"),
    ("mail my_name@x.com or snake_case", "mail my_name@x.com or snake case"),
    ('<speak>hi <break time="1s"/>you</speak>', "hi you"),
    ("Hello<br>world <b>bold</b> <!-- hidden -->x", "Hello world bold x"),
    ("a < b and x<y", "a b and x y"),
    ("x<5 or <35% or a <b", "x<5 or <35% or a b"),
    ("I <3 you, <3.5 and y>3", "I 3 you, <3.5 and y>3"),
    ("10^6 and a^b and ^x^", "10^6 and ab and x"),
    ("one<break/>two <think>three</think>four", "one two three four"),
    ("Tom &amp; Jerry", "Tom & Jerry"),
    ("2 * 3 = 6 and 2*3", "2 × 3 = 6 and 2×3"),
    ("C# and #tag #1", "C# and tag #1"),
    ("a -> b → c", "a , b , c"),
    ("~~gone~~ ~5", "gone ~5"),
    ("<|im_end|>a", "a"),
    ("\\*not\\* C:\\dir", "not C:dir"),
    ("25℃ and 5° №5", "25℃ and 5° №5"),
    ("क्षि می\u200cخواهم", "क्षि می\u200cخواهم"),
    ("a\u200bb\ufeff", "ab"),
    ("今天**很好**\n# 标题\n后", "今天很好\n标题。\n后"),
    ("Don't touch: plain text, (really) – it's 5% “fine”…", None),
]


@pytest.mark.parametrize(("text", "said"), [case for case in CASES if case[1] is not None])
def test_markup_is_not_spoken(text: str, said: str) -> None:
    assert clean(text) == said


def test_plain_text_stays_as_it_is() -> None:
    text = "Don't touch: plain text, (really) – it's 5% “fine”…\nTwo  spaces. 3.14, 1-2, a/b & c."
    assert clean(text) == text


@pytest.mark.parametrize("text", [text for text, _ in CASES])
def test_text_is_kept_and_read_the_same_by_characters(text: str) -> None:
    whole, by_characters = spans_of([text]), spans_of(list(text))
    assert "".join(span.source for span in whole) == text
    assert "".join(span.source for span in by_characters) == text
    assert "".join(span.spoken for span in by_characters) == clean(text)


PIECES = st.sampled_from(
    [
        *list("aB5 \n.,!?*_`~#|<>[]()-=&\\:/"),
        *(
            "```\n",
            "|---|\n",
            "](http://a.b/c)",
            "<b>",
            "<!--",
            "-->",
            "https://",
            "www.x.y",
            "&amp;",
        ),
        *(
            "😀",
            "👍🏽",
            "\u200d",
            "\ufe0f",
            "今天",
            "か",
            "مر",
            "क्षि",
            "- ",
            "1. ",
            "# ",
            "x@y.z",
            "**",
        ),
    ]
)


@settings(max_examples=200, deadline=None)
@given(parts=st.lists(PIECES, max_size=30))
def test_any_text_is_read_the_same_however_it_is_cut(parts: list[str]) -> None:
    text = "".join(parts)
    whole, by_parts, by_characters = spans_of([text]), spans_of(parts), spans_of(list(text))
    for spans in (whole, by_parts, by_characters):
        assert "".join(span.source for span in spans) == text
    said = ["".join(span.spoken for span in spans) for spans in (whole, by_parts, by_characters)]
    assert said[0] == said[1] == said[2]


def test_plain_words_are_not_held_back() -> None:
    cleaner = Cleaner()
    for char in "Good morning everybody":
        assert "".join(span.spoken for span in cleaner.push(char)) == char


def test_links_and_emphasis_are_spoken_before_they_end() -> None:
    cleaner = Cleaner()
    said = "".join(span.spoken for span in cleaner.push("**very [important link"))
    assert said == "very important link"


def test_code_is_dropped_as_it_comes() -> None:
    cleaner = Cleaner()
    cleaner.push("```\n")
    spans = cleaner.push("x = 1\ny = 2")
    assert "".join(span.source for span in spans) == "x = 1\ny = 2"
