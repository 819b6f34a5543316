"""What waits for a person, and what a person may do about it.

Each action is one event of the task, made under its lease, bound to the revision that was shown,
and refused where it was done already.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import StrEnum

from fulfillment_cli.adapters.source import decode, read_bounded, source_hash
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import FulfilError, RevisionConflict, UsageError
from fulfillment_cli.domain.operations import Kind
from fulfillment_cli.domain.order import (
    MAX_SOURCE_BYTES,
    JsonObject,
    Uncertainty,
    check_actor,
    check_task_id,
    plan_fingerprint,
    printable,
)
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.flows.creation import find
from fulfillment_cli.flows.steps import drive
from fulfillment_cli.flows.task_run import FlowResult, TaskRun, entered
from fulfillment_cli.runtime import Runtime

MAX_REASON = 500


class Action(StrEnum):
    """What a person may do with a task that no sweep goes on with."""

    REQUEUE = "requeue"
    RELEASE = "release"
    CLOSE = "close"
    RESUBMIT = "resubmit"


@dataclass(frozen=True, slots=True)
class Decision:
    """Who does what, and why.

    Attributes:
        actor: 1 to 100 characters; whoever calls has verified who it is.
        reason: 1 to 500 printable characters.
        revision: The revision that was shown; none: whatever it is now.
        new_id: Id of the task that ``resubmit`` makes.
    """

    action: Action
    actor: str
    reason: str
    revision: int | None = None
    new_id: str | None = None

    def check(self) -> None:
        """Check what does not depend on the task; raises :class:`UsageError`."""
        check_actor(self.actor)
        if not 1 <= len(self.reason) <= MAX_REASON or not self.reason.strip():
            raise UsageError(f"A reason has 1 to {MAX_REASON} characters.")
        if printable(self.reason) != self.reason:
            raise UsageError("A reason has no control or bidi-override characters.")
        if (self.new_id is not None) != (self.action is Action.RESUBMIT):
            raise UsageError("--as goes with --action resubmit: the id of the new task.")
        if self.new_id is not None:
            check_task_id(self.new_id)

    @property
    def data(self) -> JsonObject:
        """What the event tells of it."""
        return {"actor": self.actor, "reason": self.reason}


async def act(runtime: Runtime, task_id: str, decision: Decision) -> FlowResult:
    """Do what a person decided about a task.

    Raises:
        UsageError: ``REVIEW_REFUSED``: it does not fit where the task stands, or was done
            already; ``NO_ORDER``; ``ACTOR_INVALID``; ``TASK_EXISTS``.
        RevisionConflict: The task moved since it was shown; nothing was done.
        TaskBusy: Another process holds the task, or for ``release`` its ledger.
    """
    decision.check()
    async with entered(runtime, task_id, f"review --action {decision.action}") as run:
        if decision.revision is not None and decision.revision != run.checkpoint.revision:
            raise RevisionConflict(
                f"Task {task_id} is at revision {run.checkpoint.revision}, "
                f"not {decision.revision}; nothing was done."
            )
        if decision.action is Action.REQUEUE:
            _requeue(run, decision)
        elif decision.action is Action.CLOSE:
            _close(run, decision)
        elif decision.action is Action.RELEASE:
            await _release(run, decision)
        else:
            return await _resubmit(run, decision)
        return run.result()


def _refused(checkpoint: Checkpoint, action: Action, why: str) -> UsageError:
    return UsageError(
        f"`{action}` does not fit task {checkpoint.id} ({checkpoint.stage}): {why}.",
        code="REVIEW_REFUSED",
    )


def _requeue(run: TaskRun, decision: Decision) -> None:
    checkpoint = run.checkpoint
    if checkpoint.dead_letter is None or checkpoint.closed:
        raise _refused(checkpoint, decision.action, "it is not a dead letter that waits")
    run.advance(
        checkpoint.stage,
        f"review-{decision.action}",
        decision.data,
        dead_letter=None,
        attempts=0,
        next_attempt_at=None,
    )


def _close(run: TaskRun, decision: Decision) -> None:
    checkpoint = run.checkpoint
    waits = checkpoint.stage is Stage.NEEDS_REVIEW or checkpoint.dead_letter is not None
    if checkpoint.closed or not waits:
        raise _refused(checkpoint, decision.action, "it does not wait for a review")
    run.advance(checkpoint.stage, f"review-{decision.action}", decision.data, closed=True)


async def _release(run: TaskRun, decision: Decision) -> None:
    """Try the compensation again: a verdict is permanent, so under the next key.

    The attempt is saved before anything is sent, as ``uncertain``: from then on the task is
    like any other whose operation is in hand, and any re-entry brings it to its verdict.
    """
    checkpoint = run.checkpoint
    if checkpoint.stage is not Stage.NEEDS_REVIEW or checkpoint.closed:
        raise _refused(checkpoint, decision.action, "it does not wait for a review")
    reservation, error = checkpoint.reservation, checkpoint.error
    if reservation is None or reservation.status != "active" or error is None:
        raise _refused(checkpoint, decision.action, "it has no reservation to release")
    if error.code == "IDEMPOTENCY_CONFLICT":
        raise _refused(checkpoint, decision.action, "its shipment was not rejected")
    _ = checkpoint.planned_order
    await run.ledger()  # where it cannot be had, nothing is begun
    tried = checkpoint.compensation_error is not None
    attempt = checkpoint.release_attempt + 1 if tried else checkpoint.release_attempt
    key = checkpoint.model_copy(update={"release_attempt": attempt}).operation(Kind.RELEASE).key
    run.advance(
        Stage.UNCERTAIN,
        f"review-{decision.action}",
        decision.data | {"key": key},
        release_attempt=attempt,
        uncertainty=Uncertainty(
            code="OUTCOME_UNKNOWN",
            operation=Kind.RELEASE.value,
            key=key,
            message=f"{decision.actor} decided to release; {key} is not confirmed yet.",
        ),
    )
    await drive(run, checkpoint.goal)


async def _resubmit(run: TaskRun, decision: Decision) -> FlowResult:
    """Make a new task with the same order; two tasks that are linked to each other.

    The new one is made first: a process that dies in between has left one link, which the same
    command run again finds and completes.
    """
    checkpoint, new_id = run.checkpoint, str(decision.new_id)
    if checkpoint.stage not in (Stage.FAILED, Stage.COMPENSATED):
        raise _refused(checkpoint, decision.action, "it is neither failed nor compensated")
    if checkpoint.order is None:
        raise UsageError(f"Task {checkpoint.id} has no saved order.", code="NO_ORDER")
    store = run.runtime.store
    before = checkpoint.resubmitted_as
    begun = store.id_resubmitted_from(checkpoint.id)
    if before is not None or begun not in (None, new_id):
        raise _refused(checkpoint, decision.action, f"it was resubmitted as {before or begun}")
    async with run.runtime.directory.creating():
        new = find(run.runtime, new_id)
        if new is None:
            _copy_source(run, new_id)
            new = store.create(
                _resubmitted(run, new_id), decision.data | {"resubmittedFrom": checkpoint.id}
            )
        elif begun is None:
            raise UsageError(f"There is a task {new_id} already.", code="TASK_EXISTS")
    run.advance(
        checkpoint.stage,
        f"review-{decision.action}",
        decision.data | {"as": new_id},
        resubmitted_as=new_id,
    )
    run.runtime.directory.write_result(new)
    note = f"Task {new_id} has the order of {checkpoint.id}; no model was asked."
    return FlowResult(run.checkpoint, note=note)


def _resubmitted(run: TaskRun, new_id: str) -> Checkpoint:
    """The first revision of the new task: the saved order under a plan of its own."""
    old, at = run.checkpoint, run.runtime.clock.timestamp()
    task_uid = secrets.token_hex(16)
    order = old.planned_order
    return Checkpoint(
        id=new_id,
        task_uid=task_uid,
        ledger_id=old.ledger_id,
        revision=1,
        flow=old.flow,
        policy=old.policy,
        requires_approval=old.policy.requires_approval,
        goal=old.goal,
        stage=Stage.PREPARED,
        source_hash=old.source_hash,
        order=order,
        context=tuple(entry for entry in old.context if entry.kind in ("request", "order")),
        plan_fingerprint=plan_fingerprint(
            task_id=new_id,
            task_uid=task_uid,
            ledger_id=old.ledger_id,
            source_hash=old.source_hash,
            flow=old.flow,
            policy=old.policy,
            order=order,
        ),
        resubmitted_from=old.id,
        created_at=at,
        updated_at=at,
    )


def _copy_source(run: TaskRun, new_id: str) -> None:
    """The request text for a reader; the order is saved, so a text that is gone is not missed."""
    files, old = run.runtime.directory, run.checkpoint
    try:
        content = read_bounded(files.source(old.id), MAX_SOURCE_BYTES)
    except FulfilError:
        return
    if source_hash(content) == old.source_hash and decode(content):
        files.write_source(new_id, content)
