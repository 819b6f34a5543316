"""How log records are written: one line each, for a person or for a machine."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal

from fulfillment_cli.domain.order import printable

LogFormat = Literal["text", "json"]

_FACTS = ("task", "step", "attempt")


class TextFormatter(logging.Formatter):
    """One line a record, with whatever a stranger wrote shown escaped; times are UTC."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        lines = f"{_utc(record)} {super().format(record)}".split("\n")
        return "\n".join(printable(line) for line in lines)


class JsonFormatter(logging.Formatter):
    """One JSON object a record; each has task, step and attempt, null where there is none."""

    def format(self, record: logging.LogRecord) -> str:
        values = vars(record)
        line: dict[str, object] = {
            "time": _utc(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: values.get(name) for name in _FACTS}
        if "code" in values:
            line["code"] = values["code"]
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # ASCII: what would reorder a terminal is escaped, and no encoding can fail.
        return json.dumps(line, ensure_ascii=True, default=str)


def _utc(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def formatter(name: LogFormat) -> logging.Formatter:
    """The formatter of ``--log-format``."""
    return JsonFormatter() if name == "json" else TextFormatter()
