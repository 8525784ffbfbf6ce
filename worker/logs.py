"""Logs: text for people or one JSON object a line for machines; user text is kept out of both."""

import argparse
import json
import logging
import time
from collections.abc import Mapping

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMATS = ("text", "json")
TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s %(message)s"
USER_TEXT = "pii"
"""The only field of a record that may hold what people said; never written."""
_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", USER_TEXT}


class JsonFormatter(logging.Formatter):
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


def set_up(level: str, format_: str) -> None:
    """Send this process's logs to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if format_ == "json" else logging.Formatter(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
