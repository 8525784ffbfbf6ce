"""Stored voices through a real engine: each request speaks with its own clone and no other."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from playhead.engine.messages import Cancel, Done, Refused
from playhead.engine.models.loader import load_model
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore
from tests.engine.clone_speaker import NUM_FRAMES, NUM_VOICES, Speaker, keep
from tests.voices import TRANSCRIPT


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home folder of this module's own: that is where voices are kept."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def folder(home: Path) -> Path:
    """A base checkpoint with voices v0..v15 of the local owner, and one of alice's.

    Every second one is in context.
    """
    folder = write_checkpoint(home / "model", "tiny-base", dtype=torch.float32)
    model, store = load_model(folder), VoiceStore()
    for number in range(NUM_VOICES):
        keep(store, LOCAL_OWNER, f"v{number}", model, number, TRANSCRIPT * (number % 2))
    keep(store, "alice", "hers", model, 50)
    return folder


@pytest.fixture
def speaker(folder: Path) -> Speaker:
    return Speaker(folder)


@dataclass(frozen=True)
class Alone:
    """What each voice makes when it speaks alone; voice i has seed i."""

    digests: list[list[str]]
    codes: list[NDArray[np.int16]]
    pcm: list[NDArray[np.int16]]


@pytest.fixture(scope="module")
def alone(folder: Path) -> Alone:
    speaker = Speaker(folder)
    for number in range(NUM_VOICES):
        speaker.submit(f"r{number}", f"v{number}", number)
        speaker.finish(f"r{number}")
    every = range(NUM_VOICES)
    digests = [speaker.runner.digests[n] for n in every]
    assert len({digest for [digest] in digests}) == NUM_VOICES, "equal voices prove nothing"
    codes = [speaker.codes(n) for n in every]
    assert all(len(c) == NUM_FRAMES for c in codes)
    return Alone(digests, codes, [speaker.pcm(f"r{n}") for n in every])


@pytest.mark.slow
def test_codes_when_sixteen_clones_speak_at_once(speaker: Speaker, alone: Alone) -> None:
    ids = [f"r{n}" for n in range(NUM_VOICES)]
    for number, request_id in enumerate(ids):
        speaker.submit(request_id, f"v{number}", number)
    speaker.finish(*ids)
    for number, request_id in enumerate(ids):
        assert speaker.runner.digests[number] == alone.digests[number], f"voice {number}"
        assert (speaker.codes(number) == alone.codes[number]).all(), f"voice {number}"
        ours, wanted = speaker.pcm(request_id), alone.pcm[number]
        assert len(ours) == len(wanted) > 0
        assert np.abs(ours.astype(int) - wanted).max() <= 2, f"samples of voice {number}"


@pytest.mark.slow
def test_codes_when_clones_come_and_go(speaker: Speaker, alone: Alone) -> None:
    """64 requests, 12 at a time, every third cancelled midway; slots are used again and again."""
    draw = np.random.RandomState(5)
    waiting = [(f"q{i}", int(draw.randint(0, NUM_VOICES))) for i in range(64)]
    voices, cancelled, live = dict(waiting), set[str](), list[str]()
    while waiting or live:
        while waiting and len(live) < NUM_VOICES - 4:
            request_id, number = waiting.pop()
            if any(voices[other] == number for other in live):
                waiting.insert(0, (request_id, number))  # its record would mix with theirs
                break
            speaker.runner.codes.pop(number, None)
            speaker.runner.digests.pop(number, None)
            speaker.submit(request_id, f"v{number}", number)
            live.append(request_id)
        for _ in range(int(draw.randint(1, 9))):
            speaker.engine.step()
        for request_id in list(live):
            if int(request_id[1:]) % 3 == 0 and request_id not in cancelled:
                cancelled.add(request_id)
                speaker.engine.post(Cancel(request_id))
        for request_id in [r for r in live if speaker.end(r)]:
            live.remove(request_id)
            number = voices[request_id]
            made = speaker.runner.codes[number]
            if made:
                assert speaker.runner.digests[number] == alone.digests[number], request_id
                assert (np.stack(made)[:NUM_FRAMES] == alone.codes[number][: len(made)]).all()
    ends = [speaker.end(f"q{i}") for i in range(64)]
    reasons = [end.reason for end in ends if isinstance(end, Done)]
    assert len(reasons) == 64
    assert reasons.count("length") >= 42
    assert reasons.count("cancelled") > 5, "cancels came too late to prove anything"


def test_prompt_when_the_clone_spoke_before(speaker: Speaker) -> None:
    for number, name in enumerate(("v2", "v2", "v4")):
        speaker.submit(f"r{number}", name, number)
        speaker.finish(f"r{number}")
    first, again, other = speaker.runner.rows_to_run
    assert first > 0
    assert again == 0, "a clone's prefix is copied, as a preset's is"
    assert other == first


def test_voice_when_of_another_owner(speaker: Speaker, folder: Path) -> None:
    """A name finds the local owner's voices alone; an owner's edge hands over the id."""
    store = VoiceStore()
    speaker.submit("by name", "hers", 1)
    speaker.submit("by id", store.find("alice", "hers").id, 2)
    speaker.submit("guessed", "0" * 64, 3)
    speaker.finish("by name", "by id", "guessed")
    for request_id, told in (("by name", "'hers' is not stored"), ("guessed", "is not stored")):
        end = speaker.end(request_id)
        assert isinstance(end, Refused)
        assert end.code == "unknown_voice"
        assert told in end.message
    assert isinstance(speaker.end("by id"), Done)
    assert len(speaker.pcm("by id")) > 0


def test_voice_when_made_with_another_checkpoint(home: Path, folder: Path) -> None:
    other = write_checkpoint(home / "other", "tiny-base", seed=1, dtype=torch.float32)
    speaker = Speaker(other)
    speaker.submit("r", "v1", 1)
    speaker.finish("r")
    end = speaker.end("r")
    assert isinstance(end, Refused)
    assert "made with another checkpoint and would be another person's" in end.message


def test_voice_when_deleted_while_it_speaks(speaker: Speaker, folder: Path) -> None:
    store, model = VoiceStore(), load_model(folder)
    keep(store, LOCAL_OWNER, "short-lived", model, 60)
    speaker.submit("whole", "short-lived", 1)
    speaker.finish("whole")
    speaker.submit("before", "short-lived", 3, "full")
    speaker.finish("before")
    speaker.submit("cut", "short-lived", 2, "full")
    speaker.engine.step()
    store.delete(LOCAL_OWNER, "short-lived")
    keep(store, LOCAL_OWNER, "short-lived", model, 61)
    speaker.finish("cut")
    assert isinstance(speaker.end("cut"), Done)
    speaker.submit("new", "short-lived", 1)
    speaker.finish("new")
    first, second = speaker.runner.digests[1]
    assert first != second, "the new voice is another"
    assert speaker.runner.digests[2] == speaker.runner.digests[3]


def test_voice_when_none_is_named(speaker: Speaker) -> None:
    speaker.submit("r", None, 1)
    speaker.finish("r")
    end = speaker.end("r")
    assert isinstance(end, Refused)
    assert "speaks only with a cloned voice, and none was given" in end.message
