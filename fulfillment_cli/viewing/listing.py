"""The tasks below a root, the newest update first, in a stream."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fulfillment_cli.adapters.checkpoint_reader import FILE_NAME
from fulfillment_cli.adapters.clock import Clock, from_timestamp, to_timestamp
from fulfillment_cli.adapters.looking import open_to_look
from fulfillment_cli.adapters.task_lists import FIRST, Summary
from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.domain.order import JsonObject
from fulfillment_cli.domain.stages import FINAL, RECOVERABLE, Goal, Stage
from fulfillment_cli.recovery.directories import find_directories
from fulfillment_cli.viewing.spans import brief

PAGE = 500

Warn = Callable[[Path, FulfilError], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tasks to list.

    Attributes:
        stages: Only at these stages; empty: at any.
        since: Only what changed in the last so many seconds, or none.
        limit: The most to list, or none.
    """

    stages: tuple[Stage, ...] = ()
    since: float | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One task of a list.

    Attributes:
        age: Seconds since it last changed.
        running: Whether a process is at work on it.
    """

    directory: Path
    task: Summary
    age: float
    running: bool

    @property
    def waits_for(self) -> str | None:
        """What has to happen before it goes on, in a few words; none where nothing is left."""
        task = self.task
        if self.running:
            return "the process that runs it"
        if task.dead_letter_code is not None and not task.closed:
            return f"a person: {task.dead_letter_code}"
        if task.stage in FINAL:
            waits = task.stage is Stage.NEEDS_REVIEW and not task.closed
            return f"a person: {task.error_code}" if waits else None
        if task.stage is Stage.PAUSED:
            return "a decision"
        if task.stage is Stage.TIMED_OUT or _stands_at_goal(task):
            return "an explicit checkpoint"
        if task.next_attempt_at is not None:
            wait = from_timestamp(task.next_attempt_at) - (from_timestamp(task.updated_at))
            return f"its next attempt, in {brief(wait - self.age)}" if wait > self.age else "a run"
        return "a look-up" if task.stage is Stage.UNCERTAIN else "a run"

    def to_json(self) -> JsonObject:
        """The row for machines."""
        task = self.task
        return {
            "directory": str(self.directory),
            "id": task.id,
            "stage": task.stage.value,
            "flow": task.flow,
            "goal": task.goal,
            "revision": task.revision,
            "sku": task.sku,
            "quantity": task.quantity,
            "attempts": task.attempts,
            "createdAt": task.created_at,
            "updatedAt": task.updated_at,
            "ageSeconds": round(self.age, 3),
            "running": self.running,
            "waitsFor": self.waits_for,
            "error": task.error_code,
            "reason": task.dead_letter_code or task.waits_code,
            "nextAttemptAt": task.next_attempt_at,
            "approvalExpiresAt": task.approval_expires_at,
            "closed": task.closed,
        }


def list_tasks(root: Path, wanted: Wanted, warn: Warn, clock: Clock | None = None) -> Iterator[Row]:
    """Every wanted task at ``root`` or below, the newest update first.

    Args:
        warn: Told of a directory that cannot be read; the list goes on without it.

    Raises:
        TaskNotFound: ``DIRECTORY_NOT_FOUND``.
    """
    clock = clock or Clock()
    now = clock.now()
    since = "" if wanted.since is None else to_timestamp(now - wanted.since)
    # A list of more directories than a process may open files: each is open only for a page.
    streams = [
        _of_directory(directory, wanted, since, warn, clock)
        for directory in find_directories(root)
        if (directory / FILE_NAME).exists()
    ]
    merged = heapq.merge(*streams, key=lambda found: found[0], reverse=True)
    for _, directory, task in islice(merged, wanted.limit):
        running = task.held is not None and task.held.is_live(now)
        age = max(0.0, now - from_timestamp(task.updated_at))
        yield Row(directory, task, age, running)


def _of_directory(
    directory: Path, wanted: Wanted, since: str, warn: Warn, clock: Clock
) -> Iterator[tuple[tuple[str, str, str], Path, Summary]]:
    last = FIRST
    size = min(PAGE, wanted.limit or PAGE)
    while True:
        try:
            with open_to_look(directory, clock) as store:
                page = store.newest(wanted.stages, since, last, size)
        except FulfilError as error:
            warn(directory, error)
            return
        for task in page:
            yield (task.updated_at, str(directory), task.id), directory, task
        if len(page) < size:
            return
        last = (page[-1].updated_at, page[-1].id)


def _stands_at_goal(task: Summary) -> bool:
    """The rule of ``flows.steps.reached``, for a row."""
    if task.stage is Stage.PREPARED:
        return task.goal == Goal.PREPARED
    at_rest = task.stage is Stage.RESERVED and task.error_code is None
    return task.stage in RECOVERABLE and at_rest and task.goal != Goal.COMPLETED
