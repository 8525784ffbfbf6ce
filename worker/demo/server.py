"""A LiveKit server of our own on loopback: random free ports, a fresh key and secret per run."""

import ctypes
import datetime
import json
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from livekit import api

from playhead.worker.demo.parts import ensure_server

READY_LIMIT_S = 15.0
PR_SET_PDEATHSIG = 1
STOP_LIMIT_S = 3.0
"""An idle server ends within 2 s of SIGTERM; one with participants waits for them: then killed."""


class ServerFailed(Exception):
    """The server ended or never became ready; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a LiveKit server and make tokens for it."""

    url: str
    key: str
    secret: str

    def token(
        self, identity: str, room: str, *, kind: api.AccessToken.ParticipantKind = "standard"
    ) -> str:
        """Return a token with which `identity` may join `room`, publish and send data."""
        grants = api.VideoGrants(room_join=True, room=room, can_update_own_metadata=True)
        token = api.AccessToken(self.key, self.secret).with_identity(identity).with_name(identity)
        token = token.with_grants(grants).with_kind(kind)
        return token.with_ttl(datetime.timedelta(hours=2)).to_jwt()

    def environment(self) -> dict[str, str]:
        """Return the variables that tell a worker about this server."""
        return {
            "LIVEKIT_URL": self.url,
            "LIVEKIT_API_KEY": self.key,
            "LIVEKIT_API_SECRET": self.secret,
        }


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM, host: str = "127.0.0.1") -> int:
    """Return a port of a host that nobody uses right now."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def end_with_parent() -> None:
    """Ask Linux to end this child when its parent dies; runs between fork and exec."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(slots=True)
class LocalServer:
    """Runs a LiveKit server while the context lasts; media and signalling stay on one address."""

    host: str = "127.0.0.1"
    interface: str = "lo"
    access: Access = field(init=False)
    log_path: Path = field(init=False)
    _folder: tempfile.TemporaryDirectory[str] = field(init=False)
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None)
    _log: IO[bytes] | None = field(init=False, default=None)
    _port: int = field(init=False, default=0)
    _config: dict[str, object] = field(init=False)

    def __post_init__(self) -> None:
        """Choose ports and secrets; nothing runs yet."""
        self._folder = tempfile.TemporaryDirectory(prefix="playhead-livekit-")
        self.log_path = Path(self._folder.name) / "server.log"
        self._port = free_port(host=self.host)
        key, secret = "key" + secrets.token_hex(6), secrets.token_hex(24)
        self.access = Access(f"ws://{self.host}:{self._port}", key, secret)
        self._config = server_config(self.host, self.interface, self._port, self.access)

    def __enter__(self) -> Self:
        """Start and wait until ready."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop and forget the log."""
        self.stop()
        self._folder.cleanup()

    def start(self) -> None:
        """Start the process and wait until it answers; again after `stop` on the same ports."""
        config = Path(self._folder.name) / "livekit.yaml"
        config.write_text(json.dumps(self._config))  # JSON is YAML
        self._log = self.log_path.open("ab")
        self._process = subprocess.Popen(
            [str(ensure_server()), "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        deadline_s = time.monotonic() + READY_LIMIT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                tail = self.log_path.read_text(errors="replace")[-2000:]
                self.stop()
                raise ServerFailed(f"the LiveKit server did not become ready:\n{tail}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask it to end, then make sure; never waits without a limit."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self._port}/", timeout=0.5) as answer:
                return bool(answer.read() == b"OK")
        except (urllib.error.URLError, OSError):
            return False


def server_config(host: str, interface: str, port: int, access: Access) -> dict[str, object]:
    """Return a configuration whose signalling and media stay on one interface."""
    loopback = host == "127.0.0.1"
    return {
        "port": port,
        "bind_addresses": ["127.0.0.1"] if loopback else ["127.0.0.1", host],
        "keys": {access.key: access.secret},
        "logging": {"level": "warn", "pion_level": "error"},
        "rtc": {
            "udp_port": free_port(socket.SOCK_DGRAM, host),
            "tcp_port": free_port(host=host),
            "use_external_ip": False,
            "node_ip": host,
            "enable_loopback_candidate": loopback,
            "interfaces": {"includes": [interface]},
        },
        "room": {"auto_create": True, "empty_timeout": 30, "departure_timeout": 5},
    }
