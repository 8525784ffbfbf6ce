"""HealthServer: tells probes whether the worker lives, takes calls, and what it did."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Health:
    """What `/ready` answers; 200 only if both engine and server connection stand."""

    engine_ready: bool
    registered: bool
    draining: bool
    rooms: int
    load: float

    @property
    def ready(self) -> bool:
        """New calls are taken."""
        return self.engine_ready and self.registered and not self.draining


class HealthServer:
    """`/health` (the process lives), `/ready` (it takes calls), `/metrics`; on the main loop."""

    def __init__(
        self, read: Callable[[], Health], read_metrics: Callable[[], str], host: str, port: int
    ) -> None:
        """Take where to read the state and where to listen."""
        self._read = read
        self._read_metrics = read_metrics
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; raises OSError if the port is taken."""
        app = web.Application()
        app.add_routes([web.get("/health", self._health), web.get("/ready", self._ready)])
        app.add_routes([web.get("/metrics", self._metrics)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _ready(self, _: web.Request) -> web.Response:
        health = self._read()
        body = {"status": "ready" if health.ready else "not ready", **asdict(health)}
        return web.json_response(body, status=200 if health.ready else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self._read_metrics(), content_type="text/plain")
