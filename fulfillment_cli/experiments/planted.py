"""Differences between checkpoints and ledgers, planted behind the back of both."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fulfillment_cli.experiments.lab import TASK, Lab, random_order
from fulfillment_cli.flows.checkpoint import run_checkpoint
from fulfillment_cli.flows.compensation import run_compensation
from fulfillment_cli.recovery import audit
from fulfillment_cli.runtime import open_runtime


def execute(directory: Path, sql: str, *parameters: object) -> None:
    """Change the directory's ledger as nobody may."""
    database = directory / "service.sqlite"
    with closing(sqlite3.connect(database, timeout=5)) as connection, connection:
        guards = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for (name,) in guards.fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        if connection.execute(sql, parameters).rowcount != 1:
            raise ValueError(f"nothing was planted by {sql}")


def _no_operation(directory: Path) -> None:
    execute(directory, "DELETE FROM operations WHERE key = 'task-reserve'")


def _foreign_operation(directory: Path) -> None:
    execute(
        directory,
        "INSERT INTO operations (key, kind, fingerprint, task_uid, sku, quantity, address,"
        " reservation_key, state, claimed_at, settled_at) SELECT 'ghost-release', 'release',"
        " fingerprint, task_uid, sku, quantity, address, reservation_key, 'committed',"
        " claimed_at, settled_at FROM operations WHERE key = 'task-reserve'",
    )


def _fingerprint(directory: Path) -> None:
    execute(
        directory,
        "UPDATE operations SET fingerprint = ? WHERE key = 'task-reserve'",
        "0" * 64,
    )


def _stock(directory: Path) -> None:
    execute(directory, "UPDATE inventory SET quantity = quantity + 1")


def _result(directory: Path) -> None:
    path = directory / "results" / f"{TASK}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"revision": 1}))


def _nothing(directory: Path) -> None:
    """The ledger itself refused the release, so the reservation is active."""


PLANTED: dict[str, Callable[[Path], None]] = {
    audit.STAGE_WITHOUT_OPERATION: _no_operation,
    audit.UNKNOWN_OPERATION: _foreign_operation,
    audit.FINGERPRINT_MISMATCH: _fingerprint,
    audit.RESERVATION_LEFT: _nothing,
    audit.STOCK_MISMATCH: _stock,
    audit.RESULT_MISMATCH: _result,
}


async def plant(lab: Lab) -> set[tuple[str, str | None]]:
    """Make a directory for each kind of difference; ``(kind, directory)`` as they must be told."""
    expected: set[tuple[str, str | None]] = set()
    for kind, change in PLANTED.items():
        directory = lab.work / "planted" / kind.lower()
        order, text = random_order(random.Random(f"{lab.seed}/{kind}"))
        left = kind == audit.RESERVATION_LEFT
        async with open_runtime(
            directory,
            stock={order.sku: 100},
            faults={"rejectShipping": True, "rejectRelease": True} if left else {},
            settings=lab.settings,
        ) as runtime:
            flow = run_compensation if left else run_checkpoint
            await flow(runtime, TASK, request=text)
        change(directory)
        no_task = kind in (audit.UNKNOWN_OPERATION, audit.STOCK_MISMATCH)
        expected.add((kind, None if no_task else str(directory)))
    return expected
