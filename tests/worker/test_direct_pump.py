"""DirectLine under a fake time: frames, withholding and its limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.engine.clock import PlaybackClock, total_s
from playhead.engine.receiver import ReceiverEstimate
from playhead.worker.direct_pump import JITTER_S, SLIP_S, DirectLine
from playhead.worker.pcm_queue import FADE_SAMPLES, TICK_S, TICK_SAMPLES

LOUD = 10_000
BRIDGE_S = 0.1
FRAME_S = 0.08
FRAME = 1920


def pcm(num_samples: int) -> bytes:
    return np.full(num_samples, LOUD, "<i2").tobytes()


def clock_of(name: str = "r") -> PlaybackClock:
    clock = PlaybackClock(name, ReceiverEstimate())
    clock.start()
    return clock


class Sender:
    """Takes frames from a line as a pump with a perfect timer would, and keeps when."""

    def __init__(self, bridge_s: float = BRIDGE_S) -> None:
        self.now_s = 1.0
        self.bridge_s = bridge_s
        self.line = DirectLine(self.now_s)
        self.line.resume()
        self.sent: list[tuple[float, np.ndarray]] = []
        self.restarts = 0

    def run(self, duration_s: float, step_s: float = 0.001) -> "Sender":
        for _ in range(round(duration_s / step_s)):
            while (piece := self.line.take(self.now_s, self.bridge_s)) is not None:
                assert len(piece.pcm) == TICK_SAMPLES * 2, "direct sources take whole frames only"
                self.sent.append((self.now_s, np.frombuffer(piece.pcm, "<i2")))
                self.restarts += piece.restart
            self.now_s += step_s
        return self

    def samples(self) -> np.ndarray:
        return np.concatenate([frame for _, frame in self.sent])

    def holes_s(self) -> list[float]:
        """Times between frames in which nothing was sent."""
        times = [at_s for at_s, _ in self.sent]
        steps = np.diff(times)
        return [round(float(step) - TICK_S, 3) for step in steps if step > TICK_S + 0.0015]


def test_silence_is_sent_in_real_time_when_nobody_speaks() -> None:
    sender = Sender().run(1.0)
    assert len(sender.sent) in (100, 101) and not sender.samples().any()
    assert not sender.holes_s() and sender.restarts == 0


def test_every_sample_leaves_once_and_in_time_when_chunks_come_in_time() -> None:
    sender, clock = Sender(), clock_of()
    for _ in range(10):
        sender.line.push(clock, pcm(FRAME))
        sender.run(FRAME_S)
    sender.line.end(clock)
    sender.run(0.2)
    assert (sender.samples() == LOUD).sum() == 10 * FRAME + 1, "the fade begins where the sound was"
    assert not sender.holes_s() and sender.restarts == 1
    assert clock.pushed_samples == clock.exited_samples(sender.now_s) == 10 * FRAME
    assert clock.gaps == clock.stretches == clock.text_waits == []


def stalled(
    stall_s: float, bridge_s: float = BRIDGE_S, num_samples: int = FRAME
) -> tuple[Sender, PlaybackClock]:
    """A speech of two chunks, the second of them late by a stall."""
    sender, clock = Sender(bridge_s), clock_of()
    sender.line.push(clock, pcm(num_samples))
    sender.run(num_samples / 24_000 + stall_s)
    sender.line.push(clock, pcm(FRAME))
    sender.line.end(clock)
    sender.run(0.4)
    return sender, clock


@pytest.mark.parametrize("num_samples", [FRAME, FRAME + 1, FRAME + 100, FRAME + 239])
@pytest.mark.parametrize("stall_s", [0.05, 0.06, 0.08])
def test_nothing_is_sent_when_the_engine_is_late_inside_a_speech(
    stall_s: float, num_samples: int
) -> None:
    sender, clock = stalled(stall_s, num_samples=num_samples)
    (hole_s,) = sender.holes_s()
    assert stall_s - 0.002 <= hole_s <= stall_s + TICK_S, "under a frame may wait for its rest"
    (stretch,) = clock.stretches
    assert clock.gaps == [] and stretch.duration_s == pytest.approx(hole_s, abs=0.002)
    assert abs(sender.now_s - 1.0 - len(sender.sent) * TICK_S) <= TICK_S, "all was made good"
    loud = np.flatnonzero(sender.samples() == LOUD)
    assert np.all(np.diff(loud) == 1), "not a sample of silence inside the speech"
    assert len(loud) == num_samples + FRAME + 1


def test_a_frame_a_little_late_is_followed_up_and_no_stretch() -> None:
    sender, clock = stalled(JITTER_S - 0.005)
    assert clock.gaps == clock.stretches == []
    lost_s = sender.now_s - 1.0 - len(sender.sent) * TICK_S
    assert abs(lost_s) <= TICK_S, "no time is lost"


def test_sound_fades_and_silence_follows_past_the_hard_deadline() -> None:
    sender, clock = stalled(0.3)
    assert sender.holes_s() == [pytest.approx(BRIDGE_S, abs=0.002)]
    (gap,) = clock.gaps
    assert gap.duration_s == pytest.approx(0.3, abs=TICK_S + 0.002)
    sound = sender.samples()
    silent = np.flatnonzero(sound[: 2 * FRAME] < LOUD)
    fade = sound[silent[0] : silent[0] + FADE_SAMPLES]
    assert np.all(np.diff(fade) <= 0) and fade[-1] == 0
    assert sound[silent[0] + FADE_SAMPLES] == 0
    rise = np.flatnonzero(np.diff(sound.astype(int)) > 0)
    assert len(rise) > 2 and np.diff(sound.astype(int)).max() < LOUD / 50, "and rises again"


def test_the_rest_of_a_frame_leaves_before_the_fade() -> None:
    _, clock = stalled(0.3, num_samples=FRAME + 100)
    assert clock.gaps[0].at_sample == FRAME + 100
    assert clock.stretches[0].at_sample == FRAME
    assert clock.pushed_samples == 2 * FRAME + 100


def test_nothing_is_withheld_when_no_receiver_bridges() -> None:
    sender, clock = stalled(0.08, bridge_s=0.0)
    assert not sender.holes_s()
    assert len(clock.gaps) == 1 and clock.stretches == []


def test_what_a_receiver_reports_of_a_stretch_does_not_end_it() -> None:
    sender, clock = Sender(), clock_of()
    sender.line.push(clock, pcm(FRAME))
    sender.run(FRAME_S + 0.02)
    sender.bridge_s = 0.0  # it conceals: what we hold back is missing
    sender.run(0.06)
    assert sender.line.withholding
    sender.line.push(clock, pcm(FRAME))
    sender.run(FRAME_S - 0.01)
    assert clock.gaps == [] and len(clock.stretches) == 1
    sender.run(0.1)
    assert not sender.line.withholding, "the next time it counts"


def test_a_receiver_that_tells_of_a_stretch_hides_the_next_one_as_well() -> None:
    sender, clock = Sender(), clock_of()
    sender.line.push(clock, pcm(FRAME))
    sender.run(FRAME_S + 0.05)
    sender.bridge_s = 0.0  # from now on it tells of what was not sent
    for _ in range(2):
        sender.line.push(clock, pcm(FRAME))
        sender.run(FRAME_S)
    assert clock.gaps == [] and len(clock.stretches) == 2
    sender.line.push(clock, pcm(8 * FRAME))
    sender.run(8 * FRAME_S + 0.05)
    assert not sender.line.withholding, "what it tells long after counts"
    sender.line.push(clock, pcm(FRAME))
    sender.run(FRAME_S)
    assert len(clock.gaps) == 1


@pytest.mark.parametrize("how", ["end", "starve", "clear", "pause"])
@pytest.mark.parametrize("after_s", [0.04, 0.12])
def test_silence_follows_in_real_time_when_nothing_more_is_owed(how: str, after_s: float) -> None:
    """At an end, a wait for text, a cut and a pause; on time and while nothing is being sent."""
    sender, clock = Sender(), clock_of()
    sender.line.push(clock, pcm(FRAME + 100))
    sender.run(after_s)
    if how in ("clear", "pause"):
        getattr(sender.line, how)(sender.now_s)
    else:
        getattr(sender.line, how)(clock)
    before, at_s = len(sender.sent), sender.now_s
    sender.run(0.4)
    after = np.concatenate([frame for _, frame in sender.sent[before:]])
    late_s = sender.sent[before][0] - at_s
    assert late_s < TICK_S + 0.0015 and len(sender.sent) - before in range(39, 46)
    owed = 0 if how in ("clear", "pause") else max(FRAME + 100 - before * TICK_SAMPLES, 0)
    assert not after[owed + FADE_SAMPLES + 1 :].any(), "a fade of 5 ms, then silence"
    assert np.abs(np.diff(after.astype(int))).max() <= LOUD / 50, "no click"
    assert clock.gaps == []


def test_waits_for_text_are_counted_apart() -> None:
    sender, clock = Sender(), clock_of()
    sender.line.push(clock, pcm(FRAME))
    sender.line.starve(clock)
    sender.run(0.5)
    sender.line.push(clock, pcm(FRAME))
    sender.line.end(clock)
    sender.run(0.2)
    assert clock.gaps == clock.stretches == []
    assert total_s(clock.text_waits) == pytest.approx(0.5 - FRAME_S, abs=TICK_S)
    assert not sender.holes_s(), "silence while text is awaited is sent"


def test_a_speech_follows_another_without_a_hole() -> None:
    sender, first, second = Sender(), clock_of("a"), clock_of("b")
    sender.line.push(first, pcm(FRAME + 100))
    sender.line.end(first)
    sender.line.push(second, pcm(FRAME))
    sender.line.end(second)
    sender.run(0.3)
    loud = np.flatnonzero(sender.samples() == LOUD)
    assert np.all(np.diff(loud) == 1) and len(loud) == 2 * FRAME + 101
    assert first.pushed_samples == FRAME + 100 and second.pushed_samples == FRAME
    assert second.exited_samples(1.081) == 0 < second.exited_samples(1.09)


def test_nothing_is_withheld_between_speeches() -> None:
    sender, first, second = Sender(), clock_of("a"), clock_of("b")
    sender.line.push(first, pcm(FRAME))
    sender.line.end(first)
    sender.run(0.5)
    sender.line.push(second, pcm(FRAME))
    sender.line.end(second)
    sender.run(0.2)
    assert not sender.holes_s() and sender.restarts == 2
    assert first.gaps == first.stretches == second.gaps == second.stretches == []


def test_pause_keeps_what_has_not_left_and_resume_plays_it() -> None:
    sender, first, second = Sender(), clock_of("a"), clock_of("b")
    sender.line.push(first, pcm(FRAME))
    sender.line.end(first)
    sender.line.push(second, pcm(FRAME))
    sender.line.end(second)
    sender.run(0.045)
    sender.line.pause(sender.now_s)
    assert {first.state, second.state} == {"paused"}
    sender.run(0.5)
    assert first.pushed_samples == 5 * TICK_SAMPLES and second.pushed_samples == 0
    sender.line.resume()
    before = len(sender.sent)
    sender.run(0.3)
    assert first.pushed_samples == second.pushed_samples == FRAME
    assert first.gaps == first.stretches == first.text_waits == []
    after = np.concatenate([frame for _, frame in sender.sent[before:]]).astype(int)
    assert np.diff(after, prepend=0).max() <= LOUD / 50, "it rises again"


def test_a_speech_whose_last_frame_is_on_its_way_is_paused_as_well() -> None:
    sender, clock = Sender(), clock_of()
    sender.line.push(clock, pcm(FRAME))
    sender.line.end(clock)
    sender.run(FRAME_S - 0.005)
    sender.line.pause(sender.now_s)
    assert clock.state == "paused" and clock.pushed_samples == FRAME


def test_clear_counts_what_is_on_its_way_as_left() -> None:
    sender, clock = Sender(), clock_of()
    sender.line.push(clock, pcm(FRAME))
    sender.run(0.045)
    sender.line.clear(sender.now_s)
    assert clock.pushed_samples == 5 * TICK_SAMPLES == clock.exited_samples(2.0)
    sender.run(0.1)
    assert clock.pushed_samples == 5 * TICK_SAMPLES


def test_nothing_is_spoken_before_the_first_resume() -> None:
    sender, clock = Sender(), clock_of()
    sender.line.held = True
    sender.line.push(clock, pcm(FRAME))
    sender.run(0.2)
    assert not sender.samples().any() and clock.pushed_samples == 0
    sender.line.resume()
    sender.run(0.2)
    assert clock.pushed_samples > 0


def told(sender: Sender, clock: PlaybackClock, made: int) -> tuple[float, float]:
    """Return soft and hard deadline of the sample after `made`, from what the engine is told."""
    snapshot = clock.snapshot(sender.now_s)
    soft_s = snapshot.dry_at_s + (made - snapshot.pushed_samples) / 24_000
    return soft_s, soft_s + sender.line.bridge_now_s(sender.now_s, sender.bridge_s)


def test_the_engine_is_told_one_deadline_while_nothing_is_sent_and_all_is_made_good() -> None:
    sender, clock = Sender(), clock_of()
    sender.line.push(clock, pcm(FRAME))
    sender.run(0.04)
    deadlines = [told(sender, clock, FRAME)]
    while sender.now_s < 1.0 + FRAME_S + 0.08:
        deadlines.append(told(sender.run(0.005), clock, FRAME))
    assert sender.line.withholding
    sender.line.push(clock, pcm(FRAME))
    for _ in range(FRAME // TICK_SAMPLES):  # one frame after another, as the SDK takes them
        assert sender.line.take(sender.now_s, BRIDGE_S) is not None
        soft_s, hard_s = told(sender, clock, 2 * FRAME)
        deadlines.append((soft_s - FRAME_S, hard_s - FRAME_S))
        sender.now_s += 0.001
    expected = (1.0 + FRAME_S, 1.0 + FRAME_S + BRIDGE_S)
    assert np.array(deadlines) == pytest.approx(np.tile(expected, (len(deadlines), 1)))
    assert clock.gaps == [] and len(clock.stretches) == 1


def test_the_engine_is_told_of_no_time_to_make_good_once_silence_is_sent() -> None:
    sender, clock = Sender(), clock_of()
    assert sender.line.bridge_now_s(sender.now_s, BRIDGE_S) == 0.0
    sender.line.push(clock, pcm(FRAME))
    sender.run(FRAME_S + BRIDGE_S + 0.02)
    assert told(sender, clock, FRAME) == (sender.now_s, sender.now_s)
    sender.line.push(clock, pcm(FRAME))
    sender.line.end(clock)
    sender.run(0.2)
    assert told(sender, clock, 2 * FRAME) == (sender.now_s, sender.now_s)


def test_a_stalled_sender_counts_a_stretch_up_to_the_bridge_and_a_gap_beyond() -> None:
    for stall_s, lost_s, kind in ((0.08, 0.0, "stretches"), (0.25, 0.25 - SLIP_S, "gaps")):
        sender, clock = Sender(), clock_of()
        sender.line.push(clock, pcm(20 * FRAME))
        sender.run(0.2)
        sender.now_s += stall_s
        sender.run(0.2)
        (hole,) = getattr(clock, kind)
        assert hole.duration_s == pytest.approx(lost_s or stall_s, abs=TICK_S)
        assert len(clock.gaps) + len(clock.stretches) == 1
        passed_s = sender.now_s - 1.0 - len(sender.sent) * TICK_S
        assert passed_s == pytest.approx(lost_s, abs=TICK_S + 0.001), "so much is made good"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 6000)),
        st.tuples(st.just("wait"), st.integers(1, 300)),
        st.tuples(st.just("stall"), st.integers(1, 300)),
        st.tuples(st.sampled_from(["starve", "pause", "resume"]), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps, st.sampled_from([0.0, 0.02, BRIDGE_S]))
def test_no_sample_is_lost_or_doubled_and_time_adds_up(
    steps: list[tuple[str, int]], bridge_s: float
) -> None:
    """Sound, gaps, waits and pauses fill the time from first to last sample, with what of the
    stretches was not made good."""
    sender, clock = Sender(bridge_s), clock_of()
    pushed, paused = 0, False
    for action, value in steps:
        if action == "push":
            sender.line.push(clock, pcm(value))
            pushed += value
        elif action == "wait":
            sender.run(value / 1000, 0.005)
        elif action == "stall":
            sender.now_s += value / 1000
        elif action == "starve":
            sender.line.starve(clock)
        elif action == "pause" and not sender.line.held:
            sender.line.pause(sender.now_s)
            paused = True
        elif action == "resume":
            sender.line.resume()
        assert clock.exited_samples(sender.now_s) <= clock.pushed_samples <= pushed
    sender.line.resume()
    sender.line.end(clock)
    sender.run(pushed / 24_000 + 1.0, 0.005)
    assert clock.pushed_samples == clock.exited_samples(sender.now_s) == pushed
    if pushed and not paused:
        silent_s = pushed / 24_000 + total_s(clock.gaps + clock.text_waits)
        first_s = next(run.exit_s for run in clock._runs)
        span_s = clock._runs[-1].end_s - first_s
        rounding_s = 0.002 * len(clock._runs) + 0.01
        longest_s = silent_s + total_s(clock.stretches)
        assert silent_s - rounding_s <= span_s <= longest_s + rounding_s
    longest_s = max((each.duration_s for each in clock.stretches), default=0.0)
    assert longest_s <= bridge_s + 2 * TICK_S
