"""Speaker over a scripted engine and a recording source; counts and order, no latencies."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from playhead.engine.errors import Busy
from playhead.engine.messages import (
    Cancel,
    Done,
    Playback,
    PlaybackSnapshot,
    Result,
    Submit,
)
from playhead.worker.direct_pump import DirectPump
from playhead.worker.events import (
    Caption,
    Finished,
    Interrupted,
    SpeechError,
    Started,
    WordsTimed,
    to_json,
)
from playhead.worker.pcm_queue import TICK_SAMPLES
from playhead.worker.speaker import MAX_QUEUED, Speaker
from tests.fakes import WORD_S
from tests.worker.rig import Rig

pytestmark = pytest.mark.slow

ENDS = (Finished, Interrupted, SpeechError)


def snapshots(rig: Rig) -> list[PlaybackSnapshot]:
    """What the engine has seen of playback so far."""
    return [c.snapshot for c in rig.engines[0].seen if isinstance(c, Playback)]


async def until(condition: Callable[[], bool], limit_s: float = 10.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.01)


async def test_all_is_heard_and_told_when_a_speech_plays() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        rig.say("one two three")
        end = await rig.until(Finished)
    assert end == Finished("r", "stop", "one two three", 3 * 0.24, 0)
    kinds = [type(event) for event in rig.events]
    assert kinds.index(Started) < kinds.index(Finished) == len(kinds) - 1
    assert kinds.count(Started) == 1 and kinds.count(WordsTimed) == 3
    assert rig.captions() == "one two three" and rig.of(Caption)[-1].final
    assert len(rig.source.samples) == 3 * 5760
    assert all(to_json(event) for event in rig.events if not isinstance(event, Caption))


async def test_a_guard_that_ended_the_speech_is_told_at_its_end() -> None:
    async with Rig() as rig:
        engine = rig.engines[0]
        deliver = engine._on_results

        def guarded(results: list[Result]) -> None:
            ended = {"reason": "length", "guard": "repetition"}
            deliver([replace(r, **ended) if isinstance(r, Done) else r for r in results])

        engine._on_results = guarded
        rig.speaker.listen()
        rig.say("one two")
        end = await rig.until(Finished)
    assert (end.reason, end.guard, end.heard_text) == ("length", "repetition", "one two")
    assert json.loads(to_json(end))["guard"] == "repetition"


async def test_text_is_spoken_as_it_comes_and_waiting_for_it_is_no_gap() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        speech = rig.say("one ", close=False)
        await rig.until(Started)
        await asyncio.sleep(0.5)
        speech.append("two")
        speech.close()
        end = await rig.until(Finished)
    assert end.heard_text == "one two" and end.gaps == 0


async def test_speeches_follow_in_order_without_a_hole_when_appended() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        for name in ("a", "b", "c"):
            rig.say("one two", name)
        await rig.until(Finished, "c")
        ends = [event.request_id for event in rig.events if isinstance(event, ENDS)]
    assert ends == ["a", "b", "c"]
    assert len(rig.source.samples) == 6 * 5760, "no padding between speeches"


async def test_nothing_is_sent_before_somebody_listens_and_all_after() -> None:
    async with Rig() as rig:
        rig.say("one two")
        await rig.until(WordsTimed)
        await until(lambda: len(snapshots(rig)) > 0)
        assert not rig.source.frames and not rig.of(Started)
        assert {snapshot.state for snapshot in snapshots(rig)} == {"waiting"}
        rig.speaker.listen()
        end = await rig.until(Finished)
    assert end.heard_text == "one two" and len(rig.source.samples) == 2 * 5760


async def test_interrupt_returns_what_was_heard_and_drops_the_queue() -> None:
    words = [f"word{number}" for number in range(20)]
    async with Rig() as rig:
        rig.speaker.listen()
        begun_s = time.monotonic()
        rig.say(" ".join(words), "a")
        rig.say("later", "b")
        await rig.until(Started, "a")
        await asyncio.sleep(0.75)
        heard = rig.speaker.interrupt()
        longest_s = time.monotonic() - begun_s
        pushed = len(rig.source.frames)
        await rig.pump.settle()
        assert len(rig.source.cleared_at_s) == 1
        await asyncio.sleep(0.3)
        assert len(rig.source.frames) == pushed + 1, "only the fade follows"
        await until(lambda: rig.engines[0].load() == 0)
    assert 0.24 < heard.heard_s < longest_s
    more_than_half = sum((n + 0.5) * WORD_S < heard.heard_s for n in range(len(words)))
    assert heard.request_id == "a" and heard.text == " ".join(words[:more_than_half])
    cut_a, cut_b = rig.of(Interrupted, "a")[0], rig.of(Interrupted, "b")[0]
    assert cut_a.heard_text == heard.text and cut_a.reason == "interrupted"
    assert cut_b.heard_text == "" and cut_b.heard_s == 0
    assert sum(isinstance(c, Cancel) for c in rig.engines[0].seen) <= 1


async def test_track_fades_within_five_ms_when_interrupted() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        rig.say(" ".join(["word"] * 20))
        await rig.until(Started)
        await asyncio.sleep(0.3)
        rig.speaker.interrupt()
        await rig.pump.settle()
        tail = np.frombuffer(rig.source.frames[-1][1], "<i2")
    assert len(tail) == TICK_SAMPLES and not tail[TICK_SAMPLES // 2 :].any()


async def test_a_new_speech_cuts_the_old_one_when_asked_to() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        rig.say("one two three four five six", "a")
        await rig.until(Started, "a")
        rig.say("new", "b", cut=True)
        end = await rig.until(Finished, "b")
    assert rig.of(Interrupted, "a")[0].reason == "replaced"
    assert end.heard_text == "new"


async def test_interrupt_is_nothing_when_nobody_speaks() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        heard = rig.speaker.interrupt()
        again = rig.speaker.interrupt()
        rig.say("still works")
        await rig.until(Finished)
    assert heard == again and heard.request_id is None and heard.text == ""


async def test_slot_is_freed_when_the_last_listener_leaves_and_the_next_is_served() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        rig.say("one two three four five six seven", "a")
        await rig.until(Started, "a")
        await until(lambda: "playing" in [snapshot.state for snapshot in snapshots(rig)])
        rig.speaker.unheard()
        cut = await rig.until(Interrupted, "a")
        await until(lambda: rig.engines[0].load() == 0)
        rig.say("welcome back", "b")
        await asyncio.sleep(0.1)
        assert not rig.of(Started, "b")
        rig.speaker.listen()
        end = await rig.until(Finished, "b")
    assert cut.reason == "no_listener"
    assert end.heard_text == "welcome back"


async def test_all_is_heard_when_playback_paused_in_between() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        rig.say("one two three four")
        await rig.until(Started)
        rig.speaker.pause()
        await rig.pump.settle()
        count = len(rig.source.frames)
        await asyncio.sleep(0.2)
        assert len(rig.source.frames) == count and not rig.of(Finished)
        rig.speaker.resume()
        end = await rig.until(Finished)
    assert end == Finished("r", "stop", "one two three four", 0.96, 0)


@pytest.mark.parametrize("first", ["listen", "pause"])
async def test_a_speech_asked_for_while_paused_waits_and_is_heard_whole(first: str) -> None:
    """Also where the pause came before the first listener."""
    async with Rig() as rig:
        if first == "pause":
            rig.speaker.pause()
        rig.speaker.listen()
        rig.speaker.pause()
        rig.say("one two")
        await until(lambda: any(s.state == "paused" for s in snapshots(rig)))
        await asyncio.sleep(0.2)
        assert {s.state for s in snapshots(rig)} == {"paused"} and not rig.source.frames
        rig.speaker.resume()
        end = await rig.until(Finished)
    assert end == Finished("r", "stop", "one two", 0.48, 0)


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "empty_text"), (" \n\t ", "empty_text"), ("!busy", "busy"), ("!fail", "engine_failure")],
)
async def test_room_goes_on_when_a_request_fails(text: str, code: str) -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        rig.say(text, "bad")
        rig.say("good", "good")
        await rig.until(Finished, "good")
        failed = rig.of(SpeechError, "bad")[0]
    assert failed.code == code and (failed.retry_s == 0.5) == (code == "busy")
    assert not rig.of(Finished, "bad")


async def test_what_is_on_its_way_is_heard_when_the_engine_fails_midway() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        rig.say("one two !fail three", "bad")
        await rig.until(SpeechError, "bad")
        rig.say("next", "next")
        await rig.until(Finished, "next")
    assert len(rig.source.samples) == 3 * 5760


async def test_every_speech_ends_once_when_the_engine_dies() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        rig.say("one ", "a", close=False)
        await rig.until(Started, "a")
        rig.say("two", "b")
        rig.engines[0].die = True
        await rig.until(SpeechError, "b")
    assert [e.code for e in rig.events if isinstance(e, SpeechError)] == ["transport"] * 2
    assert len(rig.of(SpeechError, "a")) == 1


async def test_speech_ends_with_an_error_when_the_engine_cancels_it_by_itself() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        rig.say("one ", close=False)
        await rig.until(Started)
        for command in rig.engines[0].seen:
            if isinstance(command, Submit):
                rig.engines[0].post(Cancel(command.request_id))
        error = await rig.until(SpeechError)
    assert error.code == "transport" and not rig.of(Finished)


async def test_speak_refuses_when_too_many_wait() -> None:
    async with Rig() as rig:
        for number in range(MAX_QUEUED):
            rig.speaker.speak(Submit("r"), f"r{number}")
        with pytest.raises(Busy):
            rig.speaker.speak(Submit("r"), "one too many")
    ends = [event.request_id for event in rig.events if isinstance(event, ENDS)]
    assert ends == [f"r{number}" for number in range(MAX_QUEUED)]


async def test_snapshots_come_at_ten_a_second_when_speaking() -> None:
    async with Rig() as rig:
        rig.speaker.listen()
        rig.say(" ".join(["word"] * 12))
        await rig.until(Finished)
        seen = snapshots(rig)
    assert np.median(np.diff([snapshot.at_s for snapshot in seen])) < 0.1
    pushed = [s.pushed_samples for s in seen]
    assert pushed == sorted(pushed)
    assert all(s.heard_samples <= s.exited_samples <= s.pushed_samples for s in seen)
    assert all(s.bridge_s == 0 for s in seen), "a queue sends silence: it lends no time"


class DirectRig(Rig):
    """The same room, with a pump that has no native queue."""

    def __init__(self) -> None:
        super().__init__()
        pump = DirectPump(self.source, lambda _: 0.1, lambda: self.speaker.restarted())
        self.speaker = Speaker(self.client, pump, self.receivers, self._take)


def num_loud(rig: Rig) -> int:
    """How many samples were sent from the first to the last that sounds."""
    loud = np.flatnonzero(rig.source.samples)
    return int(loud[-1] - loud[0]) + 1 if len(loud) else 0


async def test_speeches_are_heard_in_order_when_sent_frame_by_frame() -> None:
    async with DirectRig() as rig:
        rig.speaker.listen()
        rig.say(" ".join(["word"] * 8), "a")
        rig.say("last", "b")
        end = await rig.until(Finished, "b")
        seen = snapshots(rig)
    assert rig.of(Finished, "a") and end.heard_text == "last"
    assert all(len(data) == 2 * TICK_SAMPLES for _, data in rig.source.frames)
    spoken = round(9 * WORD_S * 24_000)
    assert num_loud(rig) >= spoken - 2, "all of it, and silence only where the engine was late"
    assert max(s.bridge_s for s in seen) == 0.1, "what nobody hears is told to the engine"


async def test_silence_is_sent_after_an_interruption_when_sent_frame_by_frame() -> None:
    async with DirectRig() as rig:
        rig.speaker.listen()
        rig.say(" ".join(["word"] * 20))
        await rig.until(Started)
        await asyncio.sleep(0.3)
        rig.speaker.interrupt()
        count = len(rig.source.frames)
        await until(lambda: len(rig.source.frames) > count + 5)
    after = b"".join(data for _, data in rig.source.frames[count:])
    assert not np.frombuffer(after, "<i2")[TICK_SAMPLES + TICK_SAMPLES // 2 :].any()
    assert rig.of(Interrupted)[0].gaps == 0
