"""The edge every request passes: its id, its key, cross-origin rules, and one shape of errors."""

import logging
import re
import uuid
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from playhead.engine.errors import PlayheadError
from playhead.worker.http.keys import Account
from playhead.worker.http.options import LOOPBACK
from playhead.worker.http.problem import Problem, problem_of, problem_of_http
from playhead.worker.http.service import Service

logger = logging.getLogger(__name__)

REQUEST_ID = web.RequestKey("request_id", str)
ACCOUNT = web.RequestKey("account", Account)
KEY_PROTOCOL = "playhead.key."
"""A WebSocket subprotocol that carries a key, for browsers, which can set no header."""
_OFFERED_KEY = re.compile(rf"{re.escape(KEY_PROTOCOL)}([^\s,]+)")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_PROBES = ("/health", "/ready", "/metrics")
_CORS_METHODS = "GET, POST, DELETE, OPTIONS"
_CORS_HEADERS = "Authorization, Content-Type"
_CORS_EXPOSED = "X-Request-ID, Retry-After, X-Playhead-Stop, X-Playhead-Guard"


class Edge:
    """Middleware of the service."""

    def __init__(self, service: Service) -> None:
        """Share the service's keys, options and counters."""
        self._service = service

    @property
    def middleware(self) -> Middleware:
        """Return the middleware as aiohttp takes it."""

        @web.middleware
        async def pass_edge(request: web.Request, handler: _Handler) -> web.StreamResponse:
            request[REQUEST_ID] = f"req-{uuid.uuid4().hex}"
            answer = await self._answer(request, handler)
            route = _route(request)
            self._service.counters.requests[route, answer.status] += 1
            logger.log(
                logging.DEBUG if route in _PROBES else logging.INFO,
                "%s %s %d",
                *(request.method, route, answer.status),
                extra={"request_id": request[REQUEST_ID]},
            )
            return answer

        return pass_edge

    async def prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the headers every answer has; aiohttp's signal before the first byte."""
        response.headers["X-Request-ID"] = request.get(REQUEST_ID, "")
        response.headers["Server"] = "playhead"
        response.headers["X-Content-Type-Options"] = "nosniff"
        origin = request.headers.get("Origin")
        if origin and origin in self._service.options.cors_origins:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = _CORS_EXPOSED
            response.headers["Vary"] = "Origin"

    async def _answer(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            if request.match_info.http_exception is None and request.path.startswith("/v1/"):
                self._check_origin(request)
                request[ACCOUNT] = self._account(request)
            elif request.method == "OPTIONS" and self._preflight(request):
                return _preflight_answer()
            return await handler(request)
        except PlayheadError as error:
            return self._refuse(request, problem_of(error))
        except web.RequestPayloadError:
            message = "the body can't be read: it is not in its Content-Encoding, or breaks off"
            return self._refuse(request, Problem(400, "invalid_request", message))
        except web.HTTPException as error:
            answer = self._refuse(request, problem_of_http(error))
            if isinstance(error, web.HTTPMethodNotAllowed):
                answer.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
            return answer
        except Exception:
            logger.exception("request broke", extra={"request_id": request[REQUEST_ID]})
            return self._refuse(request, Problem(500, "internal", "the server failed on this"))

    def _refuse(self, request: web.Request, problem: Problem) -> web.Response:
        self._service.counters.problems[problem.code] += 1
        return problem.response()

    def _account(self, request: web.Request) -> Account:
        header = request.headers.get("Authorization", "")
        scheme, _, key = header.partition(" ")
        if not header:
            found = _OFFERED_KEY.search(request.headers.get("Sec-WebSocket-Protocol", ""))
            return self._service.keys.account(found[1] if found else None)
        return self._service.keys.account(key.strip() if scheme.lower() == "bearer" else None)

    def _check_origin(self, request: web.Request) -> None:
        """Refuse web pages of elsewhere: a browser would let them open a WebSocket to us."""
        origin = request.headers.get("Origin")
        if origin is None or origin in self._service.options.cors_origins:
            return
        if _host(origin) != request.host or self._rebound(request.host):
            raise Problem(403, "origin_not_allowed", "web pages of this origin may not ask here")

    def _rebound(self, host: str) -> bool:
        """Say whether a page got here by pointing a name of its own at this machine."""
        private = self._service.options.host in LOOPBACK and not self._service.keys.required
        return private and urlsplit(f"//{host}").hostname not in LOOPBACK

    def _preflight(self, request: web.Request) -> bool:
        asked = "Access-Control-Request-Method" in request.headers
        return asked and request.headers.get("Origin", "") in self._service.options.cors_origins


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # half an address, as http://[::1
        return None


def _preflight_answer() -> web.Response:
    headers = {"Access-Control-Allow-Methods": _CORS_METHODS}
    headers["Access-Control-Allow-Headers"] = _CORS_HEADERS
    return web.Response(status=204, headers=headers)


def _route(request: web.Request) -> str:
    """Return the route's pattern: bounded in number, whatever clients ask for."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "other"
