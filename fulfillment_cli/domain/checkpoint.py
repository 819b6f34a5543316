"""The checkpoint: everything that is saved of a task, and what may be read off it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field
from pydantic.alias_generators import to_camel

from fulfillment_cli.domain.errors import PlanMismatch, UsageError
from fulfillment_cli.domain.operations import Kind, Operation, operation_key
from fulfillment_cli.domain.order import (
    Approval,
    ContextEntry,
    DeadLetter,
    Frozen,
    Intent,
    Issue,
    Order,
    Policy,
    Reservation,
    Shipment,
    SourceName,
    Uncertainty,
    plan_fingerprint,
)
from fulfillment_cli.domain.stages import FINAL, Flow, Goal, Stage, allowed

SCHEMA_VERSION: Literal[1] = 1


class Checkpoint(Frozen):
    """One task as it is saved; never changed in place, only followed by the next revision.

    Attributes:
        task_uid: Random, so that an id used again in another ledger is another task.
        ledger_id: The only ledger this task may ever write to.
        revision: 1 at creation, one more for every saved change.
        goal: Where the task stops by itself; only an explicit ``checkpoint`` raises it.
        source_hash: SHA-256 of ``<id>.txt`` at creation.
        catalog_waived: A person let the task go on without the catalog.
        intent: The write in hand, saved before it is sent and until its verdict is.
        release_attempt: Which release key is in use; more than 1 only by a person's action.
        approval_expires_at: UTC time after which a decision is refused, or none.
        attempts: Recoveries that ended in a recoverable error since the last success.
        next_attempt_at: UTC time before which a sweep leaves the task alone, or none.
        last_error: Why the last attempt did not go on, and ``last_error_at``: when.
        resubmitted_from, resubmitted_as: Ids of the tasks it is linked with, or none.
        created_at, updated_at: UTC, ISO 8601 with microseconds.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str
    task_uid: str
    ledger_id: str
    revision: Annotated[int, Field(ge=1)]
    flow: Annotated[Flow, Field(strict=False)]
    policy: Policy
    goal: Annotated[Goal, Field(strict=False)]
    stage: Annotated[Stage, Field(strict=False)]
    source_hash: str
    plan_fingerprint: str | None = None
    order: Order | None = None
    context: Annotated[tuple[ContextEntry, ...], Field(strict=False)] = ()
    selected_source: SourceName | None = None
    catalog_waived: bool = False
    requires_approval: bool = False
    approval: Approval | None = None
    approval_expires_at: str | None = None
    intent: Intent | None = None
    reservation: Reservation | None = None
    shipment: Shipment | None = None
    release_attempt: Annotated[int, Field(ge=1)] = 1
    error: Issue | None = None
    compensation_error: Issue | None = None
    uncertainty: Uncertainty | None = None
    attempts: Annotated[int, Field(ge=0)] = 0
    next_attempt_at: str | None = None
    last_error: Issue | None = None
    last_error_at: str | None = None
    dead_letter: DeadLetter | None = None
    resubmitted_from: str | None = None
    resubmitted_as: str | None = None
    closed: bool = False
    created_at: str
    updated_at: str

    @property
    def final(self) -> bool:
        """Whether re-entry asks neither the model nor the ledger."""
        return self.stage in FINAL

    @property
    def planned_order(self) -> Order:
        """The saved order, after checking that the plan still is what was planned.

        Raises:
            PlanMismatch: There is no plan, or anything it binds was changed since.
        """
        if self.order is None or self.plan_fingerprint is None:
            raise PlanMismatch("The task is past extraction but has no saved plan.")
        expected = plan_fingerprint(
            task_id=self.id,
            task_uid=self.task_uid,
            ledger_id=self.ledger_id,
            source_hash=self.source_hash,
            flow=self.flow,
            policy=self.policy,
            order=self.order,
        )
        if expected != self.plan_fingerprint:
            raise PlanMismatch()
        if self.requires_approval != self.policy.requires_approval:
            raise PlanMismatch("The saved approval rule is not the planned one; nothing was sent.")
        return self.order

    def require_approval(self) -> None:
        """Check that a task that needs an approval has one, made for this very plan.

        Raises:
            PlanMismatch: The approval is missing, is a refusal, or is bound to another plan.
        """
        if not self.policy.requires_approval:
            return
        approval = self.approval
        if approval is None or approval.decision != "approve":
            raise PlanMismatch("The task has no approval; nothing was sent.")
        if approval.plan_fingerprint != self.plan_fingerprint:
            raise PlanMismatch("The approval was given for another plan; nothing was sent.")

    def operation(self, kind: Kind) -> Operation:
        """The operation of this kind as it is sent at every attempt.

        Raises:
            PlanMismatch: See :attr:`planned_order`.
        """
        attempt = self.release_attempt if kind is Kind.RELEASE else 1
        return Operation(
            kind=kind,
            key=operation_key(self.id, kind, attempt),
            task_uid=self.task_uid,
            order=self.planned_order,
            reservation_key=operation_key(self.id, Kind.RESERVE),
        )

    @property
    def next_operation(self) -> Kind:
        """Which effect comes next, read off what is confirmed and saved."""
        if self.reservation is None:
            return Kind.RESERVE
        return Kind.SHIP if self.error is None else Kind.RELEASE

    @property
    def reads_catalog(self) -> bool:
        """Whether the catalog is still to be read: never once a write was intended."""
        return (
            bool(self.policy.allowed_sources)
            and self.selected_source is None
            and not self.catalog_waived
            and self.intent is None
            and self.reservation is None
        )

    def follow(self, stage: Stage, at: str, **facts: Any) -> Self:
        """The next revision of this task: the only way from one checkpoint to another.

        Args:
            stage: Where the task stands from now on; may be where it stood.
            at: When, UTC, ISO 8601.
            facts: Other fields that change.

        Raises:
            UsageError: ``TRANSITION_REFUSED``: the table has no such way, or the task would end
                while an operation that may have been sent has no verdict.
            PlanMismatch: A fact is write-once and was written with another value.
        """
        if not allowed(self.stage, stage):
            raise UsageError(
                f"A task cannot go from {self.stage} to {stage}.", code="TRANSITION_REFUSED"
            )
        values = {name: getattr(self, name) for name in type(self).model_fields}
        if stage not in (self.stage, Stage.UNCERTAIN):
            values |= _NO_FAILURES  # it moved on, so what failed before it is over
        following = type(self).model_validate(
            values | facts | {"stage": stage, "revision": self.revision + 1, "updated_at": at}
        )
        for name in _WRITE_ONCE:
            before = getattr(self, name)
            if before is not None and getattr(following, name) != before:
                raise PlanMismatch(f"{to_camel(name)} is written once; nothing was saved.")
        if following.final and stage is not self.stage and following.intent is not None:
            raise UsageError(
                f"The outcome of {following.intent.key} is not known; the task cannot end.",
                code="TRANSITION_REFUSED",
            )
        return following


_NO_FAILURES: dict[str, Any] = {
    "attempts": 0,
    "next_attempt_at": None,
    "last_error": None,
    "last_error_at": None,
    "dead_letter": None,
}

_WRITE_ONCE = (
    "id",
    "task_uid",
    "ledger_id",
    "flow",
    "policy",
    "requires_approval",
    "source_hash",
    "order",
    "plan_fingerprint",
    "approval",
    "created_at",
)


class Event(Frozen):
    """One line of a task's history, committed with the change that it tells of.

    Attributes:
        seq: Position in the directory's log; grows, with gaps where a transaction was undone.
        revision: The task's revision after the change.
        at: UTC, ISO 8601.
    """

    seq: int
    task_id: str
    revision: int
    kind: str
    at: str
    data: dict[str, Any]
