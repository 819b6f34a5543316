"""``compensation``: shipping is rejected; the reservation is released again.

The release is an operation like any other, with a key of its own, and follows only a saved,
confirmed rejection of the shipment.
"""

from __future__ import annotations

from fulfillment_cli.domain.order import Order
from fulfillment_cli.domain.stages import Flow
from fulfillment_cli.flows.entry import Entry, run_entry
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.runtime import Runtime


async def run_compensation(
    runtime: Runtime,
    task_id: str = "task",
    *,
    request: str | bytes | None = None,
    expected: Order | None = None,
) -> FlowResult:
    """Run or continue a task whose rejected shipment is compensated.

    Args:
        request: Order text of a new task, up to 65536 bytes; none continues an existing one.
        expected: The order that a generated text was made from, for its fixture.

    Raises:
        FulfilError: See :mod:`fulfillment_cli.domain.errors`; what was saved stays.
    """
    entry = Entry(Flow.COMPENSATION, task_id, request, expected, policy={"compensates": True})
    return await run_entry(runtime, entry)
