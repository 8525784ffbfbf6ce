"""Logs: text for people or one JSON object a line for machines; user text is kept out of both."""

import argparse
import json
import logging
import time
import traceback
from collections.abc import Mapping
from types import TracebackType

from playhead.engine.errors import PlayheadError

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMATS = ("text", "json")
TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s %(message)s"
USER_TEXT = "pii"
"""The only field of a record that may hold what people said; never written."""
_OF_THE_MACHINE = (PlayheadError, OSError, RuntimeError, MemoryError, ImportError)
"""Errors whose message is told. Others may quote what they were given (KeyError: the word)."""
_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", USER_TEXT}


class TextFormatter(logging.Formatter):
    """Writes a record for people; of an error where it was, and only of some what it says."""

    def formatException(
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        """Return the frames of an error and of those before it, without quoted input."""
        chain: list[BaseException] = []
        error = ei[1]
        while error is not None and not any(error is each for each in chain):
            chain.append(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\nThen, while that was handled:\n".join(map(_told, reversed(chain)))


class JsonFormatter(TextFormatter):
    """Writes a record and its `extra` fields as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        body: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        body |= {key: value for key, value in vars(record).items() if key not in _PLAIN}
        if record.exc_info:
            body["error"] = self.formatException(record.exc_info)
        return json.dumps(body, default=str)


def _told(error: BaseException) -> str:
    frames = "".join(traceback.format_tb(error.__traceback__))
    said = f": {error}" * isinstance(error, _OF_THE_MACHINE)
    within = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    parts = "".join(f"\nWithin it: {_told(each)}" for each in within)
    return f"Traceback (most recent call last):\n{frames}{type(error).__qualname__}{said}{parts}"


def add_arguments(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Add --log-level and --log-format; child processes get them through the environment."""
    parser.add_argument(
        "--log-level",
        default=env.get("PLAYHEAD_LOG_LEVEL") or "INFO",
        choices=LEVELS,
        help="default INFO [PLAYHEAD_LOG_LEVEL]",
    )
    parser.add_argument(
        "--log-format",
        default=env.get("PLAYHEAD_LOG_FORMAT") or "text",
        choices=FORMATS,
        help="text, or json: one object a line; default text [PLAYHEAD_LOG_FORMAT]",
    )


def quote_nothing() -> None:
    """Let the handlers of a process that passes its records on tell errors as `TextFormatter`."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(TextFormatter())


def set_up(level: str, format_: str) -> None:
    """Send this process's logs to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if format_ == "json" else TextFormatter(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
