"""The steps from one stage to the next, and the loop that takes them.

A first run, a resume, a sweep and an experiment all come through :func:`drive`: recovery is not
a second algorithm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fulfillment_cli.adapters.source import read_source
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import (
    CatalogError,
    CatalogUnavailable,
    FulfilError,
    RevisionConflict,
    SourceError,
    SourceTooLarge,
)
from fulfillment_cli.domain.order import (
    MAX_SOURCE_BYTES,
    ContextEntry,
    Issue,
    Order,
    SourceName,
    plan_fingerprint,
)
from fulfillment_cli.domain.stages import RECOVERABLE, Goal, Stage
from fulfillment_cli.flows.operations import resolve_operation
from fulfillment_cli.flows.task_run import TaskRun

Step = Callable[[TaskRun], Awaitable[None]]

MAX_CONFLICTS = 3


async def drive(run: TaskRun, until: Goal, stopping: Callable[[], bool] = lambda: False) -> None:
    """Take steps until the goal, a resting stage, or an outcome that is not known.

    Args:
        stopping: Asked before every step; no further one is begun once it says so.

    Raises:
        FulfilError: A step could not be taken; what was saved before it stays.
    """
    conflicts = 0
    while (step := next_step(run.checkpoint, until)) is not None and not stopping():
        try:
            # A cancellation that is waiting is delivered here, between steps, not amid the next.
            await asyncio.sleep(0)
            with run.runtime.telemetry.step(step.__name__, run.checkpoint.stage):
                await step(run)
        except RevisionConflict as conflict:
            conflicts += 1
            if conflicts > MAX_CONFLICTS:
                raise
            run.reload_same_plan(conflict)
            continue
        if run.checkpoint.stage is Stage.UNCERTAIN:
            return  # asking again at once would learn nothing new


def next_step(checkpoint: Checkpoint, until: Goal) -> Step | None:
    """What is to be done next with a task, or none where this command has nothing left to do.

    Raises:
        PlanMismatch: The saved plan is not what was planned.
    """
    stage = checkpoint.stage
    if stage is Stage.QUEUED:
        return prepare
    if not checkpoint.final:
        # Also for a task that rests: whoever enters it hears at once that it was tampered with.
        _ = checkpoint.planned_order
    if stage not in RECOVERABLE or reached(checkpoint, until):
        return None
    if stage is Stage.PREPARED and checkpoint.reads_catalog:
        return select_source
    if stage is Stage.PREPARED and checkpoint.policy.requires_approval:
        return pause
    return resolve_operation


def reached(checkpoint: Checkpoint, until: Goal) -> bool:
    """Whether a task stands where it is to stop."""
    if checkpoint.stage is Stage.PREPARED:
        return until is Goal.PREPARED
    if checkpoint.stage is Stage.RESERVED:
        # A rejected shipment is not a place to stop at: its release follows.
        return until is not Goal.COMPLETED and checkpoint.error is None
    return False


async def prepare(run: TaskRun) -> None:
    """Read the source, ask the model, and save the plan: once, and for good.

    Raises:
        ModelError: No answer was accepted; the task is still ``queued``.
    """
    try:
        text = _read(run)
    except SourceError as error:
        _fail(run, error)
        return
    model = await run.runtime.model()
    run.runtime.progress(f"asking {model.provider}:{model.model} for the order")
    run.questions += 1
    order = await model.extract(text, run.record)
    checkpoint = run.checkpoint
    run.advance(
        Stage.PREPARED,
        "prepared",
        order=order,
        context=(
            ContextEntry(kind="request", content=text),
            ContextEntry(kind="order", content=order.to_json()),
        ),
        plan_fingerprint=plan_fingerprint(
            task_id=checkpoint.id,
            task_uid=checkpoint.task_uid,
            ledger_id=checkpoint.ledger_id,
            source_hash=checkpoint.source_hash,
            flow=checkpoint.flow,
            policy=checkpoint.policy,
            order=order,
        ),
    )


def _read(run: TaskRun) -> str:
    """Read the request text, again with the size that the error named, as the policy allows."""
    policy, checkpoint = run.checkpoint.policy, run.checkpoint
    limit = policy.initial_max_bytes
    attempt = 1
    while True:
        try:
            text = read_source(
                run.runtime.directory.source(checkpoint.id), checkpoint.source_hash, limit
            )
        except SourceError as error:
            run.record("source-read", {"attempt": attempt, "limit": limit, "code": error.code})
            retryable = isinstance(error, SourceTooLarge) and error.retryable
            if not retryable or attempt >= policy.max_attempts:
                raise
            assert isinstance(error, SourceTooLarge)
            attempt, limit = attempt + 1, min(error.required_bytes, MAX_SOURCE_BYTES)
            run.runtime.progress(f"reading the source again, {limit} bytes allowed")
        else:
            run.record("source-read", {"attempt": attempt, "limit": limit, "code": None})
            return text


async def select_source(run: TaskRun) -> None:
    """Ask the allowed catalog sources in their order whether the order can be filled.

    The deadline covers a whole read, however slowly it drips. Cancellation by the caller passes
    through: :func:`asyncio.timeout` turns only its own into ``TimeoutError``.
    """
    order = run.checkpoint.planned_order
    timeout_ms = run.checkpoint.policy.timeout_ms
    try:
        source = await _first_available(run, order, timeout_ms)
    except TimeoutError:
        issue = Issue(
            code="CATALOG_TIMEOUT", message=f"The catalog read passed its {timeout_ms} ms deadline."
        )
        run.advance(Stage.TIMED_OUT, "catalog-timeout", {"timeoutMs": timeout_ms}, error=issue)
    except CatalogError as error:
        _fail(run, error)
    else:
        run.advance(Stage.PREPARED, "source-selected", {"source": source}, selected_source=source)


async def _first_available(run: TaskRun, order: Order, timeout_ms: int | None) -> SourceName:
    ledger = await run.ledger()
    last = CatalogUnavailable()
    for source in run.checkpoint.policy.allowed_sources:
        run.runtime.progress(f"reading the {source} catalog")
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                available = await ledger.available(source, order.sku)
        except CatalogUnavailable as error:
            run.record("catalog-read", {"source": source, "code": error.code})
            last = error
            continue
        if available < order.quantity:
            raise CatalogError(
                f"{available} of {order.sku} are available; {order.quantity} were ordered.",
                code="INSUFFICIENT_STOCK",
            )
        return source
    raise last


async def pause(run: TaskRun) -> None:
    """Stop before any external write and wait for a decision."""
    run.advance(Stage.PAUSED, "paused")


def _fail(run: TaskRun, error: FulfilError) -> None:
    run.advance(
        Stage.FAILED,
        "failed",
        {"code": error.code},
        error=Issue(code=error.code, message=error.message),
    )
