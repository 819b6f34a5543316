"""``pause``: stops before any external write; goes on, or not, as a person decides."""

from __future__ import annotations

from typing import Literal

from fulfillment_cli.adapters.clock import from_timestamp, to_timestamp
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import RevisionConflict, TaskBusy, UsageError
from fulfillment_cli.domain.order import Approval, Order, check_actor
from fulfillment_cli.domain.stages import Flow, Stage
from fulfillment_cli.flows.entry import Entry, find_or_make, run_entry
from fulfillment_cli.flows.steps import drive
from fulfillment_cli.flows.task_run import FlowResult, TaskRun, entered
from fulfillment_cli.runtime import Runtime

Decision = Literal["approve", "reject"]


async def run_pause(
    runtime: Runtime,
    task_id: str = "task",
    *,
    request: str | bytes | None = None,
    expected: Order | None = None,
    expires_in: float | None = None,
) -> FlowResult:
    """Run a task up to the decision, or continue one that was decided.

    Args:
        request: Order text of a new task, up to 65536 bytes; none continues an existing one.
        expected: The order that a generated text was made from, for its fixture.
        expires_in: Seconds from now after which a decision is refused, over 0; also opens a
            paused task again whose time has passed. None leaves what is saved.

    Raises:
        UsageError: ``ALREADY_DECIDED``, ``NOT_PAUSED``: there is no decision to set a time for.
        FulfilError: See :mod:`fulfillment_cli.domain.errors`; what was saved stays.
    """
    entry = Entry(Flow.PAUSE, task_id, request, expected, policy={"requires_approval": True})
    if expires_in is None:
        return await run_entry(runtime, entry)
    if expires_in <= 0:
        raise UsageError("An approval expires in more than 0 seconds.")
    await find_or_make(runtime, entry)
    async with entered(runtime, task_id, f"{Flow.PAUSE} --expires-in") as run:
        _set_deadline(run, expires_in)
        await drive(run, run.checkpoint.goal)
        return run.result()


def _set_deadline(run: TaskRun, expires_in: float) -> None:
    """Save the deadline before anything else is done, so that no kill loses it."""
    checkpoint = run.checkpoint
    _refuse_decided(checkpoint)
    if checkpoint.stage not in (Stage.QUEUED, Stage.PREPARED, Stage.PAUSED):
        raise UsageError(
            f"Task {checkpoint.id} is {checkpoint.stage}; no decision is to be made.",
            code="NOT_PAUSED",
        )
    deadline = to_timestamp(run.runtime.clock.now() + expires_in)
    run.advance(
        checkpoint.stage,
        "deadline-set",
        {"approvalExpiresAt": deadline},
        approval_expires_at=deadline,
    )


async def resume_paused(
    runtime: Runtime,
    decision: Decision,
    actor: str,
    task_id: str = "task",
    *,
    revision: int | None = None,
) -> FlowResult:
    """Decide about a paused task, once, and continue it where it was approved.

    The decision is saved first and needs only the task's lease: where another process holds the
    directory's ledger, it stands all the same, and a later command continues the task.

    Args:
        decision: ``approve`` or ``reject``.
        actor: Who decides, 1 to 100 characters; whoever calls has verified that.
        revision: The revision that was shown; a task that moved since is refused.

    Raises:
        UsageError: ``NOT_PAUSED``, ``ALREADY_DECIDED``, ``APPROVAL_EXPIRED`` (the task stays
            paused), ``ACTOR_INVALID``, ``FLOW_MISMATCH``.
        RevisionConflict: The task is not at ``revision``.
        PlanMismatch: The plan is not what was paused; nothing was decided.
        TaskBusy: Another process holds the task.
    """
    check_actor(actor)
    await find_or_make(runtime, Entry(Flow.PAUSE, task_id))
    async with entered(runtime, task_id, f"{Flow.PAUSE} --decision {decision}") as run:
        _decide(run, decision, actor, revision)
        try:
            await drive(run, run.checkpoint.goal)
        except TaskBusy as busy:
            note = f"The decision is saved. {busy.message} A later command continues the task."
            return FlowResult(run.checkpoint, run.questions, note=note)
        return run.result()


def _decide(run: TaskRun, decision: Decision, actor: str, revision: int | None) -> None:
    checkpoint = run.checkpoint
    _refuse_decided(checkpoint)
    if checkpoint.stage is not Stage.PAUSED:
        raise UsageError(
            f"Task {checkpoint.id} is {checkpoint.stage}, not paused.", code="NOT_PAUSED"
        )
    if revision is not None and revision != checkpoint.revision:
        raise RevisionConflict(
            f"Task {checkpoint.id} is at revision {checkpoint.revision}, not {revision}; "
            "nothing was decided."
        )
    _ = checkpoint.planned_order
    assert checkpoint.plan_fingerprint is not None
    # One reading of the clock decides and is saved: at the deadline there is one outcome.
    now = run.runtime.clock.now()
    deadline = checkpoint.approval_expires_at
    if deadline is not None and now > from_timestamp(deadline):
        raise UsageError(
            f"Task {checkpoint.id} had to be decided by {deadline}; it stays paused.",
            code="APPROVAL_EXPIRED",
        )
    approval = Approval(
        decision=decision,
        actor=actor,
        plan_fingerprint=checkpoint.plan_fingerprint,
        at=to_timestamp(now),
    )
    run.advance(
        Stage.APPROVED if decision == "approve" else Stage.REJECTED,
        "decided",
        {"decision": decision, "actor": actor},
        approval=approval,
    )


def _refuse_decided(checkpoint: Checkpoint) -> None:
    if checkpoint.approval is not None:
        raise UsageError(
            f"Task {checkpoint.id} was decided by {checkpoint.approval.actor}: "
            f"{checkpoint.approval.decision}.",
            code="ALREADY_DECIDED",
        )
