"""Keys: who is let in, how much each may ask, and a file that changes under way."""

import hashlib
import os
from pathlib import Path

import pytest

from playhead.engine.errors import ConfigError
from playhead.worker.http.keys import KeyRing
from playhead.worker.http.problem import Problem

KEY, OTHER = "a-key-long-enough", "another-key-long-enough"


def write(path: Path, text: str) -> None:
    path.write_text(text)
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + len(text)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    write(path, f"# people\nalice {KEY} max_streams=2 chars_per_minute=600\n")
    return path


def refused(ring: KeyRing, key: str | None) -> Problem:
    with pytest.raises(Problem) as caught:
        ring.account(key)
    return caught.value


def test_lets_in_known_keys_only(file: Path) -> None:
    ring = KeyRing(file, (OTHER,))
    assert ring.account(KEY).name == "alice"
    assert ring.account(OTHER).name == "env-0"
    assert refused(ring, None).code == "missing_api_key"
    wrong = refused(ring, KEY[:-1] + "x")
    assert (wrong.status, wrong.code) == (401, "invalid_api_key")
    assert wrong.response().headers["WWW-Authenticate"] == "Bearer"


def test_compares_every_key_in_constant_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hmac

    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest
    monkeypatch.setattr(
        hmac, "compare_digest", lambda a, b: (compared.append((a, b)), real(a, b))[1]
    )
    write(file, f"first {KEY}\nsecond {OTHER}\n")
    ring = KeyRing(file)
    ring.account(KEY)
    assert len(compared) == 2 and all(len(a) == len(b) == 32 for a, b in compared)


def test_takes_a_hash_instead_of_the_key(file: Path) -> None:
    write(file, f"alice sha256:{hashlib.sha256(KEY.encode()).hexdigest()}\n")
    assert KeyRing(file).account(KEY).name == "alice"


def test_reads_the_file_again_and_keeps_what_is_in_use(file: Path) -> None:
    ring = KeyRing(file)
    with ring.account(KEY).stream():
        write(file, f"alice {KEY} max_streams=1\nbob {OTHER}\n")
        assert ring.account(OTHER).name == "bob"
        with pytest.raises(Problem), ring.account(KEY).stream():
            pass
    with ring.account(KEY).stream():
        pass
    write(file, f"bob {OTHER}\n")
    assert refused(ring, KEY).code == "invalid_api_key"


def test_a_key_taken_away_is_known_on_a_connection_that_was_open(file: Path) -> None:
    ring = KeyRing(file, (OTHER,))
    account, fixed = ring.account(KEY), ring.account(OTHER)
    write(file, f"renamed {KEY} max_streams=1\n")
    for each in (account, fixed):
        ring.check(each)
    write(file, "bob a-third-key-long-enough\n")
    with pytest.raises(Problem) as caught:
        ring.check(account)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    ring.check(fixed)
    nobody = KeyRing()
    nobody.check(nobody.account(None))


_BROKEN = ["", "alice\n", "alice short\n", f"a {KEY} max_streams=x\n", f"a {KEY} max_streams=²\n"]


@pytest.mark.parametrize("text", _BROKEN)
def test_keeps_the_keys_it_has_when_the_new_file_is_broken(
    file: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    ring = KeyRing(file)
    write(file, text)
    assert ring.account(KEY).name == "alice"
    assert "keys stay" in caplog.text and KEY not in caplog.text
    with pytest.raises(ConfigError):
        KeyRing(file)
    file.unlink()
    assert ring.account(KEY).name == "alice"


def test_limits_streams_and_characters(file: Path) -> None:
    account = KeyRing(file).account(KEY)
    with account.stream(), account.stream(), pytest.raises(Problem) as full, account.stream():
        pass
    assert (full.value.status, full.value.code) == (429, "concurrency_limit")
    account.spend(500, 10.0)
    with pytest.raises(Problem) as spent:
        account.spend(200, 10.0)
    assert (spent.value.status, spent.value.retry_s) == (429, pytest.approx(10.0))
    assert spent.value.response().headers["Retry-After"] == "10"
    account.spend(200, 20.0)
    with pytest.raises(Problem):
        account.spend(100, 20.0)
    account.give_back(100)
    account.spend(100, 20.0)
    with pytest.raises(Problem) as never:
        account.spend(601, 9999.0)
    assert never.value.status == 413


def test_everybody_is_one_account_when_there_are_no_keys() -> None:
    ring = KeyRing()
    assert not ring.required and ring.account(None) is ring.account("anything")
    with pytest.raises(ConfigError):
        KeyRing(None, ("short",))
