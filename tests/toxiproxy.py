"""Toxiproxy: a real proxy that harms a TCP connection as networks do; one process, many lines."""

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx

from playhead.worker.demo.parts import PartMissing, cache_folder
from playhead.worker.demo.server import end_with_parent, free_port

MODULE = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
NAME = "toxiproxy-server"
START_S = 20.0
Stream = Literal["downstream", "upstream"]
"""Downstream is from the service to its client."""


def ensure_toxiproxy() -> Path:
    """Return the server, built by the Go toolchain if there is none. Raises PartMissing."""
    if on_path := shutil.which(NAME):
        return Path(on_path)
    target = cache_folder() / "bin" / NAME
    if target.exists():
        return target
    go = shutil.which("go")
    if go is None:
        raise PartMissing(f"put {NAME} on PATH, or install Go: it is then built from its module")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        done = subprocess.run([go, "install", MODULE], env={**os.environ, "GOBIN": folder})
        if done.returncode != 0:
            raise PartMissing(f"`go install {MODULE}` failed")
        (Path(folder) / "server").rename(target)
    return target


class Line:
    """A way to a server that can be harmed."""

    def __init__(self, url: str, name: str, upstream_port: int) -> None:
        proxy = {"name": name, "listen": "127.0.0.1:0", "upstream": f"127.0.0.1:{upstream_port}"}
        made = httpx.post(f"{url}/proxies", json=proxy)
        assert made.status_code == 201, made.text
        self.port = int(made.json()["listen"].rpartition(":")[2])
        self._url = f"{url}/proxies/{name}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def socket_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/audio/speech/ws"

    def harm(self, kind: str, stream: Stream = "downstream", **attributes: int) -> None:
        """Add a toxic; connections that stand get it, too."""
        toxic: dict[str, Any] = {"type": kind, "stream": stream, "attributes": attributes}
        made = httpx.post(f"{self._url}/toxics", json=toxic)
        assert made.status_code == 200, made.text


class Toxiproxy:
    """The running proxy."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = itertools.count()

    def line(self, port: int) -> Line:
        """Open a line to a port of this machine."""
        return Line(self._url, f"line{next(self._numbers)}", port)


@contextlib.contextmanager
def toxiproxy() -> Iterator[Toxiproxy]:
    """Run the proxy meanwhile. Raises PartMissing."""
    port = free_port()
    command = [str(ensure_toxiproxy()), "-host", "127.0.0.1", "-port", str(port)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=end_with_parent,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline_s = time.monotonic() + START_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{url}/version")
                break
            assert process.poll() is None and time.monotonic() < deadline_s, "toxiproxy"
            time.sleep(0.05)
        yield Toxiproxy(url)
    finally:
        process.kill()
        process.wait()
