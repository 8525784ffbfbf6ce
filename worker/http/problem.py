"""Problems: every way a request can fail, as status, code and OpenAI's error shape; pure."""

import math

from aiohttp import web

from playhead.engine.errors import (
    Busy,
    InputError,
    NotInstructable,
    PlayheadError,
    TextTooLong,
    TransportError,
    UnknownLanguage,
    UnknownVoice,
)

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_PARAMS: dict[type[InputError], str] = {
    UnknownVoice: "voice",
    UnknownLanguage: "language",
    NotInstructable: "instructions",
    TextTooLong: "input",
}
_STATUS: dict[type[InputError], int] = {TextTooLong: 413, NotInstructable: 422}
ENGINE_AWAY_RETRY_S = 1.0
"""A supervised engine is back within a second of its fault, plus its loading time."""


class Problem(PlayheadError):
    """A refusal of one request, as the client is told of it."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_s: float | None = None,
    ) -> None:
        """`param` names the field at fault; `retry_s` becomes Retry-After."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_s = retry_s

    def body(self) -> dict[str, object]:
        """Return the error in OpenAI's shape, without the outer object."""
        default = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "message": str(self),
            "type": _TYPES.get(self.status, default),
            "code": self.code,
            "param": self.param,
        }

    def response(self) -> web.Response:
        """Return the whole answer."""
        answer = web.json_response({"error": self.body()}, status=self.status)
        if self.retry_s is not None:
            answer.headers["Retry-After"] = str(max(math.ceil(self.retry_s), 1))
        if self.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer


def problem_of(error: PlayheadError) -> Problem:
    """Return what a client is told of an error of the engine or its carrier."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Busy):
        return Problem(503, error.code, str(error), retry_s=error.retry_s)
    if isinstance(error, InputError):
        status = _STATUS.get(type(error), 400)
        return Problem(status, error.code, str(error), param=_PARAMS.get(type(error)))
    if isinstance(error, TransportError):
        return Problem(503, "engine_away", str(error), retry_s=ENGINE_AWAY_RETRY_S)
    return Problem(500, error.code, "the engine failed on this request; others go on")


def problem_of_http(error: web.HTTPException) -> Problem:
    """Return aiohttp's own refusals (no such path, wrong method, body too long) in our shape."""
    if error.status == 404:
        return Problem(404, "not_found", "no such path; see /openapi.json")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return Problem(405, "method_not_allowed", f"got {error.method}, allowed is {allowed}")
    if error.status == 413:
        return Problem(413, "body_too_large", "the body is too large; split the text")
    return Problem(error.status, "invalid_request", error.reason)
