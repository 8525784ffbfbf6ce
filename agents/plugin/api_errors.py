"""The engine's errors as the framework's: what may be tried again, and under which status."""

from livekit.agents import APIConnectionError, APIError, APIStatusError, APITimeoutError

from playhead.engine.errors import (
    Busy,
    EngineFailure,
    InputError,
    PlayheadError,
    TextTooLong,
    TransportError,
)

_STATUS: tuple[tuple[type[PlayheadError], int], ...] = (
    (TextTooLong, 413),
    (InputError, 400),
    (Busy, 429),
    (EngineFailure, 500),
)


def to_api_error(error: Exception, *, audible: bool) -> APIError:
    """Return what the framework should see; once audio was pushed nothing is retryable.

    A second attempt would say the beginning twice.
    """
    retryable = not audible
    if isinstance(error, APIError):
        return error
    if isinstance(error, TransportError):
        return APIConnectionError(str(error), retryable=retryable)
    if isinstance(error, TimeoutError):
        return APITimeoutError("the engine owes audio and sent none in time", retryable=retryable)
    for kind, status in _STATUS:
        if isinstance(error, kind):
            body = {"code": error.code, "retry_s": getattr(error, "retry_s", None)}
            return APIStatusError(str(error), status_code=status, body=body, retryable=retryable)
    if isinstance(error, PlayheadError):  # a model or profile that can't be loaded stays so
        return APIError(str(error), body={"code": error.code}, retryable=False)
    return APIError(f"{type(error).__name__}: {error}", retryable=False)
