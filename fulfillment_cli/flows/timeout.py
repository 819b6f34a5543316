"""``timeout``: the catalog read passes its deadline; the task stays ``timed-out``, unwritten."""

from __future__ import annotations

from fulfillment_cli.domain.order import Order
from fulfillment_cli.domain.stages import Flow
from fulfillment_cli.flows.entry import Entry, run_entry
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.runtime import Runtime


async def run_timeout(
    runtime: Runtime,
    task_id: str = "task",
    *,
    request: str | bytes | None = None,
    expected: Order | None = None,
    timeout_ms: int | None = None,
) -> FlowResult:
    """Run or continue a ``timeout`` task; one that timed out stays so, see ``run_checkpoint``.

    Args:
        request: Order text of a new task, up to 65536 bytes; none continues an existing one.
        expected: The order that a generated text was made from, for its fixture.
        timeout_ms: Deadline over the whole catalog read, 1 to 60000 ms; 75 by default.

    Raises:
        FulfilError: See :mod:`fulfillment_cli.domain.errors`; what was saved stays.
        asyncio.CancelledError: The caller cancelled; never turned into a timeout.
    """
    entry = Entry(
        Flow.TIMEOUT,
        task_id,
        request,
        expected,
        policy={"allowed_sources": ("primary",), "timeout_ms": 75},
        given={"timeout_ms": timeout_ms},
    )
    return await run_entry(runtime, entry)
