"""The eight commands, one for each way to fail and recover."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fulfillment_cli.cli.options import Common, with_common
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.stages import Flow

if TYPE_CHECKING:
    from fulfillment_cli.cli.execution import FlowCall

PANEL = "Flows: eight ways to fail and recover"


class Source(StrEnum):
    """Catalog sources."""

    PRIMARY = "primary"
    BACKUP = "backup"


class Decision(StrEnum):
    """What a person can decide."""

    APPROVE = "approve"
    REJECT = "reject"


def _own(variable: str | None, help: str, **more: Any) -> Any:
    envvar = None if variable is None else f"FULFIL_{variable}"
    return typer.Option(envvar=envvar, show_envvar=False, help=help, show_default=False, **more)


def register(app: typer.Typer) -> None:
    """Add the eight commands to the application."""
    commands: dict[Flow, Callable[..., None]] = {
        Flow.RETRY: retry,
        Flow.FALLBACK: fallback,
        Flow.TIMEOUT: timeout,
        Flow.CHECKPOINT: checkpoint,
        Flow.PAUSE: pause,
        Flow.SESSION: session,
        Flow.COMPENSATION: compensation,
        Flow.SIDE_EFFECT: side_effect,
    }
    for name, command in commands.items():
        app.command(str(name), rich_help_panel=PANEL)(with_common(command))


def _run(common: Common, flow: Flow, call: FlowCall) -> None:
    from fulfillment_cli.cli.execution import execute

    raise typer.Exit(execute(common, flow, call))


def retry(
    common: Common,
    max_attempts: Annotated[
        int | None, _own("MAX_ATTEMPTS", "Reads of the text. [1-5, default 3]", min=1, max=5)
    ] = None,
    initial_max_bytes: Annotated[
        int | None,
        _own(
            "INITIAL_MAX_BYTES",
            "Limit of the first read, in bytes. [1-65536, default 16]",
            min=1,
            max=65536,
        ),
    ] = None,
) -> None:
    """Read again, with the size that the error named."""

    def call(runtime: Any, new: bool, task: Any) -> Any:
        from fulfillment_cli.flows.retry import run_retry

        return run_retry(
            runtime,
            **task,
            max_attempts=common.typed_or_new("max_attempts", max_attempts, new=new),
            initial_max_bytes=common.typed_or_new("initial_max_bytes", initial_max_bytes, new=new),
        )

    _run(common, Flow.RETRY, call)


def fallback(
    common: Common,
    allow_source: Annotated[
        list[Source] | None,
        _own("ALLOW_SOURCE", "Catalog source to ask, in this order; repeatable. [default both]"),
    ] = None,
) -> None:
    """Ask an allowed backup when the catalog is unavailable."""

    def call(runtime: Any, new: bool, task: Any) -> Any:
        from fulfillment_cli.flows.fallback import run_fallback

        allowed = common.typed_or_new("allow_source", allow_source or None, new=new)
        sources = None if allowed is None else [source.value for source in allowed]
        return run_fallback(runtime, **task, allowed_sources=sources)

    _run(common, Flow.FALLBACK, call)


def timeout(
    common: Common,
    timeout_ms: Annotated[
        int | None,
        _own(
            "TIMEOUT_MS",
            "Deadline over the whole catalog read. [1-60000, default 75]",
            min=1,
            max=60_000,
        ),
    ] = None,
) -> None:
    """Stop before any write when a read passes its deadline."""

    def call(runtime: Any, new: bool, task: Any) -> Any:
        from fulfillment_cli.flows.timeout import run_timeout

        deadline = common.typed_or_new("timeout_ms", timeout_ms, new=new)
        return run_timeout(runtime, **task, timeout_ms=deadline)

    _run(common, Flow.TIMEOUT, call)


def checkpoint(
    common: Common,
    stop_after: Annotated[
        Literal["prepared", "reserved"] | None,
        _own(
            "STOP_AFTER",
            "Stop at this stage. [default: reserved for a new task, none for an existing one]",
        ),
    ] = None,
) -> None:
    """Stop at a confirmed stage; continue from it later."""

    def call(runtime: Any, new: bool, task: Any) -> Any:
        from fulfillment_cli.flows.checkpoint import run_checkpoint

        return run_checkpoint(runtime, **task, stop_after=stop_after)

    _run(common, Flow.CHECKPOINT, call)


def pause(
    common: Common,
    decision: Annotated[
        Decision | None, _own(None, "Decide about a paused task; needs --actor.")
    ] = None,
    actor: Annotated[
        str | None, _own(None, "Who decides, as you verified it.", metavar="NAME")
    ] = None,
    revision: Annotated[
        int | None,
        _own("REVISION", "Decide only if the task is still at this revision.", min=1, metavar="N"),
    ] = None,
) -> None:
    """Wait for a person's decision before any write."""
    if (decision is None) != (actor is None):
        raise UsageError("--decision and --actor go together.")
    if decision is not None and common.directory is None:
        raise UsageError("--decision needs --directory: only an existing task is decided about.")
    if decision is not None and common.typed("request"):
        raise UsageError("--decision does not go with --request.")

    def call(runtime: Any, new: bool, task: Any) -> Any:
        from fulfillment_cli.flows.pause import resume_paused, run_pause

        if decision is None or actor is None:
            return run_pause(runtime, **task)
        return resume_paused(runtime, decision.value, actor, task["task_id"], revision=revision)

    _run(common, Flow.PAUSE, call)


def session(
    common: Common,
    question: Annotated[
        str | None,
        _own("QUESTION", "About the order and its stage, up to 1000 characters.", metavar="TEXT"),
    ] = None,
) -> None:
    """Answer a question about the order, and verify it."""

    def call(runtime: Any, new: bool, task: Any) -> Any:
        from fulfillment_cli.flows.session import run_session

        return run_session(runtime, **task, question=question)

    _run(common, Flow.SESSION, call)


def compensation(common: Common) -> None:
    """Release the reservation when shipping is rejected."""

    def call(runtime: Any, new: bool, task: Any) -> Any:
        from fulfillment_cli.flows.compensation import run_compensation

        return run_compensation(runtime, **task)

    _run(common, Flow.COMPENSATION, call)


def side_effect(common: Common) -> None:
    """Ask the ledger when the answer to a write is lost."""

    def call(runtime: Any, new: bool, task: Any) -> Any:
        from fulfillment_cli.flows.side_effect import run_side_effect

        return run_side_effect(runtime, **task)

    _run(common, Flow.SIDE_EFFECT, call)
