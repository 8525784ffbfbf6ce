"""Routes: which path is answered by what, and the small pages beside speech."""

from aiohttp import web

from playhead.worker.http.edge import Edge
from playhead.worker.http.openapi import document
from playhead.worker.http.problem import Problem
from playhead.worker.http.prometheus import CONTENT_TYPE, config_exposition, engine_exposition
from playhead.worker.http.service import Service
from playhead.worker.http.speech_route import SpeechRoute
from playhead.worker.http.voices_route import VoicesRoute
from playhead.worker.http.websocket import WebSocketRoute


def build_app(service: Service) -> web.Application:
    """Return the aiohttp application of a service."""
    edge, pages, sockets = Edge(service), Pages(service), WebSocketRoute(service)
    voices = VoicesRoute(service)
    app = web.Application(
        middlewares=[edge.middleware], client_max_size=service.options.max_body_bytes
    )
    app.on_shutdown.append(sockets.shut)
    app.on_response_prepare.append(edge.prepare)
    app.on_cleanup.append(voices.shut)
    app.add_routes(
        [
            web.post("/v1/audio/speech", SpeechRoute(service).create),
            web.get("/v1/audio/speech/ws", sockets.open, allow_head=False),
            web.get("/v1/models", pages.models, allow_head=False),
            web.get("/v1/models/{model}", pages.model, allow_head=False),
            web.get("/v1/voices", voices.list, allow_head=False),
            web.post("/v1/voices", voices.add),
            web.delete("/v1/voices/{voice}", voices.delete),
            web.get("/health", pages.health, allow_head=False),
            web.get("/ready", pages.ready, allow_head=False),
            web.get("/metrics", pages.metrics, allow_head=False),
            web.get("/openapi.json", pages.openapi, allow_head=False),
        ]
    )
    return app


class Pages:
    """Everything a GET answers at once."""

    def __init__(self, service: Service) -> None:
        """Share the service."""
        self._service = service

    async def models(self, _: web.Request) -> web.Response:
        """List the model under every name it answers to."""
        models = self._service.known().models
        return web.json_response(
            {"object": "list", "data": [models.entry(name) for name in models.names]}
        )

    async def model(self, request: web.Request) -> web.Response:
        """Return one model; raises Problem 404."""
        models = self._service.known().models
        name = request.match_info["model"]
        models.check(name)
        return web.json_response(models.entry(name))

    async def health(self, _: web.Request) -> web.Response:
        """Say that the process answers."""
        return web.json_response({"status": "ok"})

    async def ready(self, _: web.Request) -> web.Response:
        """Say whether new work is taken; raises Problem 503 while it is not."""
        self._service.check_ready()
        load = self._service.client.status().load
        return web.json_response({"status": "ready", "load": round(load, 4)})

    async def metrics(self, _: web.Request) -> web.Response:
        """Return the counters of the service and its engine."""
        status = self._service.client.status()
        text = self._service.counters.exposition(self._service.ready)
        text += config_exposition(self._service.profile)
        text += engine_exposition(status.metrics, status.load if status.ready else 1.0)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, _: web.Request) -> web.Response:
        """Return the document of the running server: its voices, languages and limits."""
        if not self._service.client.status().ready:
            raise Problem(503, "not_ready", "voices are not known yet", retry_s=2.0)
        return web.json_response(document(self._service.known(), self._service.keys.required))
