"""The business: claims, effects on stock, and permanent verdicts.

An operation is claimed under its key in a transaction of its own (state ``pending``). Later one
transaction reads the claim again, does the effect and writes the verdict, so that however often
the work is begun (a repeated request, a restart) its effect happens once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from .database import Database, now
from .protocol import Intent


class KeyConflict(Exception):
    """The key was claimed before for something else."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What the ledger knows of a key. ``code`` says why it was rejected."""

    intent: Intent
    state: str
    fingerprint: str
    code: str | None
    claimed_at: str
    settled_at: str | None

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> Operation:
        """Build it from a row of ``operations``."""
        intent = Intent(
            key=row["key"],
            kind=row["kind"],
            task_uid=row["task_uid"],
            sku=row["sku"],
            quantity=row["quantity"],
            address=row["address"],
            reservation_key=row["reservation_key"],
        )
        return cls(
            intent,
            row["state"],
            row["fingerprint"],
            row["code"],
            row["claimed_at"],
            row["settled_at"],
        )

    @property
    def pending(self) -> bool:
        """Whether it is claimed and has no verdict yet."""
        return self.state == "pending"

    @property
    def result(self) -> dict[str, Any] | None:
        """What a committed operation brought about; it follows from the intent."""
        if self.state != "committed":
            return None
        intent = self.intent
        if intent.kind == "reserve":
            return {
                "reservationKey": intent.key,
                "sku": intent.sku,
                "quantity": intent.quantity,
            }
        if intent.kind == "ship":
            return {
                "shipmentKey": intent.key,
                "reservationKey": intent.reservation_key,
                "address": intent.address,
            }
        return {"reservationKey": intent.reservation_key, "released": True}


class Ledger:
    """All reads and writes of the business. Safe to use from many threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.ledger_id: str = database.read("SELECT id FROM ledger")[0]["id"]

    def available(self, sku: str) -> int | None:
        """How many can be reserved; None for an unknown sku."""
        rows = self._database.read("SELECT quantity FROM inventory WHERE sku = ?", sku)
        return int(rows[0]["quantity"]) if rows else None

    def operation(self, key: str) -> Operation | None:
        """What is known of ``key``; None where it was never claimed."""
        rows = self._database.read("SELECT * FROM operations WHERE key = ?", key)
        return Operation.from_row(rows[0]) if rows else None

    def claim(self, intent: Intent) -> tuple[Operation, bool]:
        """Claim the key of ``intent``; the flag says whether this call was the one that did.

        Of two callers at once one wins and the other sees its row. Raises KeyConflict where the
        key stands for another intent.
        """
        with self._database.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO operations (key, kind, fingerprint, task_uid, sku, quantity, address,"
                " reservation_key, claimed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (key) DO NOTHING",
                (
                    intent.key,
                    intent.kind,
                    intent.fingerprint,
                    intent.task_uid,
                    intent.sku,
                    intent.quantity,
                    intent.address,
                    intent.reservation_key,
                    now(),
                ),
            )
            claimed = cursor.rowcount == 1
            operation = _get(connection, intent.key)
        if operation.fingerprint != intent.fingerprint:
            raise KeyConflict(intent.key)
        return operation, claimed

    def settle(self, key: str, refused_kinds: Collection[str] = ()) -> Operation:
        """Do the work that was claimed under ``key``, if it is still to be done.

        ``refused_kinds`` are rejected where they could have succeeded. Returns the operation with
        its verdict, which may be older than this call.
        """
        with self._database.transaction() as connection:
            operation = _get(connection, key)
            if operation.pending:
                intent = operation.intent
                code = _EFFECTS[intent.kind](connection, intent, intent.kind in refused_kinds)
                connection.execute(
                    "UPDATE operations SET state = ?, code = ?, settled_at = ?"
                    " WHERE key = ? AND state = 'pending'",
                    ("rejected" if code else "committed", code, now(), key),
                )
                operation = _get(connection, key)
        return operation

    def recover(self, refused_kinds: Collection[str] = ()) -> int:
        """Settle, in the order of their claims, all that a dead service left; returns how many."""
        rows = self._database.read(
            "SELECT key FROM operations WHERE state = 'pending' ORDER BY seq"
        )
        for row in rows:
            self.settle(row["key"], refused_kinds)
        return len(rows)

    def log_request(
        self,
        method: str,
        path: str,
        query: str,
        *,
        key: str | None = None,
        status: int | None = None,
    ) -> int:
        """Note a request, before anything is done about it; its ``seq``.

        ``status`` is given where it is refused, so that nothing more will follow.
        """
        seq = self._database.log(
            "INSERT INTO requests (at, method, path, query, key, status) VALUES (?, ?, ?, ?, ?, ?)",
            now(),
            method,
            path,
            query,
            key,
            status,
        )
        assert seq is not None  # an INSERT always has a rowid
        return seq

    def log_answer(self, seq: int, status: int) -> None:
        """Note what request ``seq`` is answered with: an HTTP status, or 0 for nothing at all."""
        self._database.log("UPDATE requests SET status = ? WHERE seq = ?", status, seq)

    def operations(self, after: str, limit: int) -> list[Operation]:
        """Up to ``limit`` operations in the order of their keys, from behind ``after``."""
        rows = self._database.read(
            "SELECT * FROM operations WHERE key > ? ORDER BY key LIMIT ?", after, limit
        )
        return [Operation.from_row(row) for row in rows]

    def reservations(self, after: str, limit: int) -> list[Mapping[str, Any]]:
        """The same for reservations, as they are shown to auditors."""
        return self._page(
            "SELECT key, sku, quantity, status, task_uid AS taskUid FROM reservations"
            " WHERE key > ? ORDER BY key LIMIT ?",
            after,
            limit,
        )

    def shipments(self, after: str, limit: int) -> list[Mapping[str, Any]]:
        """The same for shipments."""
        return self._page(
            "SELECT key, reservation_key AS reservationKey, address FROM shipments"
            " WHERE key > ? ORDER BY key LIMIT ?",
            after,
            limit,
        )

    def inventory(self, after: str, limit: int) -> list[Mapping[str, Any]]:
        """The same for the stock, in the order of the skus."""
        return self._page(
            "SELECT sku, quantity, initial_quantity AS initialQuantity FROM inventory"
            " WHERE sku > ? ORDER BY sku LIMIT ?",
            after,
            limit,
        )

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _page(self, sql: str, after: str, limit: int) -> list[Mapping[str, Any]]:
        return [dict(row) for row in self._database.read(sql, after, limit)]


def _get(connection: sqlite3.Connection, key: str) -> Operation:
    row = connection.execute("SELECT * FROM operations WHERE key = ?", (key,)).fetchone()
    return Operation.from_row(row)


# An effect checks everything before it writes anything, so a code (a rejection) means that
# nothing was written. `refused` is the fault switch for its kind.


def _reserve(connection: sqlite3.Connection, intent: Intent, refused: bool) -> str | None:
    taken = connection.execute(
        "UPDATE inventory SET quantity = quantity - ?1 WHERE sku = ?2 AND quantity >= ?1",
        (intent.quantity, intent.sku),
    )
    if taken.rowcount == 0:
        return "INSUFFICIENT_STOCK"
    connection.execute(
        "INSERT INTO reservations (key, sku, quantity, task_uid) VALUES (?, ?, ?, ?)",
        (intent.key, intent.sku, intent.quantity, intent.task_uid),
    )
    return None


def _ship(connection: sqlite3.Connection, intent: Intent, refused: bool) -> str | None:
    code = _why_not_active(connection, intent)
    if code or refused:
        return code or "ADDRESS_REJECTED"
    _end_reservation(connection, intent.reservation_key, "shipped")
    connection.execute(
        "INSERT INTO shipments (key, reservation_key, address) VALUES (?, ?, ?)",
        (intent.key, intent.reservation_key, intent.address),
    )
    return None


def _release(connection: sqlite3.Connection, intent: Intent, refused: bool) -> str | None:
    code = _why_not_active(connection, intent)
    if code or refused:
        return code or "RELEASE_REJECTED"
    _end_reservation(connection, intent.reservation_key, "released")
    connection.execute(
        "UPDATE inventory SET quantity = quantity + ? WHERE sku = ?",
        (intent.quantity, intent.sku),
    )
    return None


def _why_not_active(connection: sqlite3.Connection, intent: Intent) -> str | None:
    """The code that tells why this reservation can be neither shipped nor released, if so."""
    row = connection.execute(
        "SELECT * FROM reservations WHERE key = ?", (intent.reservation_key,)
    ).fetchone()
    asked = (intent.sku, intent.quantity, intent.task_uid)
    if row is None or (row["sku"], row["quantity"], row["task_uid"]) != asked:
        return "RESERVATION_MISMATCH"
    codes = {"active": None, "shipped": "ALREADY_SHIPPED", "released": "RESERVATION_INACTIVE"}
    return codes[row["status"]]


def _end_reservation(connection: sqlite3.Connection, key: str, status: str) -> None:
    connection.execute("UPDATE reservations SET status = ? WHERE key = ?", (status, key))


_EFFECTS: dict[str, Callable[[sqlite3.Connection, Intent, bool], str | None]] = {
    "reserve": _reserve,
    "ship": _ship,
    "release": _release,
}
