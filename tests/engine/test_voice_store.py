"""The voice store: what goes in comes out, for its owner alone, whatever happens to the disk."""

import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from playhead.engine.errors import InputError, UnknownVoice
from playhead.engine.models.prompt import Clone
from playhead.engine.voice_store import (
    LOCAL_OWNER,
    VoiceStore,
    VoiceStoreError,
    is_voice_id,
)

MODEL = "0123456789abcdef"
ADD = """
import sys, numpy as np
from pathlib import Path
from playhead.engine.models.prompt import Clone
from playhead.engine.voice_store import VoiceStore, VoiceStoreError
store = VoiceStore(Path(sys.argv[1]))
"""


def clone(number: int, num_frames: int = 0) -> Clone:
    draw = np.random.RandomState(number)
    speaker = draw.normal(size=64).astype(np.float32)
    if not num_frames:
        return Clone(speaker)
    return Clone(speaker, draw.randint(0, 128, (num_frames, 16)).astype(np.int16), "said thus")


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    return VoiceStore(tmp_path / "voices")


def test_voice_when_stored_and_loaded_after_a_restart(store: VoiceStore) -> None:
    added = store.add(LOCAL_OWNER, "Anna", clone(1, 20), MODEL, 4.5, ("noisy: a bit",))
    again = VoiceStore(store.folder)
    assert again.voices(LOCAL_OWNER) == [added]
    assert again.find(LOCAL_OWNER, "ANNA") == added
    assert (added.name, added.in_context, added.reference_s) == ("anna", True, 4.5)
    held, model = again.load(added.id)
    wanted = clone(1, 20)
    assert held.codes is not None
    assert wanted.codes is not None
    assert (held.speaker == wanted.speaker).all()
    assert (held.codes == wanted.codes).all()
    assert (held.transcript, model) == ("said thus", MODEL)


def test_id_when_content_is_equal_or_not(store: VoiceStore) -> None:
    ids = [
        store.add(LOCAL_OWNER, f"v{i}", c, model, 3.0).id
        for i, (c, model) in enumerate(
            [(clone(1), MODEL), (clone(1), MODEL), (clone(2), MODEL), (clone(1, 3), MODEL),
             (clone(1), "other")]
        )
    ]  # fmt: skip
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4
    assert all(is_voice_id(i) for i in ids)
    entry = store.folder / "entries" / f"{ids[0]}.safetensors"
    assert hashlib.sha256(entry.read_bytes()).hexdigest() == ids[0]


def test_name_when_owned_by_another(store: VoiceStore) -> None:
    store.add("alice", "mine", clone(1), MODEL, 3.0)
    store.add("bob", "mine", clone(2), MODEL, 3.0)
    assert [v.name for v in store.voices("alice")] == ["mine"]
    assert store.find("alice", "mine").id != store.find("bob", "mine").id
    store.add("alice", "hers", clone(3), MODEL, 3.0)
    with pytest.raises(UnknownVoice, match="'hers' is not stored"):
        store.find("bob", "hers")
    with pytest.raises(UnknownVoice):
        store.delete("bob", "hers")
    assert [v.name for v in store.voices("bob")] == ["mine"]
    assert store.voices("carol") == []
    assert store.voices("alice/../bob") == []


def test_entry_when_shared_lives_until_its_last_name_goes(store: VoiceStore) -> None:
    voice_id = store.add("alice", "a", clone(1), MODEL, 3.0).id
    assert store.add("bob", "b", clone(1), MODEL, 3.0).id == voice_id
    store.delete("alice", "a")
    store.load(voice_id)
    store.delete("bob", "b")
    with pytest.raises(UnknownVoice, match="no longer stored"):
        store.load(voice_id)
    assert store.voices("alice") == store.voices("bob") == []


def test_add_when_name_is_taken_or_bad(store: VoiceStore) -> None:
    first = store.add(LOCAL_OWNER, "anna", clone(1), MODEL, 3.0)
    assert store.add(LOCAL_OWNER, "anna", clone(1), MODEL, 3.0) == first
    with pytest.raises(InputError, match="'anna' exists already; delete it first"):
        store.add(LOCAL_OWNER, "anna", clone(2), MODEL, 3.0)
    for name in ("", "../up", "a/b", ".hidden", "x" * 65, "é", "f" * 64):
        with pytest.raises(InputError, match="allowed are 1 to 64 letters"):
            store.add(LOCAL_OWNER, name, clone(2), MODEL, 3.0)
    assert store.voices(LOCAL_OWNER) == [first]


def test_entry_when_damaged(store: VoiceStore) -> None:
    voice = store.add(LOCAL_OWNER, "anna", clone(1), MODEL, 3.0)
    entry = store.folder / "entries" / f"{voice.id}.safetensors"
    data = bytearray(entry.read_bytes())
    data[-1] ^= 1
    entry.write_bytes(data)
    with pytest.raises(VoiceStoreError, match=r"is damaged; delete the voice and add it again"):
        store.load(voice.id)
    store.add(LOCAL_OWNER, "anna2", clone(1), MODEL, 3.0)
    store.load(voice.id)  # adding it again repaired the entry


def test_name_when_damaged(store: VoiceStore) -> None:
    store.add(LOCAL_OWNER, "anna", clone(1), MODEL, 3.0)
    [path] = [p for p in (store.folder / "owners").rglob("anna")]
    path.write_text('{"name": "an')
    for use in (lambda: store.find(LOCAL_OWNER, "anna"), lambda: store.voices(LOCAL_OWNER)):
        with pytest.raises(VoiceStoreError, match=r"anna is damaged .*; delete the voice"):
            use()
    store.delete(LOCAL_OWNER, "anna")
    assert store.voices(LOCAL_OWNER) == []


def test_folder_when_the_disk_is_full(store: VoiceStore) -> None:
    """The kernel refuses to write more than 200 bytes a file, as a full disk would."""
    kept = store.add(LOCAL_OWNER, "anna", clone(1), MODEL, 3.0)
    code = ADD + (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        "try: store.add('local', 'second', Clone(np.ones(64, np.float32)), 'm', 3.0)\n"
        "except VoiceStoreError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(store.folder)], capture_output=True, text=True, check=True
    )
    assert "can't be written" in done.stdout
    assert "nothing was changed" in done.stdout
    assert store.voices(LOCAL_OWNER) == [kept]
    assert not list(store.folder.rglob(".*"))
    store.load(kept.id)


def test_folder_when_it_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = VoiceStore(tmp_path / "file" / "voices")
    with pytest.raises(VoiceStoreError, match="can't be written"):
        store.add(LOCAL_OWNER, "anna", clone(1), MODEL, 3.0)


@pytest.mark.slow
def test_folder_when_two_processes_write(store: VoiceStore) -> None:
    """Both add and delete the same content under names of their own; none may lose an entry."""
    code = ADD + (
        "for i in range(40):\n"
        "    voice = store.add(sys.argv[2], 'v', Clone(np.ones(64, np.float32)), 'm', 3.0)\n"
        "    store.load(voice.id)\n"
        "    store.add(sys.argv[2], f'kept{i}', Clone(np.full(64, i, np.float32)), 'm', 3.0)\n"
        "    store.delete(sys.argv[2], 'v')\n"
    )
    command = [sys.executable, "-c", code, str(store.folder)]
    running = [subprocess.Popen([*command, name]) for name in ("alice", "bob")]
    assert [process.wait() for process in running] == [0, 0]
    for owner in ("alice", "bob"):
        kept = store.voices(owner)
        assert len(kept) == 40
        for voice in kept:
            store.load(voice.id)
    assert len(list((store.folder / "entries").iterdir())) == 40


def test_name_when_two_threads_want_it(store: VoiceStore) -> None:
    outcomes: list[str] = []

    def add(number: int) -> None:
        try:
            store.add(LOCAL_OWNER, "anna", clone(number), MODEL, 3.0)
            outcomes.append("added")
        except InputError:
            outcomes.append("refused")

    threads = [threading.Thread(target=add, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["added"] + ["refused"] * 7
