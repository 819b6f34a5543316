"""Tasks that a real SIGKILL interrupted at a stage that a sweep continues."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fulfillment_cli.domain.order import Order
from fulfillment_cli.domain.stages import Flow, Goal, Stage
from fulfillment_cli.experiments.boundaries import Plan
from fulfillment_cli.experiments.children import Child
from fulfillment_cli.experiments.lab import TASK
from fulfillment_cli.flows.creation import NewTask, ensure_task, make_policy
from fulfillment_cli.runtime import open_runtime
from fulfillment_cli.settings import Settings

STAGES = (Stage.QUEUED, Stage.PREPARED, Stage.APPROVED, Stage.RESERVED, Stage.UNCERTAIN)
"""Every stage that a sweep continues."""

_FLOWS = {Stage.APPROVED: Flow.PAUSE, Stage.UNCERTAIN: Flow.SIDE_EFFECT}
_FAULTS: dict[Stage, dict[str, bool]] = {
    Stage.UNCERTAIN: {"dropReservationResponse": True, "lookupUnavailableAfterWrite": True}
}


@dataclass(frozen=True, slots=True)
class Killed:
    """An interrupted task.

    Attributes:
        stage: Where it was killed.
        pid: The process that was killed.
    """

    directory: Path
    stage: Stage
    pid: int


async def interrupt(
    directory: Path,
    stage: Stage,
    work: Path,
    settings: Settings,
    options: list[str],
    order: Order,
    text: str,
    variables: dict[str, str] | None = None,
) -> Killed:
    """Make a task directory whose only task was killed at ``stage``.

    Args:
        directory: Must not be there yet.
        stage: One of :data:`STAGES`.
        work: Where the child processes run and leave their streams.
        options: ``--config`` and the like for the child processes, with absolute paths.
        order, text: What the task is about, and the request that says so.
        variables: What the child processes need in their environment.

    Raises:
        TimeoutError: The child did not get there.
    """
    flow = _FLOWS.get(stage, Flow.CHECKPOINT)
    policy = make_policy({}, requires_approval=flow is Flow.PAUSE)
    faults = _FAULTS.get(stage, {})
    async with open_runtime(
        directory, stock={order.sku: order.quantity + 10}, faults=faults, settings=settings
    ) as runtime:
        new = NewTask(text.encode(), flow, policy, Goal.COMPLETED, order)
        await ensure_task(runtime, TASK, new)
    arguments = [str(flow), "--directory", str(directory), "--output", "json", *options]
    name = directory.name
    if stage is Stage.APPROVED:
        await Child(arguments, work, f"{name}-pause", variables=variables).wait()
        arguments += ["--decision", "approve", "--actor", "recover-trial"]
    notify = work / f"{name}.held"
    # A queued task dies once its lease is taken: there is no earlier trace of it.
    plan = Plan(kill_at=1) if stage is Stage.QUEUED else Plan(hold_at_stage=stage, notify=notify)
    child = Child(arguments, work, f"{name}-killed", plan, variables)
    if stage is not Stage.QUEUED and await child.held(notify):
        child.kill()
    exit_ = await child.wait()
    if exit_.signal_name != "SIGKILL":
        raise TimeoutError(f"{directory} was not interrupted at {stage}: {exit_.stdout}")
    return Killed(directory, stage, exit_.pid)
