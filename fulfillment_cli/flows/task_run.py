"""One process's hold on one task: its lease, its newest checkpoint, what it asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fulfillment_cli.adapters.leases import RENEW_SECONDS, Lease
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import FulfilError, LeaseLost, PlanMismatch, RevisionConflict
from fulfillment_cli.domain.order import Issue, SessionAnswer
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.runtime import Runtime

if TYPE_CHECKING:
    from fulfillment_cli.adapters.checkpoints import RecoveryStore
    from fulfillment_cli.adapters.ledger import Ledger


@dataclass(frozen=True, slots=True)
class FlowResult:
    """What one command did with one task.

    Attributes:
        checkpoint: What is saved.
        questions: Extractions and session answers asked by this command.
        answer: The verified answer of a session, or none.
        note: One line that a person should read, or none.
    """

    checkpoint: Checkpoint
    questions: int = 0
    answer: SessionAnswer | None = None
    note: str | None = None

    @property
    def stage(self) -> Stage:
        """Where the task stands."""
        return self.checkpoint.stage

    @property
    def error(self) -> Issue | None:
        """Why it stands there: the saved error, or else what is uncertain."""
        uncertainty = self.checkpoint.uncertainty
        if self.checkpoint.error is None and uncertainty is not None:
            return Issue(code=uncertainty.code, message=uncertainty.message)
        return self.checkpoint.error


class TaskRun:
    """The right to advance one task. Make one with :func:`entered`.

    Attributes:
        checkpoint: The newest one.
        questions: Questions asked so far.
    """

    def __init__(self, runtime: Runtime, lease: Lease, checkpoint: Checkpoint) -> None:
        self.runtime = runtime
        self.lease = lease
        self.checkpoint = checkpoint
        self.questions = 0

    async def ledger(self) -> Ledger:
        """The task's own ledger; any other is refused (``LEDGER_MISMATCH``)."""
        return await self.runtime.ledger(self.checkpoint.ledger_id)

    def advance(
        self, stage: Stage, event: str, data: Mapping[str, Any] | None = None, **facts: Any
    ) -> None:
        """Save the next revision; see :meth:`RecoveryStore.advance` for what it raises."""
        before = self.checkpoint.stage
        self.checkpoint = self.runtime.store.advance(
            self.checkpoint, self.lease, stage, event, data, **facts
        )
        if stage is not before:
            self.runtime.telemetry.moved(self.checkpoint.flow, before, stage)
        self.runtime.progress(event if event == stage else f"{event}: {stage}")

    def record(self, event: str, data: Mapping[str, Any]) -> None:
        """Append an event that changes nothing of the task."""
        self.runtime.telemetry.observe(event, data)
        self.runtime.store.record(self.checkpoint, self.lease, event, data)

    def reload_same_plan(self, conflict: RevisionConflict) -> None:
        """Go on from the newest checkpoint after a lost revision, where that is safe.

        The plan is write-once: where the newest checkpoint holds the same one, and this process
        still has the lease, the flow may go on from it; the older one is never written in.

        Raises:
            LeaseLost: Another process has the task.
            PlanMismatch: The newest checkpoint holds another plan.
        """
        before = self.checkpoint.plan_fingerprint
        self.runtime.store.renew(self.lease)
        newest = self.runtime.store.load(self.checkpoint.id)
        if before is not None and newest.plan_fingerprint != before:
            raise PlanMismatch(
                f"Task {newest.id} was advanced elsewhere with another plan; nothing was sent."
            ) from conflict
        self.checkpoint = newest

    def result(self, answer: SessionAnswer | None = None) -> FlowResult:
        """What this command did."""
        return FlowResult(self.checkpoint, self.questions, answer)


@asynccontextmanager
async def entered(runtime: Runtime, task_id: str, command: str) -> AsyncIterator[TaskRun]:
    """Hold a task's lease, renewed all the while; project and release at the end.

    Args:
        command: What is being done, for the history.

    Raises:
        TaskBusy: A living process holds it.
    """
    store = runtime.store
    with runtime.telemetry.run(task_id, command, lambda: _first_trace(store, task_id)) as told:
        facts = {"command": command, "pid": os.getpid()} | told.facts
        async with _held(runtime, task_id, facts) as run:
            told.ended("fulfil.flow", run.checkpoint.flow.value)
            told.ended("fulfil.resumed", run.lease.token > 1)
            try:
                yield run
            finally:
                told.ended("fulfil.stage", run.checkpoint.stage.value)


def _first_trace(store: RecoveryStore, task_id: str) -> str | None:
    """Where the task's first traced run stands, near the beginning of its history."""
    parents = (event.data.get("traceparent") for event in store.events(0, task_id, 200))
    return next((parent for parent in parents if isinstance(parent, str)), None)


@asynccontextmanager
async def _held(runtime: Runtime, task_id: str, facts: dict[str, Any]) -> AsyncIterator[TaskRun]:
    store = runtime.store
    lease, checkpoint = store.acquire(task_id, runtime.holder, facts)
    run = TaskRun(runtime, lease, checkpoint)
    renewing = asyncio.create_task(_renew(run))
    try:
        runtime.directory.write_result(checkpoint)
        yield run
    except BaseException:
        # The first error is the one to tell; a disk that is full, say, fails here once more.
        with suppress(FulfilError):
            _leave(run)
        raise
    else:
        _leave(run)
    finally:
        renewing.cancel()


def _leave(run: TaskRun) -> None:
    store = run.runtime.store
    try:
        store.renew(run.lease)
    except LeaseLost:
        return  # somebody else projects and releases now
    run.runtime.directory.write_result(run.checkpoint)
    store.release(run.lease, run.checkpoint)


async def _renew(run: TaskRun) -> None:
    """Renew until cancelled. A lost lease is left for the next write to find, which is refused."""
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        try:
            run.runtime.store.renew(run.lease)
        except LeaseLost:
            return
        except FulfilError:
            continue  # a database that is locked or full for a moment; the lease outlasts that
