"""A server with the Hub's download interface for one repository on disk; it can cut downloads."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

COMMIT = "c" * 40


class Hub:
    """Serves a folder as repository `owner/voice`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cut_after_bytes: int | None = None
        """End every download of weights after so many bytes."""
        self.most_downloads: int | None = None
        """Of the speech tokenizer's weights; later ones bring nothing."""
        self.ranges: list[str] = []
        """Range headers of downloads of the speech tokenizer, in order."""
        self.requests = 0
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_HEAD(self) -> None:
                hub.answer(self, with_body=False)

            def do_GET(self) -> None:
                hub.answer(self, with_body=True)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler, with_body: bool) -> None:
        self.requests += 1
        path = urlsplit(handler.path).path
        if path.startswith("/api/models/owner/voice"):
            self._send_json(handler, path)
            return
        found, _, file = path.partition(f"/resolve/{COMMIT}/")
        target = self.folder / file
        if found != "/owner/voice" or not target.is_file():
            handler.send_response(404)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        self._send_file(handler, target, with_body)

    def _files(self) -> list[str]:
        paths = (p for p in self.folder.rglob("*") if p.is_file())
        return sorted(str(p.relative_to(self.folder)) for p in paths)

    def _send_json(self, handler: BaseHTTPRequestHandler, path: str) -> None:
        value: object
        if "/tree/" in path:
            value = [
                {"type": "file", "path": f, "size": (self.folder / f).stat().st_size, "oid": "0"}
                for f in self._files()
            ]
        else:
            siblings = [{"rfilename": f} for f in self._files()]
            value = {"id": "owner/voice", "sha": COMMIT, "siblings": siblings}
        body = json.dumps(value).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _send_file(self, handler: BaseHTTPRequestHandler, path: Path, with_body: bool) -> None:
        data = path.read_bytes()
        large = path.suffix == ".safetensors"
        digest = hashlib.sha256(data).hexdigest() if large else hashlib.sha1(data).hexdigest()
        asked = handler.headers.get("Range", "") if with_body else ""
        first = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        if large and with_body and path.parent != self.folder:
            self.ranges.append(asked)
        handler.send_response(206 if asked else 200)
        handler.send_header("X-Repo-Commit", COMMIT)
        handler.send_header("ETag", f'"{digest}"')
        handler.send_header("Accept-Ranges", "bytes")
        if asked:
            handler.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data) - first))
        handler.end_headers()
        if not with_body:
            return
        rest = data[first:]
        if self.most_downloads is not None and len(self.ranges) > self.most_downloads:
            rest = b""
            handler.close_connection = True
        if large and self.cut_after_bytes is not None:
            rest = rest[: self.cut_after_bytes]
            handler.close_connection = True
        handler.wfile.write(rest)
