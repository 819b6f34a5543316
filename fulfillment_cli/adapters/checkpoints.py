"""``tasks.sqlite``: create, load, advance; leases with fencing tokens; the event log.

No connection, cursor or row leaves this module and the one that reads. A task changes after its
creation only by :meth:`RecoveryStore.advance`, and every write names the fencing token of the lease
it is made under: time decides who may *try*, the token decides who *can*.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from fulfillment_cli.adapters import leases
from fulfillment_cli.adapters.checkpoint_reader import FILE_NAME, CheckpointReader, parse
from fulfillment_cli.adapters.clock import Clock
from fulfillment_cli.adapters.database import (
    create_database,
    transaction,
)
from fulfillment_cli.adapters.holder import Holder, forget
from fulfillment_cli.adapters.leases import Lease
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import (
    RevisionConflict,
    UsageError,
)
from fulfillment_cli.domain.order import canonical_json
from fulfillment_cli.domain.stages import Stage


class RecoveryStore(CheckpointReader):
    """The tasks of one directory; the only way to write them."""

    @classmethod
    def create_in(cls, directory: Path, clock: Clock | None = None) -> Self:
        """Open the directory's store; make an empty one where there is none."""
        create_database(directory / FILE_NAME)
        return cls(directory, clock)

    # -- tasks -----------------------------------------------------------------------------

    def create(self, first: Checkpoint, data: Mapping[str, Any] | None = None) -> Checkpoint:
        """Insert a new task.

        Raises:
            UsageError: ``TASK_EXISTS``: there is one of this id; it was left as it is.
        """
        with self._transaction() as connection:
            try:
                connection.execute(
                    "INSERT INTO tasks (id, document) VALUES (?, ?)",
                    (first.id, _document(first)),
                )
            except sqlite3.IntegrityError as error:
                if error.sqlite_errorname != "SQLITE_CONSTRAINT_PRIMARYKEY":
                    raise
                raise UsageError(
                    f"There is a task {first.id} already; it was left as it is.",
                    code="TASK_EXISTS",
                ) from None
            self._append(connection, first, "created", data or {})
        return first

    def advance(
        self,
        checkpoint: Checkpoint,
        lease: Lease,
        stage: Stage,
        event: str,
        data: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> Checkpoint:
        """Save the next revision of a task and its event in one transaction.

        Args:
            checkpoint: What was read; its revision must still be the newest.
            lease: The right to write it.
            stage: Where the task stands from now on.
            event: The kind of event this is, and its ``data``.
            facts: The other fields of the checkpoint that change.

        Raises:
            LeaseLost: Somebody has a greater fencing token.
            RevisionConflict: The task moved since ``checkpoint`` was read.
            UsageError, PlanMismatch: See :meth:`Checkpoint.follow`; nothing was saved.
        """
        following = checkpoint.follow(stage, self.clock.timestamp(), **facts)
        with self._transaction() as connection:
            updated = connection.execute(
                "UPDATE tasks SET document = ? WHERE id = ? AND revision = ?"
                " AND fencing_token = ? AND lease_holder = ?",
                (
                    _document(following),
                    checkpoint.id,
                    checkpoint.revision,
                    lease.token,
                    lease.holder_id,
                ),
            )
            if updated.rowcount != 1:
                leases.check(connection, lease)
                raise RevisionConflict(
                    f"Task {checkpoint.id} is no longer at revision {checkpoint.revision}."
                )
            self._append(
                connection,
                following,
                event,
                {"from": checkpoint.stage, "to": stage} | dict(data or {}),
            )
        return following

    def record(
        self, checkpoint: Checkpoint, lease: Lease, event: str, data: Mapping[str, Any]
    ) -> None:
        """Append an event that changes nothing of the task, such as one model request.

        Raises:
            LeaseLost: Somebody has a greater fencing token.
        """
        with self._transaction() as connection:
            leases.check(connection, lease)
            self._append(connection, checkpoint, event, data)

    # -- leases ----------------------------------------------------------------------------

    def acquire(
        self, task_id: str, holder: Holder, data: Mapping[str, Any] | None = None
    ) -> tuple[Lease, Checkpoint]:
        """Take the task's lease, at once where its holder is dead, else when it has expired.

        Args:
            task_id: The task.
            holder: Who we are; its file lock must be held.
            data: Facts for the ``entered`` event, such as the command and the pid.

        Returns:
            The lease, and the checkpoint as it stood in the same transaction.

        Raises:
            TaskBusy: A living process holds it.
            TaskNotFound: There is no such task.
        """
        with self._transaction() as connection:
            taken = leases.take(connection, self.directory, task_id, holder, self.clock.now())
            (document,) = connection.execute(
                "SELECT document FROM tasks WHERE id = ?", (task_id,)
            ).fetchone()
            checkpoint = parse(task_id, document)
            facts = {"token": taken.lease.token, "takenOver": taken.taken_over}
            self._append(connection, checkpoint, "entered", facts | dict(data or {}))
        if taken.orphan is not None:
            forget(taken.orphan)
        return taken.lease, checkpoint

    def renew(self, lease: Lease) -> None:
        """Hold the lease for another :data:`LEASE_SECONDS`.

        Raises:
            LeaseLost: Somebody has a greater fencing token.
        """
        with self._transaction() as connection:
            leases.extend(connection, lease, self.clock.now())

    def release(self, lease: Lease, checkpoint: Checkpoint) -> None:
        """Give the lease back. Does nothing where somebody else has it by now."""
        with self._transaction() as connection:
            if leases.give_back(connection, lease):
                self._append(connection, checkpoint, "left", {"token": lease.token})

    # -- inside ----------------------------------------------------------------------------

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return transaction(self._connection, self._path)

    def _append(
        self,
        connection: sqlite3.Connection,
        checkpoint: Checkpoint,
        kind: str,
        data: Mapping[str, Any],
    ) -> None:
        connection.execute(
            "INSERT INTO events (task_id, revision, kind, at, data) VALUES (?, ?, ?, ?, ?)",
            (
                checkpoint.id,
                checkpoint.revision,
                kind,
                self.clock.timestamp(),
                canonical_json(dict(data)),
            ),
        )


def _document(checkpoint: Checkpoint) -> str:
    """The checkpoint as it is saved: in the order of its fields, so that it reads back the same."""
    return json.dumps(checkpoint.to_json(), ensure_ascii=False, separators=(",", ":"))
