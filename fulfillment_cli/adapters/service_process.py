"""Starts the reference service as a child process that dies with us."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fulfillment_cli.domain.errors import FulfilError, LedgerNotReached, TaskBusy, UsageError

LOCK_TIMEOUT_SECONDS = 5
"""How long a killed service may take to let go of its database (contract, section 5)."""

START_TIMEOUT_SECONDS = 60.0
"""Longest start, which includes finishing what a dead service had claimed."""

# The service needs none of our keys, so it does not get them.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "TZ")


@dataclass(frozen=True, slots=True)
class RunningService:
    """A spawned service that is ready.

    Attributes:
        origin: Where it listens, on loopback.
        token: Its bearer token, made for this run.
        pid: Its process id.
    """

    origin: str
    token: str
    pid: int


@asynccontextmanager
async def running_service(
    database: Path,
    fixture: Path,
    *,
    existing: bool,
    verbose: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> AsyncIterator[RunningService]:
    """Run a service on ``database`` for as long as the context is open.

    Start it from a thread that lives as long as it should: Linux delivers the parent's death
    when the *thread* that forked ends.

    Args:
        database: Its ``service.sqlite``.
        fixture: The file it reads ``stock`` and ``faults`` from.
        existing: The database must be there already; a new ledger is never made instead.
        verbose: Let its log through to our stderr.
        meanwhile: Called once the process was started, while it becomes ready.

    Raises:
        TaskBusy: Another service holds the database.
        UsageError: ``LEDGER_MISMATCH`` where the database is missing; ``LEDGER_INVALID``.
        LedgerNotReached: It did not start.
    """
    token = secrets.token_urlsafe(32)
    command = [
        *(sys.executable, "-P", "-m", "reference_service"),
        *("--database", str(database), "--fixture", str(fixture)),
        *("--die-with-parent", str(os.getpid())),
        *("--lock-timeout", str(LOCK_TIMEOUT_SECONDS)),
        *(["--existing"] if existing else []),
    ]
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if verbose else asyncio.subprocess.DEVNULL,
        env=environment | {"FULFIL_SERVICE_TOKEN": token},
        # The terminal's Ctrl-C is for the runner, which ends the service in its own time.
        start_new_session=True,
    )
    try:
        meanwhile()
        ready = await _first_line(process)
        if "error" in ready:
            raise _start_error(ready["error"], database)
        yield RunningService(ready["origin"], token, process.pid)
    finally:
        await _stop(process)


async def _first_line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            line = await process.stdout.readline()
    except TimeoutError:
        raise LedgerNotReached("The ledger service did not become ready.") from None
    try:
        ready: dict[str, Any] = json.loads(line)
    except ValueError:
        raise LedgerNotReached("The ledger service did not start.") from None
    return ready


def _start_error(error: dict[str, str], database: Path) -> FulfilError:
    if error["code"] == "DATABASE_BUSY":
        return TaskBusy(f"Another process holds the ledger of {database.parent}.")
    if error["code"] == "DATABASE_MISSING":
        return UsageError(
            f"{database} is missing or empty; no new ledger is made for a task that has one.",
            code="LEDGER_MISMATCH",
        )
    if error["code"] == "FIXTURE_INVALID":
        return UsageError(
            error["message"], code="LEDGER_INVALID", hint="Restore fixture.json from a copy."
        )
    if error["code"] == "DATABASE_INVALID":
        return UsageError(error["message"], code="LEDGER_INVALID")
    return LedgerNotReached(f"The ledger service did not start: {error['message']}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Kill the service. Everything it answered is durable, and what it only claimed is settled at
    its next start, so a clean stop would buy nothing but a wait (crash-only).
    """
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
