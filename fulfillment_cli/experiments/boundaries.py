"""Durable boundaries of a process, and death exactly at one of them.

Used only in child processes of the experiments. Nothing in the product knows of it: the child
wraps the database driver and the HTTP transport before the product's ``main`` starts, so what is
killed is the very program that users run.

A boundary is an instant before or after a commit in ``tasks.sqlite``, or before, inside or after
an HTTP request. Inside means: every byte was sent, and no byte of the answer was read.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Reached = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a child does at its boundaries.

    Attributes:
        kill_at: SIGKILL itself at the boundary of this number, from 0; none: at no boundary.
        hold_at_stage: Once a checkpoint of this stage is committed, tell ``notify`` and stand
            still until somebody kills the process; none: never.
        log: File that gets the name of each boundary, a line each.
        notify: File that is made when the process stands still.
    """

    kill_at: int | None = None
    hold_at_stage: str | None = None
    log: Path | None = None
    notify: Path | None = None


def install(plan: Plan) -> None:
    """Wrap the driver and the transport of this process."""
    import httpx

    reached = _counter(plan)
    connect = sqlite3.connect
    factory = _connection(plan, reached)

    def counting_connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options | {"factory": factory})
        return connection

    sqlite3.connect = counting_connect  # type: ignore[assignment]
    _wrap_transport(httpx.AsyncHTTPTransport, reached)


def _counter(plan: Plan) -> Reached:
    count = -1

    def reached(name: str) -> None:
        nonlocal count
        count += 1
        if plan.log is not None:
            with plan.log.open("a") as file:
                file.write(name + "\n")
        if count == plan.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


def _connection(plan: Plan, reached: Reached) -> type[sqlite3.Connection]:
    class Counting(sqlite3.Connection):
        """Tells of every commit; knows what the transaction in hand was about."""

        _about = "read"

        def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
            if sql.startswith("INSERT INTO events"):
                self._about = str(parameters[2])
                self._stage = str(parameters[4])
            if sql != "COMMIT":
                if sql.startswith("BEGIN"):
                    self._about = "lease"
                return super().execute(sql, parameters)
            reached(f"before commit {self._about}")
            cursor = super().execute(sql, parameters)
            reached(f"after commit {self._about}")
            if plan.hold_at_stage is not None and f'"to":"{plan.hold_at_stage}"' in self._stage:
                _stand_still(plan)
            return cursor

        _stage = ""

        def executescript(self, script: str) -> sqlite3.Cursor:
            reached("before commit schema")
            cursor = super().executescript(script)
            reached("after commit schema")
            return cursor

    return Counting


def _stand_still(plan: Plan) -> None:
    if plan.notify is not None:
        plan.notify.write_text(str(os.getpid()))
    while True:
        signal.pause()


def _wrap_transport(transport: Any, reached: Reached) -> None:
    handle = transport.handle_async_request

    async def counting(self: Any, request: Any) -> Any:
        name = f"{request.method} {_shape(request.url.path)}"
        reached(f"before {name}")
        earlier = request.extensions.get("trace")

        async def trace(event: str, info: dict[str, Any]) -> None:
            if earlier is not None:
                await earlier(event, info)
            if event.endswith("send_request_body.complete"):
                reached(f"sent {name}")

        request.extensions = {**request.extensions, "trace": trace}
        response = await handle(self, request)
        await response.aread()
        reached(f"after {name}")
        return response

    transport.handle_async_request = counting


def _shape(path: str) -> str:
    """The path without what differs from run to run."""
    parts = path.strip("/").split("/")
    if parts[0] == "operations" and len(parts) == 2:
        return "operations/" + parts[1].rsplit("-", 1)[-1]
    return "/".join(parts)
