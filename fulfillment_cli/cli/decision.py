"""The options that decide about a paused task, checked before the task is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.order import check_actor

if TYPE_CHECKING:
    from fulfillment_cli.cli.options import FlowOptions

_EXAMPLE = "For example: fulfil pause --directory DIR --decision approve --actor NAME."


def check_decision(
    options: FlowOptions, decision: str | None, actor: str | None, revision: int | None
) -> dict[str, Any] | None:
    """What is decided, as arguments of :func:`resume_paused`; none where nothing is.

    Raises:
        UsageError: The options do not go together; ``ACTOR_INVALID``.
    """
    if decision is None or actor is None:
        if decision is not None:
            raise UsageError("--decision needs --actor: who decides.", hint=_EXAMPLE)
        if actor is not None:
            raise UsageError("--actor needs --decision: approve or reject.", hint=_EXAMPLE)
        if revision is not None and "revision" in options.typed:
            raise UsageError("--revision goes with --decision and --actor.", hint=_EXAMPLE)
        return None
    if options.directory is None:
        raise UsageError("--decision needs --directory: the task it is about.", hint=_EXAMPLE)
    if options.request is not None and "request" in options.typed:
        raise UsageError("--request makes a task; a decision is about one that is there.")
    return {"decision": decision, "actor": check_actor(actor), "revision": revision}
