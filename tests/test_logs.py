"""Log records as lines: for a person, and for a machine."""

from __future__ import annotations

import json
import logging
from typing import Any

from fulfillment_cli.cli.recovery_options import logging_to_stderr
from fulfillment_cli.logs import formatter


def record(message: str, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("fulfil.recovery").makeRecord(
        "fulfil.recovery", logging.WARNING, "file", 1, message, (), None, extra=extra or None
    )


def test_json_has_task_step_and_attempt_in_every_line() -> None:
    full = json.loads(
        formatter("json").format(record("m", task="t", step="queued", attempt=2, code="C"))
    )
    bare = json.loads(formatter("json").format(record("m")))

    assert (full["task"], full["step"], full["attempt"], full["code"]) == ("t", "queued", 2, "C")
    assert (bare["task"], bare["step"], bare["attempt"]) == (None, None, None)
    assert (full["level"], full["logger"], full["message"]) == ("warning", "fulfil.recovery", "m")


def test_one_record_is_one_line_whatever_is_in_it() -> None:
    hostile = "a\nb\u202e\x1b[31m"
    failed = record(hostile)
    failed.exc_info = (ValueError, ValueError(hostile), None)

    line = formatter("json").format(failed)

    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["message"] == hostile
    assert "ValueError" in json.loads(line)["exception"]
    assert "\u202e" not in formatter("text").format(record(hostile))


def test_recovery_logs_in_the_wanted_form(capsys: Any) -> None:
    with logging_to_stderr("info", "json"):
        logging.getLogger("fulfil.recovery").info("hello", extra={"task": "t"})
        logging.getLogger("fulfil.recovery").debug("not this")
    (line,) = capsys.readouterr().err.splitlines()

    assert json.loads(line)["task"] == "t"
