"""The reference service in a child process that can die at a boundary of its own.

As with the runner, the service knows nothing of it: its database driver and the method that
writes an answer are wrapped in the child before its ``main`` starts.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any


def serve(arguments: list[str], token: str, stdout: str, kill_at: int | None, log: str) -> None:
    """Run the service's ``main``; SIGKILL it at its boundary of number ``kill_at``, from 0.

    Boundaries, for each operation: before and after the commit of its claim, before and after
    the commit of its effect, and before its answer.
    """
    os.environ["FULFIL_SERVICE_TOKEN"] = token
    opened = os.open(stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(opened, 1)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - lives as long as the process
    count = -1

    def reached(name: str) -> None:
        nonlocal count
        count += 1
        with Path(log).open("a") as file:
            file.write(name + "\n")
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    _wrap(reached)
    from reference_service.command import main

    sys.exit(main(arguments))


def _wrap(reached: Any) -> None:
    from reference_service.handler import Handler

    connect = sqlite3.connect

    class Counting(sqlite3.Connection):
        """Tells of the commits of an operation; those of a new database are not among them."""

        _about: str | None = None

        def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
            if sql.startswith("INSERT INTO operations"):
                self._about = "claim"
            elif sql.startswith("UPDATE operations"):
                self._about = "effect"
            if sql != "COMMIT" or self._about is None:
                return super().execute(sql, parameters)
            about, self._about = self._about, None
            reached(f"before commit {about}")
            cursor = super().execute(sql, parameters)
            reached(f"after commit {about}")
            return cursor

    def counting_connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options | {"factory": Counting})
        return connection

    sqlite3.connect = counting_connect  # type: ignore[assignment]
    send = Handler._send

    def counting_send(self: Any, answer: Any) -> None:
        if self.command == "POST":
            reached("before answer")
        send(self, answer)

    Handler._send = counting_send  # type: ignore[method-assign]
