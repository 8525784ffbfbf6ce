"""What the test rooms share: a real LiveKit server for the session, tokens and room names."""

import itertools
import os
import uuid
from collections.abc import Iterator

import pytest

from playhead.worker.demo.parts import PartMissing
from playhead.worker.demo.server import Access, LocalServer

_numbers = itertools.count()


@pytest.fixture(scope="session")
def local_server() -> Iterator[LocalServer]:
    """Run our own LiveKit server on loopback, one for the whole session."""
    try:
        server = LocalServer()
        server.start()
    except PartMissing as missing:
        pytest.fail(str(missing))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def livekit_server(request: pytest.FixtureRequest) -> Access:
    """Return how to reach the server: LIVEKIT_URL where it is set, else our own."""
    url = os.environ.get("LIVEKIT_URL")
    if url:
        return Access(url, os.environ["LIVEKIT_API_KEY"], os.environ["LIVEKIT_API_SECRET"])
    server: LocalServer = request.getfixturevalue("local_server")
    return server.access


@pytest.fixture
def room_name() -> str:
    """Return a room name that no other test uses."""
    return f"test-{next(_numbers)}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def settings_left_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a setting changed: every later child process inherits it."""
    before = _settings()
    yield
    after = _settings()
    for name in after:
        del os.environ[name]
    os.environ.update(before)
    changed = sorted(dict(before.items() ^ after.items()))
    assert not changed, f"{request.node.name} left these variables changed: {changed}"


def _settings() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k.startswith(("PLAYHEAD_", "LIVEKIT_"))}
