"""Log lines on standard error: key=value text, or JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

LOGGER = "oddnode"


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        # what comes from outside must not be able to begin a line of its own
        return text if record.exc_info or record.stack_info else text.replace("\n", "\n    ")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class _Json(_Text):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configure_logging(level: str, form: str) -> None:
    """Send log lines to standard error.

    Parameters
    ----------
    level
        ``debug``, ``info``, ``warning`` or ``error``.
    form
        ``text`` or ``json``.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _Json() if form == "json" else _Text("%(asctime)s %(levelname)s %(name)s %(message)s")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(LOGGER).setLevel(level.upper())
    # its warnings about skipped runs are counted and told by the service itself
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
