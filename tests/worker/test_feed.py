"""FeedLine under a fake time: lead, kept back end, fades, padding, pause and clear."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.engine.clock import PlaybackClock
from playhead.engine.receiver import ReceiverEstimate
from playhead.worker.feed import LEAD_S, FeedLine
from playhead.worker.pcm_queue import FADE_S, TICK_SAMPLES

LOUD = 10_000
FADE = round(FADE_S * 24000)


def pcm(num_samples: int) -> bytes:
    return np.full(num_samples, LOUD, "<i2").tobytes()


def samples(data: bytes) -> np.ndarray:
    return np.frombuffer(data, "<i2")


def clock_of(name: str = "r") -> PlaybackClock:
    clock = PlaybackClock(name, ReceiverEstimate())
    clock.start()
    return clock


def line() -> FeedLine:
    line = FeedLine()
    line.resume()
    return line


def play(line: FeedLine, start_s: float, end_s: float, step_s: float = 0.002) -> bytes:
    out = b""
    for now_s in np.arange(start_s, end_s, step_s):
        while (piece := line.take(float(now_s))) is not None:
            out += piece.pcm
    return out


def test_first_chunk_goes_at_once_but_for_its_end() -> None:
    feed, clock = line(), clock_of()
    feed.push(clock, pcm(1920))
    piece = feed.take(1.0)
    assert piece is not None and piece.restart
    assert len(piece.pcm) == 2 * (1920 - FADE)
    assert feed.take(1.0) is None
    assert feed.dry_s(1.0) == pytest.approx(1.085)  # from the next tick on


@pytest.mark.parametrize("first_ms", range(15, 100, 5))
@pytest.mark.parametrize("begin_s", [1.0, 1.0025, 1.005, 1.0075])
def test_speech_goes_on_when_its_first_chunk_is_short(first_ms: int, begin_s: float) -> None:
    """What the trim left of a frame is all that is there for 25 ms, at any place between ticks."""
    feed, clock = line(), clock_of()
    feed.push(clock, pcm(24 * first_ms))
    out = play(feed, begin_s, begin_s + 0.025, step_s=0.0005)
    feed.push(clock, pcm(1920))
    out += play(feed, begin_s + 0.025, begin_s + 0.05, step_s=0.0005)
    assert not clock.gaps and (samples(out) == LOUD).all()


@pytest.mark.parametrize("why", ["end", "starve"])
def test_short_speech_is_not_held_when_nothing_follows_now(why: str) -> None:
    feed, clock = line(), clock_of()
    feed.push(clock, pcm(480))
    assert feed.take(1.0) is None and feed.next_s(1.0) is None
    getattr(feed, why)(clock)
    play(feed, 1.0, 1.1)
    assert clock.pushed_samples == 480


def test_at_most_the_lead_is_handed_over_when_much_waits() -> None:
    feed, clock = line(), clock_of()
    feed.push(clock, pcm(48000))
    now_s = 1.0
    while now_s < 2.9:
        feed.take(now_s)
        assert feed.dry_s(now_s) - now_s <= LEAD_S + 0.0101
        assert feed.dry_s(now_s) > now_s
        now_s = feed.next_s(now_s) or now_s
        if clock.pushed_samples >= 48000 - FADE:
            break
    assert not clock.gaps


def test_end_is_faded_and_padded_when_the_speech_ends() -> None:
    feed, clock = line(), clock_of()
    feed.push(clock, pcm(1000))
    feed.end(clock)
    out = samples(play(feed, 1.0, 1.3))
    assert len(out) % TICK_SAMPLES == 0 and clock.pushed_samples == 1000
    assert out[0] == LOUD and out[999] == 0 and 0 < out[940] < LOUD
    assert not out[1000:].any()


def test_silence_is_a_gap_when_text_was_there_and_none_when_it_was_awaited() -> None:
    for starved in (False, True):
        feed, clock = line(), clock_of()
        feed.push(clock, pcm(1920))
        if starved:
            feed.starve(clock)
        first = samples(play(feed, 1.0, 1.3))
        assert first[1919] == 0, "the end is faded when nothing follows"
        feed.push(clock, pcm(1920))
        feed.end(clock)
        second = samples(play(feed, 1.3, 1.6))
        assert second[0] == 0 and second[FADE] == LOUD, "speech rises again"
        assert len(clock.gaps) == (0 if starved else 1)


def test_onset_of_a_speech_is_not_faded() -> None:
    feed = line()
    for name in ("a", "b"):
        clock = clock_of(name)
        feed.push(clock, pcm(1920))
        feed.end(clock)
    out = samples(play(feed, 1.0, 1.5))
    assert out[0] == LOUD and out[1919] == 0 and out[1920] == LOUD
    assert len(out) == 3840


def test_no_gap_and_every_sample_once_when_chunks_come_in_time() -> None:
    feed, clock = line(), clock_of()
    out = b""
    for i in range(25):  # each comes 30 ms before the one before it ends
        feed.push(clock, pcm(1920))
        start_s = 1.0 + max(i * 0.08 - 0.03, 0.0)
        out += play(feed, start_s, 1.0 + (i + 1) * 0.08 - 0.03)
    feed.end(clock)
    out += play(feed, 2.97, 3.5)
    heard = samples(out)[: 25 * 1920]
    assert (heard[:-FADE] == LOUD).all() and not clock.gaps
    assert clock.pushed_samples == clock.exited_samples(10.0) == 25 * 1920


def test_clear_drops_all_and_fades_from_where_it_was() -> None:
    feed, first, second = line(), clock_of("a"), clock_of("b")
    feed.push(first, pcm(4800))
    feed.end(first)
    feed.push(second, pcm(4800))
    play(feed, 1.0, 1.05)
    cut = feed.clear(1.05)
    assert cut is not None and cut.at_s == pytest.approx(1.06)
    tail = samples(cut.tail)
    assert len(tail) == TICK_SAMPLES and tail[0] == LOUD and tail[FADE - 1] == 0
    assert not tail[FADE:].any()
    assert first.pushed_samples == first.exited_samples(9.0) == 1200
    assert second.pushed_samples == 0
    assert feed.take(1.2) is None and feed.next_s(1.2) is None


def test_the_fade_of_a_cut_is_kept_when_another_cut_follows() -> None:
    feed, clock = line(), clock_of()
    feed.push(clock, pcm(4800))
    play(feed, 1.0, 1.05)
    cut = feed.clear(1.05)
    assert cut is not None and cut.tail
    assert feed.clear(1.051) is None and feed.pause(1.052) is None
    assert feed.dry_s(1.052) == pytest.approx(cut.at_s + 0.01)


def test_clear_sends_no_fade_when_nothing_sounds() -> None:
    feed, clock = line(), clock_of()
    assert feed.clear(1.0) is None
    feed.push(clock, pcm(480))
    feed.end(clock)
    play(feed, 1.0, 1.1)
    assert feed.clear(2.0) is None


def test_pause_takes_back_what_has_not_left_and_resume_plays_it() -> None:
    feed, first, second = line(), clock_of("a"), clock_of("b")
    feed.push(first, pcm(2400))
    feed.end(first)
    feed.push(second, pcm(4800))
    play(feed, 1.0, 1.05)
    feed.pause(1.05)
    assert first.pushed_samples == 1200 and second.pushed_samples == 0
    assert feed.take(2.0) is None
    feed.end(second)
    feed.resume()
    out = samples(play(feed, 2.0, 2.6))
    assert first.pushed_samples == 2400 and second.pushed_samples == 4800
    assert out[0] == 0 and out[FADE] == LOUD and len(out) == 1200 + 4800
    assert not first.gaps and not second.gaps


def test_nothing_is_handed_over_before_the_first_resume() -> None:
    feed, clock = FeedLine(), clock_of()
    feed.push(clock, pcm(1920))
    assert feed.take(1.0) is None and feed.next_s(1.0) is None
    feed.resume()
    assert feed.take(1.0) is not None


steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 6000)),
        st.tuples(st.just("wait"), st.integers(1, 400)),
        st.tuples(st.sampled_from(["starve", "pause", "resume", "take"]), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_no_sample_is_lost_or_doubled_whatever_happens(steps: list[tuple[str, int]]) -> None:
    feed, clock = line(), clock_of()
    pushed, now_s = 0, 1.0
    for action, value in steps:
        if action == "push":
            feed.push(clock, pcm(value))
            pushed += value
        elif action == "wait":
            play(feed, now_s, now_s + value / 1000, 0.005)
            now_s += value / 1000
        elif action == "starve":
            feed.starve(clock)
        elif action == "pause":
            feed.pause(now_s)
        elif action == "resume":
            feed.resume()
        assert clock.exited_samples(now_s) <= clock.pushed_samples <= pushed
    feed.resume()
    feed.end(clock)
    play(feed, now_s, now_s + pushed / 24000 + 1, 0.01)
    assert clock.pushed_samples == pushed
    assert clock.exited_samples(now_s + pushed / 24000 + 1) == pushed


@pytest.mark.parametrize("later_ms", [20, 60, None])
def test_speech_begins_with_what_its_engine_makes_one_wait_for(later_ms: int | None) -> None:
    """At 100 ms of it, or 100 ms after it could begin: an engine may make no more till then."""
    feed, clock = FeedLine(lambda: 0.1), clock_of()
    feed.resume()
    feed.push(clock, pcm(24 * 80))
    begun_s = 100.0
    for ms in range(300):
        now_s = 1.0 + ms / 1000
        if ms == later_ms:
            feed.push(clock, pcm(24 * 80))
        next_s = feed.next_s(now_s)
        if feed.take(now_s) is not None:
            begun_s = min(begun_s, now_s)
        elif begun_s == 100.0:
            assert next_s == pytest.approx(1.1)
    assert begun_s == pytest.approx(1.0 + (100 if later_ms is None else later_ms) / 1000)


def test_a_speech_that_began_is_not_held_again_when_waits_grow() -> None:
    wait_s = 0.0
    feed, clock = FeedLine(lambda: wait_s), clock_of()
    feed.resume()
    feed.push(clock, pcm(24 * 80))
    assert feed.take(1.0) is not None
    wait_s = 0.2
    feed.push(clock, pcm(24 * 80))
    assert feed.take(1.01) is not None
