"""What is left when everything is closed: both databases, opened again and read."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fulfillment_cli.adapters.checkpoint_reader import CheckpointReader
from fulfillment_cli.domain.checkpoint import Checkpoint, Event

Row = dict[str, Any]

LEDGER_TABLES = ("inventory", "operations", "reservations", "shipments", "requests")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts about one task, read after its end.

    Attributes:
        checkpoint: What ``tasks.sqlite`` holds.
        projection: What ``results/<id>.json`` holds; none where it is missing.
        events: The task's history.
        ledger: The service's tables by name.
    """

    checkpoint: Checkpoint
    projection: Row | None
    events: list[Event]
    ledger: dict[str, list[Row]]

    @property
    def requests(self) -> list[str]:
        """Method and path of every business request in order of arrival."""
        return [
            f"{row['method']} {row['path']}"
            for row in self.ledger["requests"]
            if row["path"] != "/healthz"
        ]

    def posts(self, kind: str) -> int:
        """How many ``POST /kind`` arrived."""
        return self.requests.count(f"POST /{kind}")

    @property
    def model_answers(self) -> list[Row]:
        """What each model request came to: code, seconds, token usage."""
        return [event.data for event in self.events if event.kind == "model-answer"]


def collect(directory: Path, task_id: str, service_database: Path | None = None) -> Evidence:
    """Open both databases anew and read them.

    Args:
        directory: The task directory.
        task_id: The task.
        service_database: The ledger's file; the directory's own by default.
    """
    with CheckpointReader(directory) as store:
        checkpoint = store.load(task_id)
        events = store.events(task_id=task_id, limit=100_000)
    path = directory / "results" / f"{task_id}.json"
    projection = json.loads(path.read_text()) if path.exists() else None
    ledger = read_ledger(service_database or directory / "service.sqlite")
    return Evidence(checkpoint, projection, events, ledger)


def read_ledger(path: Path) -> dict[str, list[Row]]:
    """The tables that outside tools may read, in the order of their rows."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        return {
            table: [
                dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
            ]
            for table in LEDGER_TABLES
        }


def operation_states(path: Path) -> list[str]:
    """State of every operation of a running service; none while it has no tables yet."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as reader:
            return [row[0] for row in reader.execute("SELECT state FROM operations ORDER BY seq")]
    except sqlite3.OperationalError:
        return []


def effects(ledger: dict[str, list[Row]], task_id: str) -> list[str]:
    """What is wrong with a task's effects, counted from the ledger's rows; empty if nothing.

    At most one reservation and one shipment, each reservation shipped or released at most once,
    and a stock that closes: opening stock = stock + active and shipped reservations.
    """
    problems = []
    reserved = [row for row in ledger["reservations"] if row["key"] == f"{task_id}-reserve"]
    shipped = [row for row in ledger["shipments"] if row["reservation_key"] == f"{task_id}-reserve"]
    if len(reserved) > 1 or len(shipped) > 1:
        problems.append(f"{len(reserved)} reservations, {len(shipped)} shipments")
    if shipped and reserved and reserved[0]["status"] != "shipped":
        problems.append(f"shipped, but the reservation is {reserved[0]['status']}")
    for stock in ledger["inventory"]:
        out = sum(
            row["quantity"]
            for row in ledger["reservations"]
            if row["sku"] == stock["sku"] and row["status"] != "released"
        )
        if stock["initial_quantity"] != stock["quantity"] + out or stock["quantity"] < 0:
            problems.append(
                f"{stock['sku']}: {stock['initial_quantity']} at first, {stock['quantity']} now, "
                f"{out} reserved or shipped"
            )
    return problems


def blind_posts(ledger: dict[str, list[Row]]) -> list[str]:
    """Keys that were posted again after the ledger had settled them.

    Whoever looks up first, as every runner must, would have learnt the verdict instead.
    """
    settled = {row["key"]: row["settled_at"] for row in ledger["operations"] if row["settled_at"]}
    return [
        row["key"]
        for row in ledger["requests"]
        if row["method"] == "POST" and row["key"] in settled and row["at"] > settled[row["key"]]
    ]
