"""Rows in runs: a feed asked now and then says what one says that is asked for every frame."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Guard, Word
from playhead.engine.text.english.front_end import EnglishFrontEnd
from playhead.engine.text.entry import open_text
from playhead.engine.text.feed import MOST_VOID, NEVER, RowIds, Run, TextFeed
from playhead.engine.text.front_end import TRAITS, FrontEnd
from playhead.engine.text.qwen_bpe import QwenBpeFrontEnd

QWEN_FOLDER = Path(__file__).parents[2] / "data" / "goldens" / "qwen_bpe"
WORDS = "hello world this is a test. Well, good! It costs 12 dollars? … yes 😀 ok".split()
NO_RUN = Run([], 0, False, False, "", NEVER)


@pytest.fixture(scope="module")
def front_ends() -> dict[str, FrontEnd]:
    return {
        "english_in_step": EnglishFrontEnd(EMBEDDED_VOICE),
        "qwen_bpe": QwenBpeFrontEnd(QWEN_FOLDER),
    }


@dataclass
class Launches:
    """Frames launched from one feed, as the engine does: from a run until something happens."""

    feed: TextFeed
    most: int
    """Frames of one run; 1 asks for every frame."""
    frame: int = 0
    segment_start: int = 0
    words: list[Word] = field(default_factory=list)
    num_asked: int = 0
    _run: Run = NO_RUN
    _start: int = 0

    @property
    def _left(self) -> int:
        return self._start + self._run.num_frames - self.frame

    def launch(self) -> tuple[object, ...]:
        """Launch a frame; return what the engine acts upon, and the words that wait then."""
        if not self._left:
            self._start, self.num_asked = self.frame, self.num_asked + 1
            self._run = self.feed.run(self.frame, self.frame - self.segment_start, self.most)
        run, at = self._run, self.frame - self._start
        self.frame += 1
        last = not self._left
        has_row = run.more or not last
        told = run.ids[min(at, len(run.ids) - 1)], run.may_end, run.overdue if last else "", has_row
        new = self.feed.take_words(self.frame) if self.frame >= self.feed.words_from else []
        self.words += new
        return (*told, self.frame >= run.tail, new)

    def end_run(self) -> None:
        """Give back what was not launched."""
        left, self._run, self._start = self._left, NO_RUN, self.frame
        self.feed.give_back(self.frame, left)

    def next_segment(self, num_void: int) -> None:
        """End the segment at the newest frame but so many."""
        self.end_run()
        self.feed.take_back(min(num_void, self.frame - self.segment_start))
        self.segment_start = self.frame
        self.feed.begin_segment()


def pair(front_end: FrontEnd, name: str, segment_frames: int) -> tuple[Launches, Launches]:
    """Two feeds of the same stream: one asked for every frame, one in runs."""

    def feed() -> TextFeed:
        stream = open_text(front_end, TRAITS[name], "auto", True, ())
        return TextFeed(stream, TRAITS[name], RowIds(1, 0), "streaming", segment_frames)

    return Launches(feed(), 1), Launches(feed(), 10_000)


@pytest.mark.parametrize("name", ["english_in_step", "qwen_bpe"])
@pytest.mark.parametrize("seed", range(12))
def test_runs_are_the_frames_one_by_one(
    front_ends: dict[str, FrontEnd], name: str, seed: int
) -> None:
    draw = random.Random(seed)
    both = pair(front_ends[name], name, draw.choice((24, 60, 400)))
    closes_at = draw.randint(2, 10)
    for turn in range(20):
        text = "".join(f"{draw.choice(WORDS)} " for _ in range(draw.choice((0, 1, 6, 30))))
        guard: Guard = draw.choice(("", "", "", "silence"))
        void, ends = draw.randint(0, MOST_VOID), draw.random() < 0.3
        for each in both:
            each.end_run()
            if turn < closes_at:
                each.feed.push(text)
            elif turn == closes_at:
                each.feed.close()
            each.feed.read(len(text))
            if ends and each.frame:
                each.next_segment(void)
            elif guard and each.frame > each.segment_start and turn > closes_at:
                each.feed.stop(guard)
        for _ in range(draw.choice((1, 3, 20, 70))):
            states = [(f.feed.has_row, f.feed.exhausted) for f in both if not f._left]
            if any(not row or over for row, over in states):
                break
            first, second = (each.launch() for each in both)
            assert first == second
            if first[2]:
                for each in both:
                    each.next_segment(0)
    for each in both:
        each.end_run()
        each.words += each.feed.take_words(each.frame) + each.feed.take_rest()
    assert both[0].words == both[1].words
    assert "".join(word.text for word in both[0].words).strip()
    assert both[1].num_asked < both[0].num_asked == both[0].frame


@pytest.mark.parametrize("name", ["english_in_step", "qwen_bpe"])
def test_a_steady_stream_asks_seldom(front_ends: dict[str, FrontEnd], name: str) -> None:
    _, runs = pair(front_ends[name], name, 512)
    runs.feed.push("many words that are spoken one after another without any end in sight " * 4)
    runs.feed.close()
    runs.feed.read(1_000)
    for _ in range(240):
        runs.launch()
    assert runs.num_asked <= 240 / 12, "about 25 rows at a time, and what stands alone"
