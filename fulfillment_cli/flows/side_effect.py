"""``side-effect``: the reserve response is lost; the ledger is asked what happened.

Nothing is special about such a task: every flow looks up before it sends, and again where an
answer is unclear. This one meets a ledger that drops its answer.
"""

from __future__ import annotations

from fulfillment_cli.domain.order import Order
from fulfillment_cli.domain.stages import Flow
from fulfillment_cli.flows.entry import Entry, run_entry
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.runtime import Runtime


async def run_side_effect(
    runtime: Runtime,
    task_id: str = "task",
    *,
    request: str | bytes | None = None,
    expected: Order | None = None,
) -> FlowResult:
    """Run or continue a task to its end.

    Args:
        request: Order text of a new task, up to 65536 bytes; none continues an existing one.
        expected: The order that a generated text was made from, for its fixture.

    Raises:
        FulfilError: See :mod:`fulfillment_cli.domain.errors`; what was saved stays.
    """
    return await run_entry(runtime, Entry(Flow.SIDE_EFFECT, task_id, request, expected))
