"""The error tree. Messages say what was given, what is allowed and what to do.

PlayheadError
├── InputError              the caller's request can't be spoken as given (HTTP 400)
│   ├── EmptyText           nothing but white space
│   ├── UnknownVoice        no such voice or speaker
│   ├── UnknownLanguage     no such language
│   ├── NotInstructable     the checkpoint follows no instruction
│   └── TextTooLong         more text than the profile allows (HTTP 413)
├── ConfigError             a profile, flag or environment value is wrong
├── CheckpointError         a model folder is incomplete, damaged or of another shape
├── Busy                    admission refused; has retry_s (HTTP 429 / 503)
├── Unauthorized            this participant or key may not do that (HTTP 401)
├── TransportError          the carrier, socket or room broke
└── EngineFailure           a step failed for this request (HTTP 500)
    └── DeviceFault         the device broke: every live request fails and the engine ends
"""

import logging

log = logging.getLogger(__name__)


class PlayheadError(Exception):
    """Base of every error this package raises on purpose; `code` is its stable wire name."""

    code = "error"


class InputError(PlayheadError):
    """The request can't be spoken as given."""

    code = "invalid_request"


class EmptyText(InputError):
    """The text ended with nothing in it but white space."""

    code = "empty_text"


class UnknownVoice(InputError):
    """No voice of that name."""

    code = "unknown_voice"


class UnknownLanguage(InputError):
    """No language of that name."""

    code = "unknown_language"


class NotInstructable(InputError):
    """The checkpoint was not trained to follow an instruction."""

    code = "instructions_not_supported"


class TextTooLong(InputError):
    """More text than the profile allows."""

    code = "text_too_long"


class ConfigError(PlayheadError):
    """A profile, flag or environment value is wrong."""

    code = "config"


class CheckpointError(PlayheadError):
    """A model folder is incomplete, damaged or of another shape."""

    code = "checkpoint"


class Busy(PlayheadError):
    """Admission refused the request; try again after `retry_s` seconds."""

    code = "busy"

    def __init__(self, message: str, retry_s: float) -> None:
        """Keep the time to retry beside the message."""
        super().__init__(message)
        self.retry_s = retry_s


class Unauthorized(PlayheadError):
    """This participant or key may not do that."""

    code = "unauthorized"


class TransportError(PlayheadError):
    """The carrier, socket or room broke."""

    code = "transport"


class EngineFailure(PlayheadError):
    """A step failed for this request; other requests go on."""

    code = "engine_failure"


class DeviceFault(EngineFailure):
    """The device broke under a batch; nothing on it can be trusted any more."""

    code = "device_fault"


def told(error: Exception, request_id: str) -> tuple[str, str]:
    """Return the code and the message for whoever asked; what nobody foresaw is logged."""
    if isinstance(error, PlayheadError):
        return error.code, str(error)
    log.error("request failed", exc_info=error, extra={"request_id": request_id})
    return EngineFailure.code, f"{type(error).__name__}: {error}"
