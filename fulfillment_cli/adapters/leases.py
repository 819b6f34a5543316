"""Leases: who may write a task, until somebody else has a greater fencing token.

The statements of a lease, each inside the transaction of its caller
(:class:`~fulfillment_cli.adapters.checkpoints.RecoveryStore`). Time decides who may *try* to
take a task; the token decides who *can* write it, so that a wrong clock hastens or delays a
takeover and never lets an old holder write.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from fulfillment_cli.adapters.holder import Holder, is_dead
from fulfillment_cli.domain.errors import LeaseLost, TaskBusy, TaskNotFound

LEASE_SECONDS = 30.0
"""How long a lease holds without renewal (contract, section 4)."""

RENEW_SECONDS = 10.0
"""How often its holder renews it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write one task, until somebody else has a greater token.

    Attributes:
        task_id: The task.
        holder_id: Who took it, see :class:`~fulfillment_cli.adapters.holder.Holder`.
        token: Fencing token: grows by one with every lease of the task.
    """

    task_id: str
    holder_id: str
    token: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What :func:`take` did.

    Attributes:
        lease: The new lease.
        taken_over: Whether somebody had not given it back.
        orphan: Lock file of a dead holder that no lease names any more, or none.
    """

    lease: Lease
    taken_over: bool
    orphan: Path | None


def take(
    connection: sqlite3.Connection, directory: Path, task_id: str, holder: Holder, now: float
) -> Taken:
    """Take a task's lease: at once where its holder is dead, else when it has expired.

    Raises:
        TaskBusy: A living process holds it.
        TaskNotFound: There is no such task.
    """
    row = connection.execute(
        "SELECT fencing_token, lease_holder, lease_path, lease_inode, lease_expires_at"
        " FROM tasks WHERE id = ?",
        (task_id,),
    ).fetchone()
    if row is None:
        raise TaskNotFound(f"There is no task {task_id} in {directory}.")
    token, previous, path, inode, expires = row
    dead = previous is not None and is_dead(directory / path, inode)
    if previous is not None and not dead and expires > now:
        raise TaskBusy(f"Another process is working on task {task_id}.")
    connection.execute(
        "UPDATE tasks SET fencing_token = ?, lease_holder = ?, lease_path = ?,"
        " lease_inode = ?, lease_expires_at = ? WHERE id = ?",
        (
            token + 1,
            holder.id,
            str(holder.path.relative_to(directory)),
            holder.inode,
            now + LEASE_SECONDS,
            task_id,
        ),
    )
    orphaned = dead and not _holds_any(connection, previous)
    return Taken(
        Lease(task_id, holder.id, token + 1),
        taken_over=previous is not None,
        orphan=directory / path if orphaned else None,
    )


def check(connection: sqlite3.Connection, lease: Lease) -> None:
    """Check that nobody has a greater token.

    Raises:
        LeaseLost: Somebody has, or the lease was given back.
    """
    held = connection.execute(
        "SELECT 1 FROM tasks WHERE id = ? AND fencing_token = ? AND lease_holder = ?",
        (lease.task_id, lease.token, lease.holder_id),
    ).fetchone()
    if held is None:
        raise LeaseLost(
            f"Another process took task {lease.task_id} over; this one wrote nothing more."
        )


def extend(connection: sqlite3.Connection, lease: Lease, now: float) -> None:
    """Hold the lease for another :data:`LEASE_SECONDS`; raises :class:`LeaseLost`."""
    check(connection, lease)
    connection.execute(
        "UPDATE tasks SET lease_expires_at = ? WHERE id = ?", (now + LEASE_SECONDS, lease.task_id)
    )


def give_back(connection: sqlite3.Connection, lease: Lease) -> bool:
    """Release the lease; whether it was still held. Only its holder releases it."""
    released = connection.execute(
        "UPDATE tasks SET lease_holder = NULL, lease_path = NULL, lease_inode = NULL,"
        " lease_expires_at = NULL WHERE id = ? AND fencing_token = ? AND lease_holder = ?",
        (lease.task_id, lease.token, lease.holder_id),
    )
    return released.rowcount == 1


def _holds_any(connection: sqlite3.Connection, holder_id: str) -> bool:
    named = connection.execute(
        "SELECT 1 FROM tasks WHERE lease_holder = ? LIMIT 1", (holder_id,)
    ).fetchone()
    return named is not None
