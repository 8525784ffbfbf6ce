"""Cloned voices over HTTP: who may add, see, use and forget which, and what is refused."""

import asyncio
import http.client
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import httpx
import pytest
import torch
from aiohttp.test_utils import TestClient, TestServer

from playhead.engine.models.loader import load_model
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore
from playhead.worker.client import EngineClient
from playhead.worker.http.keys import KeyRing
from playhead.worker.http.messages import PROTOCOL
from playhead.worker.http.options import HttpOptions
from playhead.worker.http.problem import Problem
from playhead.worker.http.routes import build_app
from playhead.worker.http.service import Service
from playhead.worker.http.stored_voices import MAX_WAITING, OwnVoices, Upload, VoiceMaker
from playhead.worker.thread_carrier import ThreadCarrier
from tests.engine.clone_speaker import keep
from tests.engine.test_reference_audio import encoded
from tests.fakes import ScriptedEngine
from tests.voices import TRANSCRIPT, reference_wave
from tests.worker.http.conftest import ALICE, BOB, Launcher, Served, end

pytestmark = pytest.mark.slow

CONSENT = "the speaker agreed to this test"
FRESH = "a-fresh-key-of-alice"
RECORDING = encoded(reference_wave(1, 3.0)[None], 24_000, "wav")
OTHER = encoded(reference_wave(2, 3.0, 44_100)[None], 44_100, "flac")


@pytest.fixture(scope="module")
def served(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a base checkpoint; the command line stored one voice, and one of another model's."""
    home = tmp_path_factory.mktemp("home")
    model = write_checkpoint(home / "model", "tiny-base", dtype=torch.float32)
    other = write_checkpoint(home / "other", "tiny-base", seed=1, dtype=torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        keep(VoiceStore(), LOCAL_OWNER, "aaron", load_model(other), 7)
        keep(VoiceStore(), LOCAL_OWNER, "shared", load_model(model), 8)
        flags = ["--carrier", "threads", "--keys", "KEYS", "--model", str(model)]
        flags += ["--voice-alias", "nova=anna"]
        served = launcher.ready(launcher.begin("cloning", *flags))
        yield served
    end(served)


def client(served: Served, key: str = ALICE) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=served.url, headers=headers, timeout=120)


def add(
    who: httpx.Client, name: str, recording: bytes = RECORDING, **fields: str
) -> httpx.Response:
    form = {"name": name, "consent": CONSENT, **fields}
    return who.post("/v1/voices", data=form, files={"audio": ("voice", recording)})


def names(who: httpx.Client) -> dict[str, str]:
    return {each["id"]: each["kind"] for each in who.get("/v1/voices").json()["data"]}


def speak(who: httpx.Client, voice: str) -> httpx.Response:
    body = {"input": "Hi.", "voice": voice, "response_format": "pcm", "stream": False}
    return who.post("/v1/audio/speech", json={**body, "max_new_tokens": 4})


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_voices_when_keys_use_one_name(served: Served) -> None:
    alice, bob = client(served), client(served, BOB)
    made = add(alice, "Anna", transcript=TRANSCRIPT)
    assert made.status_code == 201, made.text
    told = made.json()
    assert (told["id"], told["kind"], told["in_context"]) == ("anna", "clone", True)
    assert told["consent"] == CONSENT
    assert abs(told["reference_s"] - 3.0) < 0.05
    assert code(add(alice, "anna", OTHER)) == (409, "voice_exists")
    assert names(alice) == {"anna": "clone", "aaron": "shared", "shared": "shared"}
    assert names(bob) == {"aaron": "shared", "shared": "shared"}
    assert code(speak(bob, "anna")) == (400, "unknown_voice")
    assert "anna" not in speak(bob, "anna").text
    [voice_id] = [v.id for v in VoiceStore().voices("name alice")]
    assert code(speak(bob, voice_id)) == (400, "unknown_voice"), "ids are the server's own"
    assert code(bob.delete("/v1/voices/anna")) == (404, "voice_not_found")
    assert code(bob.delete("/v1/voices/shared")) == (404, "voice_not_found")

    assert add(bob, "anna", OTHER).status_code == 201, "another's name is free"
    hers, his = speak(alice, "anna"), speak(bob, "ANNA")
    assert hers.status_code == his.status_code == 200, (hers.text, his.text)
    assert len(hers.content) > 4 * 1920 and hers.content != his.content
    assert speak(alice, "nova").content == hers.content, "an alias may name a stored voice"
    assert speak(bob, "nova").content == his.content
    assert speak(alice, "shared").status_code == 200
    assert code(speak(alice, "aaron")) == (400, "invalid_request"), "of another checkpoint"

    kept = served.keys.read_text()
    served.keys.write_text(kept.replace(ALICE, FRESH))
    assert speak(client(served, FRESH), "anna").content == hers.content, "a key was replaced"
    served.keys.write_text(kept)
    gone = alice.delete("/v1/voices/Anna")
    assert (gone.status_code, gone.json()["deleted"]) == (200, True)
    assert code(speak(alice, "anna")) == (400, "unknown_voice")
    assert names(bob)["anna"] == "clone"
    assert bob.delete("/v1/voices/anna").status_code == 200


def making_voices(served: Served) -> list[int]:
    """Return the server's processes that make voices."""
    tasks = Path(f"/proc/{served.process.pid}/task")
    children = " ".join((each / "children").read_text() for each in tasks.iterdir()).split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return [pid for pid, command in commands.items() if b"playhead.worker.voice_making" in command]


def test_process_when_many_recordings_come(served: Served) -> None:
    """It is there before the first one and is the same behind the last, good or bad."""
    alice = client(served)
    [before] = making_voices(served)
    assert add(alice, "one", OTHER).status_code == 201
    assert code(add(alice, "two", RECORDING[:9_000])) == (400, "bad_reference")
    assert add(alice, "two").status_code == 201
    assert making_voices(served) == [before]
    for name in ("one", "two"):
        assert alice.delete(f"/v1/voices/{name}").status_code == 200


def test_form_when_something_is_wrong(served: Served) -> None:
    alice = client(served)
    before = names(alice)
    good = {"name": "x", "consent": CONSENT}
    audio = {"audio": RECORDING}
    cases: list[tuple[dict[str, str], dict[str, bytes], tuple[int, str]]] = [
        ({"name": "x"}, audio, (400, "missing_field")),
        ({"consent": CONSENT}, audio, (400, "missing_field")),
        (good, {"transcript": b"hm"}, (400, "missing_field")),
        (good | {"name": "a/b"}, audio, (400, "invalid_request")),
        (good | {"name": "f" * 64}, audio, (400, "invalid_request")),
        (good | {"consent": "yes"}, audio, (400, "invalid_request")),
        (good | {"consent": " " * 9}, audio, (400, "invalid_request")),
        (good | {"transcript": "a" * 2_001}, audio, (400, "invalid_request")),
        (good | {"transcript": "a", "ref_text": "a"}, audio, (400, "contradiction")),
        (good | {"colour": "red"}, audio, (400, "unknown_field")),
        (good, audio | {"name": b"twice"}, (400, "invalid_request")),
        (good, audio | {"transcript": b"\xff"}, (400, "invalid_request")),
        (good | {"transcript": "a" * 9_000}, audio, (413, "body_too_large")),
        (good, {"audio": b"no sound"}, (400, "bad_reference")),
        (good, {"audio": RECORDING[:9_000]}, (400, "bad_reference")),
    ]
    for fields, files, wanted in cases:
        parts = {name: (name, value) for name, value in files.items()}
        answer = alice.post("/v1/voices", data=fields, files=parts)
        assert code(answer) == wanted, (fields, files.keys(), answer.text)
    short = alice.post("/v1/voices", json=good)
    assert code(short) == (415, "unsupported_media_type")
    head = {"Content-Type": "multipart/form-data; boundary=b"}
    broken = alice.post("/v1/voices", content=b"--b\r\nhm", headers=head)
    assert code(broken) == (400, "invalid_multipart")
    unbound = alice.post(
        "/v1/voices", content=b"a", headers={"Content-Type": "multipart/form-data"}
    )
    assert code(unbound) == (400, "invalid_multipart")
    packed = alice.post("/v1/voices", content=b"a", headers={**head, "Content-Encoding": "gzip"})
    assert code(packed) == (415, "unsupported_media_type")
    streamed = alice.post("/v1/voices", content=iter([b"--b"]), headers=head)
    assert code(streamed) == (411, "length_required")
    assert names(alice) == before


def test_body_when_it_is_announced_too_long(served: Served) -> None:
    """The answer comes before the body does."""
    raw = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    raw.putrequest("POST", "/v1/voices")
    raw.putheader("Authorization", f"Bearer {ALICE}")
    raw.putheader("Content-Type", "multipart/form-data; boundary=b")
    raw.putheader("Content-Length", str(1 << 30))
    raw.endheaders()
    answer = raw.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["error"]["code"] == "body_too_large"
    raw.close()


async def test_socket_when_it_names_a_stored_voice(served: Served) -> None:
    VoiceStore().add("name alice", "hers", *VoiceStore().load(
        VoiceStore().find(LOCAL_OWNER, "shared").id), 3.0)  # fmt: skip
    found = {}
    for key in (ALICE, BOB):
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.ws_connect(served.socket_url, protocols=(PROTOCOL,)) as socket,
        ):
            hello = await socket.receive_json()
            start = {"type": "utterance.start", "utterance": "u", "voice": "hers"}
            await socket.send_json({**start, "max_new_tokens": 3})
            await socket.send_json(
                {"type": "text.append", "utterance": "u", "sequence": 0, "text": "Hi."}
            )
            await socket.send_json({"type": "text.end", "utterance": "u", "sequence": 1})
            num_bytes = 0
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    num_bytes += len(message.data)
                    continue
                event = message.json()
                if event["type"] in ("error", "utterance.done"):
                    break
            found[key] = hello["voices"], num_bytes, event
    assert found[ALICE][0] == ["hers", "aaron", "shared"]
    assert found[ALICE][1] > 1920 and found[ALICE][2]["reason"] == "length"
    assert found[BOB][0] == ["aaron", "shared"]
    assert found[BOB][1] == 0 and found[BOB][2]["error"]["code"] == "unknown_voice"
    VoiceStore().delete("name alice", "hers")


def test_add_when_the_checkpoint_clones_none(open_server: Served) -> None:
    answer = add(httpx.Client(base_url=open_server.url, timeout=30), "anna")
    assert code(answer) == (409, "cloning_not_supported")


async def test_strangers_when_the_server_has_no_keys(tmp_path: Path) -> None:
    engine = EngineClient(ThreadCarrier(ScriptedEngine))
    service = Service(engine, HttpOptions(host="0.0.0.0"))
    async with TestClient(TestServer(build_app(service))) as http_client:
        form = aiohttp.FormData({"name": "x", "consent": CONSENT})
        form.add_field("audio", RECORDING, filename="x.wav")
        added = await http_client.post("/v1/voices", data=form)
        gone = await http_client.delete("/v1/voices/x")
        for answer in (added, gone):
            assert answer.status == 403
            assert (await answer.json())["error"]["code"] == "key_required"


async def test_maker_when_time_is_up_or_many_wait(tmp_path: Path) -> None:
    maker = VoiceMaker("no-such-model", limit_s=0.01)
    own = OwnVoices(VoiceStore(tmp_path), "name x")
    with pytest.raises(Problem) as late:
        await maker.make(own, Upload("x", RECORDING, CONSENT))
    assert (late.value.status, late.value.code) == (504, "voice_timeout")
    assert own.listed() == []
    absent = VoiceMaker("no-such-model")
    with pytest.raises(Problem) as broken:
        await absent.make(own, Upload("x", RECORDING, CONSENT))
    await absent.close()
    assert (broken.value.status, broken.value.code) == (500, "voice_failed")
    assert "no-such-model" not in str(broken.value), "what lies on the server is not told"
    await maker.close()
    rooms = [maker.room() for _ in range(MAX_WAITING + 1)]
    for room in rooms[:-1]:
        room.__enter__()
    with pytest.raises(Problem) as full:
        rooms[-1].__enter__()
    assert (full.value.status, full.value.code) == (503, "busy")
    rooms[0].__exit__(None, None, None)
    with maker.room():
        pass


async def test_maker_when_its_process_is_killed(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model", "tiny-base", dtype=torch.float32)
    maker, own = VoiceMaker(str(model)), OwnVoices(VoiceStore(tmp_path / "voices"), "name x")
    await maker.begin()
    first = maker._process.pid
    assert first is not None, "it loads before anybody asks"
    os.kill(first, signal.SIGSTOP)
    lost = asyncio.create_task(maker.make(own, Upload("x", RECORDING, CONSENT)))
    await asyncio.sleep(0)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(Problem) as caught:
        await lost
    assert (caught.value.status, caught.value.code) == (500, "voice_failed")
    assert "send it again" in str(caught.value)
    second = maker._process.pid
    assert second not in (None, first), "another one loads before anybody asks"
    made = await maker.make(own, Upload("x", RECORDING, CONSENT))
    assert [voice for voice, _ in own.listed()] == [made] and maker._process.pid == second
    await maker.close()
    await maker.begin()
    assert maker._process.pid is None, "nothing is started behind the end"


def test_listing_when_the_store_is_damaged(tmp_path: Path) -> None:
    own = OwnVoices(VoiceStore(tmp_path), "name x")
    folder = own.store._owner("name x")
    folder.mkdir(parents=True)
    (folder / "anna").write_text("{")
    for use in (own.listed, lambda: own.find("anna")):
        with pytest.raises(Problem) as caught:
            use()
        assert (caught.value.status, caught.value.code) == (500, "voice_store")
        assert str(tmp_path) not in str(caught.value)


def test_owner_when_a_key_has_no_name() -> None:
    """Keys given beside the file are numbered: their order must not decide whose voices are."""
    first, second = "a-key-long-enough", "another-key-long-enough"
    ring, turned = KeyRing(None, (first, second)), KeyRing(None, (second, first))
    assert ring.account(first).owner == turned.account(first).owner
    assert ring.account(first).owner != ring.account(second).owner
