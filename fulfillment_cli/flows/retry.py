"""``retry``: the first read is over the byte limit; reads again with the size the error named."""

from __future__ import annotations

from fulfillment_cli.domain.order import Order
from fulfillment_cli.domain.stages import Flow
from fulfillment_cli.flows.entry import Entry, run_entry
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.runtime import Runtime


async def run_retry(
    runtime: Runtime,
    task_id: str = "task",
    *,
    request: str | bytes | None = None,
    expected: Order | None = None,
    max_attempts: int | None = None,
    initial_max_bytes: int | None = None,
) -> FlowResult:
    """Run or continue a ``retry`` task.

    Args:
        request: Order text of a new task, up to 65536 bytes; none continues an existing one.
        expected: The order that a generated text was made from, for its fixture.
        max_attempts: Reads of the text, 1 to 5; 3 by default.
        initial_max_bytes: Limit of the first read, 1 to 65536 bytes; 16 by default.

    Raises:
        FulfilError: See :mod:`fulfillment_cli.domain.errors`; what was saved stays.
    """
    entry = Entry(
        Flow.RETRY,
        task_id,
        request,
        expected,
        policy={"max_attempts": 3, "initial_max_bytes": 16},
        given={"max_attempts": max_attempts, "initial_max_bytes": initial_max_bytes},
    )
    return await run_entry(runtime, entry)
