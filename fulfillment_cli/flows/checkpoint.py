"""``checkpoint``: stops at a confirmed stage; entered again, goes on from it to the end."""

from __future__ import annotations

from typing import Literal

from fulfillment_cli.domain.order import Order
from fulfillment_cli.domain.stages import Flow, Goal
from fulfillment_cli.flows.entry import Entry, run_to
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.runtime import Runtime


async def run_checkpoint(
    runtime: Runtime,
    task_id: str = "task",
    *,
    request: str | bytes | None = None,
    expected: Order | None = None,
    stop_after: Literal["prepared", "reserved"] | None = None,
) -> FlowResult:
    """Run a task up to a stage, or continue any task to its end.

    The only way to continue a task that timed out, or to take one past its goal.

    Args:
        request: Order text of a new task, up to 65536 bytes; none continues an existing one.
        expected: The order that a generated text was made from, for its fixture.
        stop_after: Where to stop; by default ``reserved`` for a new task, the end for an
            existing one.

    Raises:
        FulfilError: See :mod:`fulfillment_cli.domain.errors`; what was saved stays.
    """
    goal = None if stop_after is None else Goal(stop_after)
    entry = Entry(Flow.CHECKPOINT, task_id, request, expected, goal=goal or Goal.RESERVED)
    return await run_to(runtime, entry, goal)
