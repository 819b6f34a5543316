"""What is left to do in ``tasks.sqlite``: the queries of a sweep and of its summary.

Each is a statement inside the reading of its caller
(:class:`~fulfillment_cli.adapters.checkpoint_reader.CheckpointReader`), like those of a lease.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

from fulfillment_cli.domain.stages import RECOVERABLE, Goal, Stage

_STAGES = ", ".join(f"'{stage}'" for stage in sorted(RECOVERABLE))

# The same rule as `flows.steps.reached`, so that a task that stands where it is to stop costs a
# sweep neither a lease nor a place under its limit.
_AT_GOAL = (
    f"(stage = '{Stage.PREPARED}' AND json_extract(document, '$.goal') = '{Goal.PREPARED}'"
    f" OR stage = '{Stage.RESERVED}' AND json_extract(document, '$.goal') <> '{Goal.COMPLETED}'"
    " AND json_type(document, '$.error') = 'null')"
)
_UNFINISHED = f"stage IN ({_STAGES}) AND dead = 0 AND NOT {_AT_GOAL}"
_DUE = "(next_attempt_at IS NULL OR next_attempt_at <= ?)"
_OPEN = "json_extract(document, '$.closed') = 0"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the tasks of one or more directories stand.

    Attributes:
        by_stage: How many tasks stand at each stage.
        due_by_stage: The unfinished tasks among them that may be continued now.
        waiting: Unfinished tasks whose next attempt is not due yet.
        next_attempt_at: When the first of those is due, UTC; none where nothing waits.
        oldest_unfinished: Last update of the unfinished task that was left alone longest, UTC.
        dead_letters: Tasks that sweeps gave up, without those that a person closed.
        needs_review: Tasks in ``needs-review``, without those that a person closed.
    """

    by_stage: dict[str, int] = field(default_factory=dict)
    due_by_stage: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    next_attempt_at: str | None = None
    oldest_unfinished: str | None = None
    dead_letters: int = 0
    needs_review: int = 0

    @property
    def due(self) -> int:
        """How many unfinished tasks may be continued now."""
        return sum(self.due_by_stage.values())

    def __add__(self, other: Standing) -> Standing:
        return Standing(
            by_stage=_sum(self.by_stage, other.by_stage),
            due_by_stage=_sum(self.due_by_stage, other.due_by_stage),
            waiting=self.waiting + other.waiting,
            next_attempt_at=_earlier(self.next_attempt_at, other.next_attempt_at),
            oldest_unfinished=_earlier(self.oldest_unfinished, other.oldest_unfinished),
            dead_letters=self.dead_letters + other.dead_letters,
            needs_review=self.needs_review + other.needs_review,
        )


def due(
    connection: sqlite3.Connection, now: str, limit: int, ledger_id: str | None
) -> list[tuple[str, str]]:
    """``(updatedAt, id)`` of what a sweep may continue now, the oldest update first.

    Args:
        now: UTC, ISO 8601.
        limit: The most to return.
        ledger_id: Only tasks of this ledger; none: of any.
    """
    ledger = "" if ledger_id is None else " AND json_extract(document, '$.ledgerId') = ?"
    return connection.execute(
        f"SELECT updated_at, id FROM tasks WHERE {_UNFINISHED} AND {_DUE}{ledger}"
        " ORDER BY updated_at, id LIMIT ?",
        (now, *([] if ledger_id is None else [ledger_id]), limit),
    ).fetchall()


def standing(connection: sqlite3.Connection, now: str) -> Standing:
    """Count the tasks by what is left of them."""
    stages = connection.execute("SELECT stage, count(*) FROM tasks GROUP BY stage").fetchall()
    ready = connection.execute(
        f"SELECT stage, count(*) FROM tasks WHERE {_UNFINISHED} AND {_DUE} GROUP BY stage", (now,)
    ).fetchall()
    later, first, oldest = connection.execute(
        f"SELECT count(*) FILTER (WHERE NOT {_DUE}), min(next_attempt_at), min(updated_at)"
        f" FROM tasks WHERE {_UNFINISHED}",
        (now,),
    ).fetchone()
    (dead,) = connection.execute(
        f"SELECT count(*) FROM tasks WHERE dead = 1 AND {_OPEN}"
    ).fetchone()
    (review,) = connection.execute(
        f"SELECT count(*) FROM tasks WHERE stage = ? AND {_OPEN}", (Stage.NEEDS_REVIEW,)
    ).fetchone()
    return Standing(dict(stages), dict(ready), later, first, oldest, dead, review)


def ids_for_review(connection: sqlite3.Connection) -> list[str]:
    """Tasks that wait for a person, the oldest update first."""
    rows = connection.execute(
        f"SELECT id FROM tasks WHERE stage = ? OR {_OPEN} AND (dead = 1 OR stage = ?)"
        " ORDER BY updated_at, id",
        (Stage.PAUSED, Stage.NEEDS_REVIEW),
    ).fetchall()
    return [row[0] for row in rows]


def id_resubmitted_from(connection: sqlite3.Connection, task_id: str) -> str | None:
    """The task that was made from ``task_id``, or none."""
    row = connection.execute(
        "SELECT id FROM tasks WHERE json_extract(document, '$.resubmittedFrom') = ?", (task_id,)
    ).fetchone()
    return None if row is None else str(row[0])


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in sorted(one.keys() | other.keys())}


def _earlier(one: str | None, other: str | None) -> str | None:
    return min((text for text in (one, other) if text is not None), default=None)
