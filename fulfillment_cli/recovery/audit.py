"""Comparing checkpoints with a ledger: what differs, and what is known on both sides. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import PlanMismatch
from fulfillment_cli.domain.operations import Kind, operation_key
from fulfillment_cli.domain.order import JsonObject
from fulfillment_cli.domain.stages import FINAL, Stage

STAGE_WITHOUT_OPERATION = "STAGE_WITHOUT_OPERATION"
UNKNOWN_OPERATION = "UNKNOWN_OPERATION"
FINGERPRINT_MISMATCH = "FINGERPRINT_MISMATCH"
RESERVATION_LEFT = "RESERVATION_LEFT"
STOCK_MISMATCH = "STOCK_MISMATCH"
RESULT_MISMATCH = "RESULT_MISMATCH"
PLAN_MISMATCH = "PLAN_MISMATCH"


@dataclass(frozen=True, slots=True)
class Task:
    """A checkpoint and the directory that it is saved in."""

    directory: Path
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    Attributes:
        kind: Its stable code.
        key: The operation, reservation, sku or file that it is about.
        saved: What the checkpoint has of it.
        found: What the ledger, or the file, has.
        task: Whose it is; none where no task is known.
        directory: Where it is; none where only the ledger has it.
    """

    kind: str
    key: str
    saved: str
    found: str
    task: Task | None = None
    directory: Path | None = None

    def to_json(self) -> JsonObject:
        """The difference as the report shows it, without its command."""
        return {
            "kind": self.kind,
            "directory": None if self.directory is None else str(self.directory),
            "task": None if self.task is None else self.task.checkpoint.id,
            "key": self.key,
            "saved": self.saved,
            "found": self.found,
        }


@dataclass
class Books:
    """What a ledger has on its pages, by key or sku."""

    operations: dict[str, JsonObject] = field(default_factory=dict)
    reservations: dict[str, JsonObject] = field(default_factory=dict)
    shipments: dict[str, JsonObject] = field(default_factory=dict)
    inventory: dict[str, JsonObject] = field(default_factory=dict)


def compare(tasks: Iterable[Task], moving: set[str], books: Books) -> list[Difference]:
    """Every difference between tasks and their ledger.

    Args:
        tasks: All known tasks of this ledger that stand still.
        moving: Ids of those that are at work right now: nothing is concluded about them.
    """
    still = list(tasks)
    found: list[Difference] = []
    for task in still:
        found += _of_task(task, books)
    found += _unknown(still, moving, books)
    found += _stock(books)
    return found


def confirmed(checkpoint: Checkpoint) -> dict[str, Kind]:
    """Keys of the operations that a checkpoint says are committed."""
    keys: dict[str, Kind] = {}
    if checkpoint.reservation is not None:
        keys[operation_key(checkpoint.id, Kind.RESERVE)] = Kind.RESERVE
    if checkpoint.shipment is not None:
        keys[operation_key(checkpoint.id, Kind.SHIP)] = Kind.SHIP
    if checkpoint.stage is Stage.COMPENSATED:
        release = operation_key(checkpoint.id, Kind.RELEASE, checkpoint.release_attempt)
        keys[release] = Kind.RELEASE
    return keys


def _of_task(task: Task, books: Books) -> Iterator[Difference]:
    checkpoint, directory = task.checkpoint, task.directory
    for key in confirmed(checkpoint):
        operation = books.operations.get(key)
        state = "absent" if operation is None else str(operation["state"])
        if state == "committed" and not _has_effect(checkpoint, key, books):
            state = "committed, without its reservation or shipment"
        if state != "committed":
            yield Difference(
                STAGE_WITHOUT_OPERATION, key, checkpoint.stage.value, state, task, directory
            )
    yield from _fingerprints(task, books)
    reservation = books.reservations.get(operation_key(checkpoint.id, Kind.RESERVE))
    if reservation is not None and reservation["status"] == "active" and _ended(checkpoint):
        mine = reservation["taskUid"] == checkpoint.task_uid
        if mine:
            yield Difference(
                RESERVATION_LEFT,
                str(reservation["key"]),
                checkpoint.stage.value,
                f"active, {reservation['quantity']} of {reservation['sku']}",
                task,
                directory,
            )


def _has_effect(checkpoint: Checkpoint, key: str, books: Books) -> bool:
    if key == operation_key(checkpoint.id, Kind.SHIP):
        return key in books.shipments
    return operation_key(checkpoint.id, Kind.RESERVE) in books.reservations


def _ended(checkpoint: Checkpoint) -> bool:
    """Whether nothing more is to come of it; a person who closed a task has seen to the rest."""
    return checkpoint.stage in FINAL and not checkpoint.closed


def _fingerprints(task: Task, books: Books) -> Iterator[Difference]:
    """Operations under the task's keys that are about something else than its plan."""
    checkpoint = task.checkpoint
    if checkpoint.order is None:
        return
    try:
        for kind in Kind:
            operation = checkpoint.operation(kind)
            known = books.operations.get(operation.key)
            if known is not None and known["fingerprint"] != operation.fingerprint:
                yield Difference(
                    FINGERPRINT_MISMATCH,
                    operation.key,
                    operation.fingerprint,
                    str(known["fingerprint"]),
                    task,
                    task.directory,
                )
    except PlanMismatch as error:
        yield Difference(PLAN_MISMATCH, checkpoint.id, error.message, "-", task, task.directory)


def _unknown(tasks: list[Task], moving: set[str], books: Books) -> Iterator[Difference]:
    """Committed operations that no checkpoint knows."""
    known: dict[str, Task] = {}
    for task in tasks:
        checkpoint = task.checkpoint
        keys = list(confirmed(checkpoint))
        if checkpoint.intent is not None:
            keys.append(checkpoint.intent.key)  # the task is about to find out by itself
        if checkpoint.uncertainty is not None:
            keys.append(checkpoint.uncertainty.key)
        known |= dict.fromkeys(keys, task)
    owners = {operation_key(task.checkpoint.id, kind): task for task in tasks for kind in Kind}
    for key, operation in books.operations.items():
        if operation["state"] != "committed" or key in known:
            continue
        if any(key.startswith(f"{task_id}-") for task_id in moving):
            continue
        owner = owners.get(key)
        saved = "no task" if owner is None else f"{owner.checkpoint.stage}, without it"
        yield Difference(
            UNKNOWN_OPERATION,
            key,
            saved,
            f"committed at {operation['settledAt']}",
            owner,
            None if owner is None else owner.directory,
        )


def _stock(books: Books) -> Iterator[Difference]:
    """Opening stock = stock + what is reserved or shipped, for each sku."""
    out: dict[str, int] = {}
    for reservation in books.reservations.values():
        if reservation["status"] != "released":
            sku = str(reservation["sku"])
            out[sku] = out.get(sku, 0) + int(reservation["quantity"])
    for sku, stock in books.inventory.items():
        gone = out.get(sku, 0)
        if stock["initialQuantity"] != stock["quantity"] + gone or stock["quantity"] < 0:
            yield Difference(
                STOCK_MISMATCH,
                sku,
                f"{stock['initialQuantity']} at first",
                f"{stock['quantity']} in stock and {gone} reserved or shipped",
            )
