"""Reconcile: read checkpoints, results and a ledger's pages, and compare them. Writes nothing.

The tasks of a ledger are read before its pages and again after them. One whose revision is the
same both times had saved its intent before anything that the pages show of it, so nothing is
concluded from the moment in between; one that moved is at work, and is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fulfillment_cli.adapters.clock import Clock
from fulfillment_cli.adapters.ledger import Ledger
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.recovery.audit import (
    RESULT_MISMATCH,
    Books,
    Difference,
    Task,
    compare,
)
from fulfillment_cli.runtime import Runtime, open_runtime
from fulfillment_cli.settings import Settings


@dataclass
class Reconciliation:
    """What was compared and what differs.

    Attributes:
        directories, tasks: How many were compared.
        moving: Tasks that were at work meanwhile, about which nothing is concluded.
        finished: Operations that a dead ledger had claimed and that its start has finished.
        not_compared: Directories that could not be compared, and why.
    """

    differences: list[Difference] = field(default_factory=list)
    directories: int = 0
    tasks: int = 0
    moving: int = 0
    started: int = 0
    finished: int = 0
    not_compared: dict[Path, FulfilError] = field(default_factory=dict)


async def reconcile(
    directories: list[Path], settings: Settings, *, service_url: str | None = None
) -> Reconciliation:
    """Compare the tasks of these directories with their ledgers.

    Args:
        service_url: The ledger of all of them; none: each has its own, which is started.
    """
    result, clock = Reconciliation(), Clock()
    if service_url is not None:
        await _group(result, directories, settings, service_url, clock)
    else:
        for directory in directories:
            await _group(result, [directory], settings, None, clock)
    return result


async def _group(
    result: Reconciliation,
    directories: list[Path],
    settings: Settings,
    service_url: str | None,
    clock: Clock,
) -> None:
    """Compare directories that share one ledger with it."""
    before: dict[Path, dict[str, Checkpoint]] = {}
    for directory in directories:
        try:
            before[directory] = await _checkpoints(directory, settings)
        except FulfilError as error:
            result.not_compared[directory] = error
    first = next((directory for directory, tasks in before.items() if tasks), None)
    if first is None:
        return
    began = clock.timestamp()
    try:
        async with open_runtime(first, settings=settings, service_url=service_url) as runtime:
            ledger = await runtime.ledger(None)
            books = await _read(ledger)
            after = {path: await _checkpoints(path, settings) for path in before}
    except FulfilError as error:
        result.not_compared |= dict.fromkeys(before, error)
        return
    if service_url is None:
        result.started += 1
        result.finished += sum(
            (operation["settledAt"] or "") >= began > operation["claimedAt"]
            for operation in books.operations.values()
        )
    _compare(result, before, after, ledger.ledger_id, books)


def _compare(
    result: Reconciliation,
    before: dict[Path, dict[str, Checkpoint]],
    after: dict[Path, dict[str, Checkpoint]],
    ledger_id: str,
    books: Books,
) -> None:
    """Compare the tasks that stood still while the ledger was read."""
    still, moving = [], set()
    for directory, tasks in after.items():
        result.directories += 1
        for task_id, checkpoint in tasks.items():
            if checkpoint.ledger_id != ledger_id:
                continue
            earlier = before[directory].get(task_id)
            if earlier is None or earlier.revision != checkpoint.revision:
                moving.add(task_id)
            else:
                still.append(Task(directory, checkpoint))
        result.differences += _results(directory, tasks, moving)
    result.tasks += len(still)
    result.moving += len(moving)
    result.differences += compare(still, moving, books)


async def _checkpoints(directory: Path, settings: Settings) -> dict[str, Checkpoint]:
    async with open_runtime(directory, settings=settings) as runtime:
        return _all(runtime)


def _all(runtime: Runtime) -> dict[str, Checkpoint]:
    if not runtime.has_tasks:
        return {}
    return {checkpoint.id: checkpoint for checkpoint in runtime.store.checkpoints()}


async def _read(ledger: Ledger) -> Books:
    """All pages; the shipments first, so that what they follow from is there as well."""
    books = Books()
    for name in ("shipments", "reservations", "operations", "inventory"):
        rows = getattr(books, name)
        async for row in ledger.pages(name):
            rows[str(row["sku" if name == "inventory" else "key"])] = row
    return books


def _results(
    directory: Path, checkpoints: dict[str, Checkpoint], moving: set[str]
) -> Iterator[Difference]:
    """Projections that are not the checkpoint; one that is missing is made again when needed."""
    for path in sorted((directory / "results").glob("*.json")):
        checkpoint = checkpoints.get(path.stem)
        if path.stem in moving:
            continue
        try:
            shown = json.loads(path.read_bytes())
        except (OSError, ValueError):
            shown = None
        if checkpoint is not None and shown == checkpoint.to_json():
            continue
        saved = "no such task" if checkpoint is None else f"revision {checkpoint.revision}"
        revision = shown.get("revision") if isinstance(shown, dict) else None
        about = "not JSON" if shown is None else f"revision {revision}, other contents"
        yield Difference(
            RESULT_MISMATCH,
            f"results/{path.name}",
            saved,
            about,
            None if checkpoint is None else Task(directory, checkpoint),
            directory,
        )
