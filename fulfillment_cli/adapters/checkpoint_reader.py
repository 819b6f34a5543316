"""``tasks.sqlite``, read only: checkpoints, lists of them, the event log.

No connection, cursor or row leaves this module and :mod:`~fulfillment_cli.adapters.checkpoints`,
which writes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from fulfillment_cli.adapters import task_lists, task_queue
from fulfillment_cli.adapters.clock import Clock
from fulfillment_cli.adapters.database import open_database, translated
from fulfillment_cli.adapters.task_lists import Summary
from fulfillment_cli.adapters.task_queue import Standing
from fulfillment_cli.domain.checkpoint import Checkpoint, Event
from fulfillment_cli.domain.errors import TaskNotFound, UsageError
from fulfillment_cli.domain.stages import Stage

FILE_NAME = "tasks.sqlite"


class CheckpointReader:
    """The tasks of one directory, to look at.

    Args:
        directory: The task directory; its database must be there.
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
        return parse(task_id, row[0])

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
                yield parse(task_id, document)
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

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with translated(self._path):
            yield self._connection


def parse(task_id: str, document: str) -> Checkpoint:
    """A saved document as the checkpoint it was.

    Raises:
        UsageError: ``DATABASE_INVALID``.
    """
    try:
        return Checkpoint.model_validate_json(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"The saved checkpoint of task {task_id} is not one: {where}: {first['msg']}.",
            code="DATABASE_INVALID",
        ) from None
