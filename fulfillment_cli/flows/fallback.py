"""``fallback``: the primary catalog is unavailable; an allowed backup answers instead.

Only ``UNAVAILABLE`` goes on to the next source: a business refusal is never hidden by asking
somebody else.
"""

from __future__ import annotations

from collections.abc import Sequence

from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.order import Order, SourceName
from fulfillment_cli.domain.stages import Flow
from fulfillment_cli.flows.entry import Entry, run_entry
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.runtime import Runtime


async def run_fallback(
    runtime: Runtime,
    task_id: str = "task",
    *,
    request: str | bytes | None = None,
    expected: Order | None = None,
    allowed_sources: Sequence[SourceName] | None = None,
) -> FlowResult:
    """Run or continue a ``fallback`` task.

    Args:
        request: Order text of a new task, up to 65536 bytes; none continues an existing one.
        expected: The order that a generated text was made from, for its fixture.
        allowed_sources: One or both of ``primary`` and ``backup``, each once, in the order they
            are asked; both by default.

    Raises:
        FulfilError: See :mod:`fulfillment_cli.domain.errors`; what was saved stays.
    """
    if allowed_sources is not None and not allowed_sources:
        raise UsageError("At least one catalog source must be allowed.")
    entry = Entry(
        Flow.FALLBACK,
        task_id,
        request,
        expected,
        policy={"allowed_sources": ("primary", "backup")},
        given={"allowed_sources": None if allowed_sources is None else tuple(allowed_sources)},
    )
    return await run_entry(runtime, entry)
