"""Rows for whoever lists tasks: read off the indexed columns and a few facts, nothing else.

A statement inside the reading of its caller
(:class:`~fulfillment_cli.adapters.checkpoint_reader.CheckpointReader`). The documents are not
parsed here: of ten thousand tasks a list shows ten thousand lines, and needs ten facts of each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fulfillment_cli.adapters.holder import is_dead
from fulfillment_cli.domain.stages import Stage

_FACTS = (
    *("flow", "goal", "createdAt", "order.sku", "order.quantity", "attempts", "closed"),
    *("error.code", "compensationError.code", "uncertainty.code", "lastError.code"),
    *("deadLetter.code", "approvalExpiresAt"),
)
_COLUMNS = (
    "updated_at, id, stage, revision, next_attempt_at,"
    " lease_holder, lease_path, lease_inode, lease_expires_at, "
    + ", ".join(f"json_extract(document, '$.{fact}')" for fact in _FACTS)
)
FIRST = ("\U0010ffff", "")
"""Where the newest update stands: before it there is none."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lease, by what tells whether anybody is at work under it."""

    path: Path
    inode: int
    expires_at: float

    def is_live(self, now: float) -> bool:
        """Whether it has not expired, and its holder is not known to be dead."""
        return self.expires_at > now and not is_dead(self.path, self.inode)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a list shows of a task; the names are those of the checkpoint.

    Attributes:
        error_code: Of the compensation's error where it failed, else of the error.
        waits_code: Why it is uncertain, or why the last attempt did not go on.
        held: Its lease, or none.
    """

    updated_at: str
    id: str
    stage: Stage
    revision: int
    next_attempt_at: str | None
    flow: str
    goal: str
    created_at: str
    sku: str | None
    quantity: int | None
    attempts: int
    closed: bool
    error_code: str | None
    waits_code: str | None
    dead_letter_code: str | None
    approval_expires_at: str | None
    held: Held | None


def newest(
    connection: sqlite3.Connection,
    directory: Path,
    stages: Sequence[Stage],
    since: str,
    before: tuple[str, str],
    limit: int,
) -> list[Summary]:
    """A page of tasks, the newest update first.

    Args:
        directory: Where the holders' files are.
        stages: Only tasks that stand at one of these; empty: at any.
        since: Only tasks updated at or after this instant, UTC.
        before: Update and id of the last row of the page before; :data:`FIRST` for the first.
        limit: The most to return.

    Raises:
        ValueError: A row is not a task's.
    """
    # One index walk for each stage, merged by SQLite: `IN` alone would sort the whole.
    where = "updated_at >= ? AND (updated_at, id) < (?, ?)"
    order = "ORDER BY updated_at DESC, id DESC LIMIT ?"
    arguments: list[object] = []
    parts = []
    for stage in stages or (None,):
        by_stage = "" if stage is None else "stage = ? AND "
        arguments += [] if stage is None else [stage.value]
        arguments += [since, *before, limit]
        rows = f"SELECT {_COLUMNS} FROM tasks WHERE {by_stage}{where} {order}"
        parts.append(f"SELECT * FROM ({rows})")
    sql = " UNION ALL ".join(parts)
    if len(parts) > 1:
        sql += " ORDER BY 1 DESC, 2 DESC LIMIT ?"
        arguments.append(limit)
    return [_summary(directory, row) for row in connection.execute(sql, arguments)]


def held(connection: sqlite3.Connection, directory: Path, task_id: str) -> Held | None:
    """The task's lease; none where nobody has it."""
    row = connection.execute(
        "SELECT lease_path, lease_inode, lease_expires_at FROM tasks"
        " WHERE id = ? AND lease_holder IS NOT NULL",
        (task_id,),
    ).fetchone()
    return None if row is None else Held(directory / row[0], row[1], row[2])


def _summary(directory: Path, row: tuple[object, ...]) -> Summary:
    updated_at, task_id, stage, revision, next_attempt_at, *rest = row
    holder, path, inode, expires, *facts = rest
    flow, goal, created_at, sku, quantity, attempts, closed, *codes = facts
    error, compensation, uncertain, last, dead, approval_expires_at = codes
    if not (isinstance(updated_at, str) and isinstance(flow, str) and isinstance(revision, int)):
        raise ValueError(  # noqa: TRY004 - of a document, not of a caller
            f"The saved checkpoint of task {task_id} is not one."
        )
    lease = None
    if holder is not None and isinstance(inode, int) and isinstance(expires, float):
        lease = Held(directory / str(path), inode, expires)
    return Summary(
        updated_at=updated_at,
        id=str(task_id),
        stage=Stage(str(stage)),
        revision=revision,
        next_attempt_at=_text(next_attempt_at),
        flow=flow,
        goal=str(goal),
        created_at=str(created_at),
        sku=_text(sku),
        quantity=quantity if isinstance(quantity, int) else None,
        attempts=attempts if isinstance(attempts, int) else 0,
        closed=bool(closed),
        error_code=_text(compensation) or _text(error),
        waits_code=_text(uncertain) or _text(last),
        dead_letter_code=_text(dead),
        approval_expires_at=_text(approval_expires_at),
        held=lease,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
