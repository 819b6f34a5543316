"""The list of what waits for a person."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fulfillment_cli.adapters.clock import Clock, from_timestamp
from fulfillment_cli.adapters.looking import open_to_look
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import FulfilError, TaskNotFound
from fulfillment_cli.domain.order import Issue, JsonObject
from fulfillment_cli.domain.stages import Stage


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something that only a person goes on with.

    Attributes:
        kind: ``needs-review``, ``dead-letter``, ``paused``, or ``damaged``: a directory, or a
            task of it, whose database cannot be read.
        issue: Why.
        age: Seconds since the task last moved; none where that cannot be read.
        expired: A paused task whose time for a decision has passed.
    """

    directory: Path
    kind: str
    issue: Issue
    checkpoint: Checkpoint | None = None
    task: str | None = None
    age: float | None = None
    expired: bool = False

    def to_json(self) -> JsonObject:
        """The item as the report shows it, without its commands."""
        checkpoint = self.checkpoint
        return {
            "directory": str(self.directory),
            "task": self.task,
            "kind": self.kind,
            "stage": checkpoint and checkpoint.stage.value,
            "revision": checkpoint and checkpoint.revision,
            "since": checkpoint and checkpoint.updated_at,
            "ageSeconds": None if self.age is None else round(self.age, 3),
            "reason": self.issue.to_json(),
            "attempts": checkpoint and checkpoint.attempts,
            "approvalExpiresAt": checkpoint and checkpoint.approval_expires_at,
            "expired": self.expired,
        }


def waiting_in(directory: Path, clock: Clock) -> list[Waiting]:
    """What waits in one directory, the oldest update first; starts and writes nothing."""
    found: list[Waiting] = []
    try:
        with open_to_look(directory, clock) as store:
            for task_id in store.ids_for_review():
                try:
                    found.append(_item(directory, store.load(task_id), clock.now()))
                except FulfilError as error:
                    found.append(_damaged(directory, error, task_id))
    except TaskNotFound:
        return []
    except FulfilError as error:
        found.append(_damaged(directory, error))
    return found


def _item(directory: Path, checkpoint: Checkpoint, now: float) -> Waiting:
    age = max(0.0, now - from_timestamp(checkpoint.updated_at))
    if checkpoint.dead_letter is not None:
        dead = checkpoint.dead_letter
        kind, issue = "dead-letter", Issue(code=dead.code, message=dead.message)
    elif checkpoint.stage is Stage.NEEDS_REVIEW:
        unknown = Issue(code="INTERNAL", message="No reason was saved.")
        kind, issue = "needs-review", checkpoint.compensation_error or checkpoint.error or unknown
    else:
        expires = checkpoint.approval_expires_at
        if expires is not None and now > from_timestamp(expires):
            expired = Issue(code="APPROVAL_EXPIRED", message=f"It had to be decided by {expires}.")
            return Waiting(directory, "paused", expired, checkpoint, checkpoint.id, age, True)
        kind, issue = "paused", Issue(code="PAUSED", message="It waits for a decision.")
    return Waiting(directory, kind, issue, checkpoint, checkpoint.id, age)


def _damaged(directory: Path, error: FulfilError, task: str | None = None) -> Waiting:
    return Waiting(directory, "damaged", Issue(code=error.code, message=error.message), task=task)
