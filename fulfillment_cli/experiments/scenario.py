"""What an experiment is, and what several of them share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fulfillment_cli.domain.stages import Flow, Goal, Stage
from fulfillment_cli.experiments.evidence import Evidence
from fulfillment_cli.experiments.lab import TASK, Lab
from fulfillment_cli.flows.creation import NewTask, ensure_task, make_policy

RESERVE = ["GET /operations/task-reserve", "POST /reserve"]
SHIP = ["GET /operations/task-ship", "POST /ship"]
RELEASE = ["GET /operations/task-release", "POST /release"]
FULFIL = RESERVE + SHIP
PRIMARY = ["GET /catalog/primary"]
OPERATOR = "experiment-operator"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table.

    Attributes:
        name: Its name.
        run: What it does.
        ends: The stage it must end in.
        questions: Extractions plus session answers, over all processes.
        requests: The service's request log, without health checks.
        error: Code of the saved error, or none.
        check: Further facts to check when everything is closed.
    """

    name: str
    run: Callable[[Lab], Awaitable[None]]
    ends: Stage
    questions: int
    requests: list[str]
    error: str | None = None
    check: Callable[[Lab, Evidence], None] | None = None


async def made(lab: Lab, flow: Flow, **faults: bool | int) -> None:
    """Make the directory with its ledger and a queued task; no question is asked yet."""
    policy = make_policy({}, requires_approval=flow is Flow.PAUSE)
    goal = Goal.RESERVED if flow is Flow.CHECKPOINT else Goal.COMPLETED
    async with lab.step("create"), lab.open(**faults) as runtime:
        await ensure_task(runtime, TASK, NewTask(lab.text.encode(), flow, policy, goal))


def here(lab: Lab, command: str, *options: str) -> list[str]:
    return [command, "--directory", str(lab.directory), *options]
