"""``tasks.sqlite``: create, load, advance; leases with fencing tokens; the event log.

No connection, cursor or row leaves this module. A task changes after its creation only by
:meth:`RecoveryStore.advance`, and every write names the fencing token of the lease it is made
under: time decides who may *try*, the token decides who *can*.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from fulfillment_cli.adapters import leases, task_lists, task_queue
from fulfillment_cli.adapters.clock import Clock
from fulfillment_cli.adapters.database import (
    create_database,
    open_database,
    transaction,
    translated,
)
from fulfillment_cli.adapters.holder import Holder, forget
from fulfillment_cli.adapters.leases import Lease
from fulfillment_cli.adapters.task_lists import Summary
from fulfillment_cli.adapters.task_queue import Standing
from fulfillment_cli.domain.checkpoint import Checkpoint, Event
from fulfillment_cli.domain.errors import (
    RevisionConflict,
    TaskNotFound,
    UsageError,
)
from fulfillment_cli.domain.order import canonical_json
from fulfillment_cli.domain.stages import Stage

FILE_NAME = "tasks.sqlite"


class RecoveryStore:
    """The tasks of one directory.

    Args:
        directory: The task directory; its database must be there, see :meth:`create_in`.
        clock: Source of time.
        database: Where its database is, if not in the directory: a copy to look at.

    Raises:
        TaskNotFound: The directory holds no task database.
        UsageError: ``DATABASE_INVALID``: not a task database of this version; left untouched.
    """

    def __init__(
        self, directory: Path, clock: Clock | None = None, *, database: Path | None = None
    ) -> None:
        self.directory = directory
        self.clock = clock or Clock()
        self._path = database or directory / FILE_NAME
        if not self._path.exists():
            raise TaskNotFound(f"{directory} holds no tasks.")
        self._connection = open_database(self._path)

    @classmethod
    def create_in(cls, directory: Path, clock: Clock | None = None) -> Self:
        """Open the directory's store; make an empty one where there is none."""
        create_database(directory / FILE_NAME)
        return cls(directory, clock)

    def close(self) -> None:
        """Close the database. Leases are not released by it."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

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

    def load(self, task_id: str) -> Checkpoint:
        """The newest checkpoint of a task.

        Raises:
            TaskNotFound: There is no such task.
            UsageError: ``DATABASE_INVALID``: the saved document is not a checkpoint.
        """
        with self._reading() as connection:
            row = connection.execute(
                "SELECT document FROM tasks WHERE id = ?", (task_id,)
            ).fetchone()
        if row is None:
            raise TaskNotFound(f"There is no task {task_id} in {self.directory}.")
        return _parse(task_id, row[0])

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
            checkpoint = _parse(task_id, document)
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

    # -- lists -----------------------------------------------------------------------------

    def task_ids(self) -> list[str]:
        """Every task of the directory, by id."""
        with self._reading() as connection:
            return [row[0] for row in connection.execute("SELECT id FROM tasks ORDER BY id")]

    def recoverable_ids(self, limit: int, ledger_id: str | None = None) -> list[tuple[str, str]]:
        """What a sweep may continue now, see :func:`task_queue.due`."""
        with self._reading() as connection:
            return task_queue.due(connection, self.clock.timestamp(), limit, ledger_id)

    def standing(self) -> Standing:
        """How many tasks stand where, and what is left of them."""
        with self._reading() as connection:
            return task_queue.standing(connection, self.clock.timestamp())

    def ids_for_review(self) -> list[str]:
        """Tasks that wait for a person, the oldest update first."""
        with self._reading() as connection:
            return task_queue.ids_for_review(connection)

    def id_resubmitted_from(self, task_id: str) -> str | None:
        """The task that was made from ``task_id``, or none."""
        with self._reading() as connection:
            return task_queue.id_resubmitted_from(connection, task_id)

    def newest(
        self,
        stages: Sequence[Stage] = (),
        since: str = "",
        before: tuple[str, str] = task_lists.FIRST,
        limit: int = 500,
    ) -> list[Summary]:
        """A page of a list of tasks, see :func:`task_lists.newest`.

        Raises:
            UsageError: ``DATABASE_INVALID``: a row is not a task's.
        """
        try:
            with self._reading() as connection:
                return task_lists.newest(connection, self.directory, stages, since, before, limit)
        except ValueError as error:
            raise UsageError(str(error), code="DATABASE_INVALID") from None

    def is_held(self, task_id: str) -> bool:
        """Whether a process is at work on the task, as far as can be seen from here."""
        with self._reading() as connection:
            held = task_lists.held(connection, self.directory, task_id)
        return held is not None and held.is_live(self.clock.now())

    def checkpoints(self, *, newest_first: bool = False) -> Iterator[Checkpoint]:
        """Every task's newest checkpoint, in pages, by last update.

        Raises:
            UsageError: ``DATABASE_INVALID``: a saved document is not a checkpoint.
        """
        compare, direction = ("<", "DESC") if newest_first else (">", "ASC")
        last = ("\U0010ffff", "") if newest_first else ("", "")
        while True:
            with self._reading() as connection:
                rows = connection.execute(
                    "SELECT updated_at, id, document FROM tasks"
                    f" WHERE (updated_at, id) {compare} (?, ?)"
                    f" ORDER BY updated_at {direction}, id {direction} LIMIT 500",
                    last,
                ).fetchall()
            if not rows:
                return
            for updated_at, task_id, document in rows:
                yield _parse(task_id, document)
                last = (updated_at, task_id)

    def events(self, after: int = 0, task_id: str | None = None, limit: int = 1000) -> list[Event]:
        """The log after a sequence number, in order, at most ``limit`` of it."""
        columns = "SELECT seq, task_id, revision, kind, at, data FROM events WHERE seq > ?"
        with self._reading() as connection:
            if task_id is None:
                rows = connection.execute(f"{columns} ORDER BY seq LIMIT ?", (after, limit))
            else:
                rows = connection.execute(
                    f"{columns} AND task_id = ? ORDER BY seq LIMIT ?", (after, task_id, limit)
                )
            return [
                Event(
                    seq=seq,
                    task_id=task,
                    revision=revision,
                    kind=kind,
                    at=at,
                    data=json.loads(data),
                )
                for seq, task, revision, kind, at, data in rows
            ]

    # -- inside ----------------------------------------------------------------------------

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return transaction(self._connection, self._path)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with translated(self._path):
            yield self._connection

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


def _parse(task_id: str, document: str) -> Checkpoint:
    try:
        return Checkpoint.model_validate_json(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"The saved checkpoint of task {task_id} is not one: {where}: {first['msg']}.",
            code="DATABASE_INVALID",
        ) from None
