"""How a command enters a task: make or find it, check that it may, hold it, drive it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.order import Order
from fulfillment_cli.domain.stages import FINAL, Flow, Goal, Stage
from fulfillment_cli.flows.creation import (
    NewTask,
    ensure_task,
    find,
    make_policy,
    request_bytes,
)
from fulfillment_cli.flows.steps import drive
from fulfillment_cli.flows.task_run import FlowResult, TaskRun, entered
from fulfillment_cli.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Entry:
    """One command's way into one task.

    Attributes:
        flow: The command.
        task_id: The task.
        request: Order text of a new task; none to continue one that is there.
        expected: The order that a generated text was made from.
        policy: A new task's policy by this command's own defaults.
        given: Policy options that were given, refused for a task that is there.
        goal: How far a new task is to go.
    """

    flow: Flow
    task_id: str
    request: str | bytes | None = None
    expected: Order | None = None
    policy: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    goal: Goal = Goal.COMPLETED

    def new_task(self) -> NewTask | None:
        """What a new task is made from; none where only an existing one is entered.

        Raises:
            UsageError: The text or an option is not usable.
        """
        policy = make_policy(self.given, **self.policy)
        if self.request is None:
            return None
        return NewTask(request_bytes(self.request), self.flow, policy, self.goal, self.expected)


async def find_or_make(runtime: Runtime, entry: Entry) -> Checkpoint:
    """The task that a command names, made where that was asked for.

    Raises:
        UsageError: ``POLICY_FIXED``, ``FLOW_MISMATCH``, and what making a task raises.
    """
    new = entry.new_task()
    there = await ensure_task(runtime, entry.task_id, new)
    given = {name for name, value in entry.given.items() if value is not None}
    if given and (new is None or there.policy != new.policy):
        names = ", ".join("--" + name.replace("_", "-") for name in sorted(given))
        raise UsageError(
            f"The policy of task {there.id} is fixed; {names} cannot change it.",
            code="POLICY_FIXED",
        )
    if entry.flow not in (there.flow, Flow.CHECKPOINT, Flow.SESSION):
        fitting = dict.fromkeys((there.flow, Flow.CHECKPOINT, Flow.SESSION))
        commands = " or ".join(f"`fulfil {flow}`" for flow in fitting)
        raise UsageError(
            f"Task {there.id} belongs to `{there.flow}`.",
            code="FLOW_MISMATCH",
            hint=f"Use {commands} with --directory DIR.",
        )
    return there


async def run_entry(runtime: Runtime, entry: Entry) -> FlowResult:
    """Enter a task as its own command does: continue it up to its saved goal."""
    checkpoint = await find_or_make(runtime, entry)
    if at_rest(runtime, checkpoint):
        return FlowResult(checkpoint)
    async with entered(runtime, entry.task_id, entry.flow) as run:
        await drive(run, run.checkpoint.goal)
        return run.result()


async def run_to(runtime: Runtime, entry: Entry, stop_after: Goal | None) -> FlowResult:
    """Enter any task as an explicit ``checkpoint`` does: raise its goal, waive its catalog."""
    there = find(runtime, entry.task_id)
    checkpoint = await find_or_make(runtime, entry)
    if checkpoint.final and at_rest(runtime, checkpoint):
        return FlowResult(checkpoint)
    made_here = there is None and checkpoint.revision == 1
    until = stop_after or (checkpoint.goal if made_here else Goal.COMPLETED)
    async with entered(runtime, entry.task_id, entry.flow) as run:
        _raise_goal(run, until)
        if run.checkpoint.stage is Stage.TIMED_OUT and until is not Goal.PREPARED:
            run.advance(Stage.PREPARED, "catalog-waived", catalog_waived=True, error=None)
        await drive(run, until)
        return run.result()


def _raise_goal(run: TaskRun, until: Goal) -> None:
    """Save a goal that lies farther, before any request; a nearer one is for this command only."""
    checkpoint = run.checkpoint
    if not checkpoint.final and until.distance > checkpoint.goal.distance:
        run.advance(
            checkpoint.stage,
            "goal-raised",
            {"goalFrom": checkpoint.goal, "goal": until},
            goal=until,
        )


def at_rest(runtime: Runtime, checkpoint: Checkpoint) -> bool:
    """Whether re-entry has nothing at all to do, not even the projection."""
    return checkpoint.stage in FINAL and runtime.directory.result_is_current(checkpoint)
