"""The training recipe at toy scale: made-up speech to a checkpoint the engine speaks with."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from training import alignment, coding, fit_durations, sentences, speak, train_codec
from training.export import export
from training.sizes import Sizes
from training.train_talker import Trainer, parse, run

from playhead.engine.library import EMBEDDED_VOICE, open_model
from playhead.engine.text.english.lexicon import load_lexicon
from playhead.engine.text.english.phonemes import NUM_SOUNDS, PAIR_BASE, SOUNDS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LINES = ["Hello there, my friend.", "Is it ready? Yes.", "The total is $5."]
TINY = Sizes(
    talker_width=64,
    talker_layers=1,
    talker_mlp=64,
    text_width=16,
    predictor_width=64,
    predictor_layers=1,
    predictor_mlp=64,
)


class FakeTeacher(speak.Speaker):
    """Says every character as 50 ms of noise, the pauses as silence."""

    def __init__(self) -> None:
        self._lexicon = load_lexicon(EMBEDDED_VOICE)
        self._random = np.random.default_rng(0)

    def raw(
        self, line: str, speed: float
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], alignment.Script]:
        script = alignment.script_of(line, self._lexicon)
        units = np.full(len(script.characters) + 2, 2)
        loud = [0.0, *(0.1 * (c not in ",.?! ") for c in script.characters), 0.0]
        shape = np.repeat(np.array(loud, np.float32), speak.CHARACTER_SAMPLES * 2)
        noise = self._random.standard_normal(len(shape)).astype(np.float32)
        return shape * noise, units, script


class EarlyTeacher(FakeTeacher):
    """Is heard before the times it counts, as the real one is."""

    def raw(
        self, line: str, speed: float
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], alignment.Script]:
        audio, units, script = super().raw(line, speed)
        return np.roll(audio, -speak.EARLY_SAMPLES), units, script


def test_rows_name_a_sound_in_the_slot_where_it_is_heard() -> None:
    spoken = EarlyTeacher().speak("Yes, no.")
    assert spoken is not None
    audio, script = spoken
    loud = alignment.loud_blocks(audio)
    first, last = np.flatnonzero(loud)[[0, -1]]
    quiet, length = alignment.longest_quiet(loud[first:last])
    heard = (first + quiet + length) * alignment.BLOCK_SAMPLES
    named = []
    for shift, rows in enumerate(script["rows"]):
        slots = [half for row in rows for half in divmod(int(row) - PAIR_BASE, NUM_SOUNDS)]
        slot = slots.index(SOUNDS.index("n")) + alignment.LEAD_SLOTS
        named.append(slot * alignment.SLOT_SAMPLES + coding.shift_offset(shift))
    assert abs(np.mean(named) - heard) < alignment.SLOT_SAMPLES / 2


def test_slots_hold_every_sound_when_speech_is_fast() -> None:
    script = alignment.script_of("Strengths, text.", load_lexicon(EMBEDDED_VOICE))
    starts = np.arange(len(script.sounds)) * 400.0
    slots = alignment.slot_starts(starts, script.sounds, 0.0)
    rows = alignment.rows_of(slots, script.sounds, 20)
    heard = [half for row in rows for half in divmod(int(row) - PAIR_BASE, NUM_SOUNDS)]
    assert slots[0] == alignment.LEAD_SLOTS
    assert [s for s in script.sounds if s not in alignment.OPTIONAL] == [
        sound for at, sound in enumerate(heard) if at == 0 or heard[at - 1] != sound
    ]


def test_pauses_start_where_speech_falls_silent() -> None:
    sounds = [SOUNDS.index("t"), SOUNDS.index("."), SOUNDS.index("n")]
    loud = np.zeros(400, bool)
    loud[10:30] = True
    moved = alignment.settle_pauses(np.array([1200.0, 20_000.0, 24_000.0]), sounds, loud, 40_000)
    assert moved.tolist() == [1200.0, 1200.0 + 21 * alignment.BLOCK_SAMPLES, 24_000.0]


def test_pauses_are_found_when_the_next_word_sounds_before_its_time() -> None:
    sounds = [SOUNDS.index("t"), SOUNDS.index("."), SOUNDS.index("n")]
    loud = np.zeros(400, bool)
    loud[10:16] = True  # the stop closes, and bursts
    loud[26:30] = True
    loud[196:] = True  # the next word, 20 ms before block 200
    moved = alignment.settle_pauses(np.array([1200.0, 20_000.0, 24_000.0]), sounds, loud, 40_000)
    assert moved.tolist() == [1200.0, 1200.0 + 21 * alignment.BLOCK_SAMPLES, 24_000.0]


def test_isotonic_is_the_nearest_rising_sequence() -> None:
    assert alignment.isotonic([1, 3, 2, 2, 5]) == pytest.approx([1, 7 / 3, 7 / 3, 7 / 3, 5])


def test_sentences_are_many_and_never_held_out() -> None:
    maker = sentences.Maker(["apple", "river"], seed=3)
    made = {maker.line() for _ in range(300)}
    held = {
        line
        for name in ("heldout_clean", "heldout_agent", "development")
        for line in (ROOT / f"training/{name}.txt").read_text().splitlines()
    }
    assert len(made) > 250 and len(held) == 160
    assert not any(line in text for line in held for text in made)


def test_recipe_makes_a_voice_that_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, out, voice = tmp_path / "work", tmp_path / "out", tmp_path / "voice"
    for folder in (work, out, voice):
        folder.mkdir()
    teacher = FakeTeacher()
    spoken = [made for line in LINES if (made := teacher.speak(line)) is not None]
    position = 0
    with open(work / "audio_0.i16", "wb") as audio_file:
        for at, (audio, script) in enumerate(spoken):
            audio_file.write((audio * 32767).astype(np.int16).tobytes())
            script["line"] = np.array([at, position, script["rows"].shape[1]])
            position += len(audio)
    speak.save_scripts([script for _, script in spoken], work / "script_0.npz")

    books = str(ROOT / "training/books.safetensors")
    monkeypatch.setattr("sys.argv", ["coding", str(work), books, "cpu"])
    coding.main()
    data = torch.load(work / "data.pt")
    assert data["codes"].shape[:1] + data["codes"].shape[2:] == (speak.NUM_SHIFTS, 16)

    network = fit_durations.fit(fit_durations.load(work), steps=20, device="cpu")
    np.savez_compressed(voice / "durations.npz", **network.arrays())
    (voice / "lexicon.txt.gz").write_bytes((EMBEDDED_VOICE / "lexicon.txt.gz").read_bytes())

    common = [str(work), str(out), "--device", "cpu", "--seconds", "1"]
    start = str(EMBEDDED_VOICE / "speech_tokenizer" / "model.safetensors")
    monkeypatch.setattr("sys.argv", ["codec", *common, "--batch", "1", "--start", start])
    train_codec.main()
    small = ["--positions", "200", "--predictor-frames", "32", "--echo-after", "-1"]
    first = Trainer(parse([*common, *small]), TINY)
    run(first, seconds=1)
    assert not torch.equal(first.echo, first.corpus.codes)
    second = Trainer(parse([*common, *small]), TINY)  # the second call resumes
    assert second.resumed_step == first.step >= 1 and torch.equal(second.echo, first.echo)
    run(second, seconds=1)
    assert second.step > second.resumed_step

    export(out, voice, replace(TINY, talker_layers=3))  # the weights tell how many there are
    with open_model(voice) as tts:
        assert all(len(pcm) % 2 == 0 for pcm in tts.stream("Hello."))
