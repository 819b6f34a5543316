"""The heart: bring one external operation to its verdict, or say that it is not known.

Look up; where it is absent, save the intent and send; where the answer is unclear, look up once
more; never send what may have been sent, never conclude what was not answered (contract, 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.codes import CODES
from fulfillment_cli.domain.errors import OutcomeUnknown
from fulfillment_cli.domain.operations import Kind, Operation, Verdict
from fulfillment_cli.domain.order import Intent, Issue, Reservation, Shipment, Uncertainty
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.flows.task_run import TaskRun

if TYPE_CHECKING:
    from fulfillment_cli.adapters.ledger import Ledger


async def resolve_operation(run: TaskRun) -> None:
    """Bring the task's next operation to its verdict and save it.

    Leaves the task where the verdict takes it, or ``uncertain``.

    Raises:
        PlanMismatch: The plan or its approval is not what was saved; nothing was sent.
        LedgerNotReached: The operation was not sent; the task is unchanged but for the intent.
    """
    operation = run.checkpoint.operation(run.checkpoint.next_operation)
    run.checkpoint.require_approval()
    ledger = await run.ledger()
    try:
        verdict = await ledger.look_up(operation)
        via = "look-up"
        if verdict.state == "absent":
            verdict, via = await _send(run, ledger, operation)
    except OutcomeUnknown as error:
        _uncertain(run, operation, "OUTCOME_UNKNOWN", error.message)
        return
    if verdict.state == "pending":
        _uncertain(
            run, operation, "OPERATION_PENDING", f"The ledger is still working on {operation.key}."
        )
    elif verdict.state == "absent":
        _uncertain(
            run,
            operation,
            "OUTCOME_UNKNOWN",
            f"{operation.key} was sent, was not answered, and is not there yet.",
        )
    else:
        _save_verdict(run, operation, verdict, via)


async def _send(run: TaskRun, ledger: Ledger, operation: Operation) -> tuple[Verdict, str]:
    """Save the intent, send, and look up once more where the answer is unclear."""
    saved = run.checkpoint.intent
    attempt = saved.attempt + 1 if saved is not None and saved.key == operation.key else 1
    run.advance(
        run.checkpoint.stage,
        "intent",
        {"key": operation.key, "attempt": attempt, "lookUp": "absent"},
        intent=Intent(operation=operation.kind.value, key=operation.key, attempt=attempt),
    )
    try:
        return await ledger.submit(operation), "answer"
    except OutcomeUnknown as error:
        run.record("unclear", {"key": operation.key, "attempt": attempt, "why": error.message})
        return await ledger.look_up(operation), "look-up"


def _uncertain(run: TaskRun, operation: Operation, code: str, message: str) -> None:
    uncertainty = Uncertainty.model_validate(
        {
            "code": code,
            "operation": operation.kind.value,
            "key": operation.key,
            "message": message,
        }
    )
    run.advance(
        Stage.UNCERTAIN,
        "uncertain",
        {"key": operation.key, "code": code},
        uncertainty=uncertainty,
    )
    state = "pending" if code == "OPERATION_PENDING" else "unknown"
    run.runtime.telemetry.outcome(operation.kind, state)


def _save_verdict(run: TaskRun, operation: Operation, verdict: Verdict, via: str) -> None:
    facts = {"key": operation.key, "state": verdict.state, "code": verdict.code, "via": via}
    if verdict.state == "committed":
        stage, changes = _committed(run.checkpoint, operation)
    else:
        stage, changes = _refused(run.checkpoint, operation, verdict)
    run.advance(
        stage, f"{operation.kind}-{verdict.state}", facts, intent=None, uncertainty=None, **changes
    )
    run.runtime.telemetry.outcome(operation.kind, verdict.state)


def _committed(checkpoint: Checkpoint, operation: Operation) -> tuple[Stage, dict[str, object]]:
    order = operation.order
    status = {Kind.RESERVE: "active", Kind.SHIP: "shipped", Kind.RELEASE: "released"}
    reservation = Reservation.model_validate(
        {
            "key": operation.reservation_key,
            "sku": order.sku,
            "quantity": order.quantity,
            "status": status[operation.kind],
        }
    )
    changes: dict[str, object] = {"reservation": reservation}
    if operation.kind is Kind.SHIP:
        changes["shipment"] = Shipment(
            key=operation.key, reservation_key=operation.reservation_key, address=order.address
        )
    if operation.kind is Kind.RELEASE:
        changes["compensation_error"] = None
    stages = {
        Kind.RESERVE: Stage.RESERVED,
        Kind.SHIP: Stage.COMPLETED,
        Kind.RELEASE: Stage.COMPENSATED,
    }
    return stages[operation.kind], changes


def _why_refused(operation: Operation, code: str) -> str:
    """The code's meaning and the operation's key; a ledger may have codes that we do not know."""
    info = CODES.get(code)
    if info is None:
        return f"The ledger refused {operation.key}: {code}."
    return f"{info.meaning.removesuffix('.')} ({operation.key})."


def _refused(
    checkpoint: Checkpoint, operation: Operation, verdict: Verdict
) -> tuple[Stage, dict[str, object]]:
    """Where a rejection or a conflict takes the task; the first error is always kept."""
    code = str(verdict.code)
    issue = Issue(code=code, message=_why_refused(operation, code))
    if operation.kind is Kind.RELEASE:
        if verdict.state == "rejected":
            issue = Issue(code="COMPENSATION_RELEASE_REJECTED", message=issue.message)
        return Stage.NEEDS_REVIEW, {"compensation_error": issue}
    if verdict.state == "conflict":
        return Stage.NEEDS_REVIEW, {"error": issue}
    if operation.kind is Kind.RESERVE:
        return Stage.FAILED, {"error": issue}
    # A rejected shipment is saved with its error before a release starts, so that a kill in
    # between leaves no doubt about what is to be released, and why.
    stage = Stage.RESERVED if checkpoint.policy.compensates else Stage.NEEDS_REVIEW
    return stage, {"error": issue}
