"""The caller page on loopback: static files, livekit-client's bundle and tokens for one server.

Tokens are handed to anyone who can reach this port, so it binds to loopback only and answers only
requests that name a loopback host (a foreign site cannot reach it through the browser).
"""

import re
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from playhead.worker.demo.parts import PAGE_FOLDER, client_bundle
from playhead.worker.demo.server import Access

LOOPBACK = "127.0.0.1"
ALLOWED_HOSTS = ("127.0.0.1", "localhost")
BUNDLE_NAME = "livekit-client.umd.js"
NAME_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class CallerPage:
    """Serves the page while it runs; `address` is where."""

    def __init__(self, access: Access, *, folder: Path = PAGE_FOLDER) -> None:
        """Serve tokens for `access`; nothing listens until `start`."""
        self._access = access
        self._folder = folder
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def start(self, port: int = 0) -> str:
        """Listen on loopback and return the address of the page."""
        app = web.Application(middlewares=[_refuse_other_hosts])
        app.router.add_get("/", self._index)
        app.router.add_get("/token", self._token)
        app.router.add_get("/{name}", self._file)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, port)
        await site.start()
        chosen_port = self._runner.addresses[0][1]
        self.address = f"http://{LOOPBACK}:{chosen_port}/"
        return self.address

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _index(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(self._folder / "index.html")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        path = client_bundle() if name == BUNDLE_NAME else self._folder / name
        if path is None or not NAME_PATTERN.fullmatch(name) or not path.is_file():
            raise web.HTTPNotFound(text=f"{name} is not part of the page")
        return web.FileResponse(path, headers={"Cache-Control": "no-cache"})

    async def _token(self, request: web.Request) -> web.StreamResponse:
        room, identity = request.query.get("room", ""), request.query.get("identity", "")
        if not NAME_PATTERN.fullmatch(room) or not NAME_PATTERN.fullmatch(identity):
            raise web.HTTPBadRequest(text="room and identity: 1 to 64 letters, digits, _ . or -")
        token = self._access.token(identity, room)
        return web.json_response({"url": self._access.url, "token": token})


@web.middleware
async def _refuse_other_hosts(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 403 unless the request names a loopback host and comes from no other origin."""
    host = (request.host or "").rsplit(":", 1)[0]
    origin = request.headers.get("Origin")
    same_origin = origin is None or origin == f"http://{request.host}"
    if host not in ALLOWED_HOSTS or not same_origin or request.remote != LOOPBACK:
        raise web.HTTPForbidden(text="this page is for the machine it runs on")
    return await handler(request)
