"""The eight commands: each runs, or continues, one flow."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Literal

import typer

from fulfillment_cli.cli.options import FlowOptions
from fulfillment_cli.domain.stages import Flow
from fulfillment_cli.report import Report


class Source(StrEnum):
    """A catalog."""

    PRIMARY = "primary"
    BACKUP = "backup"


def _own(name: str, text: str, **more: Any) -> Any:
    """An option of one command; ``env=False`` for what decides."""
    variable = f"FULFIL_{name.upper().replace('-', '_')}" if more.pop("env", True) else None
    return typer.Option(f"--{name}", envvar=variable, help=text, show_default=False, **more)


def retry(
    options: FlowOptions,
    max_attempts: Annotated[
        int | None,
        _own("max-attempts", "Reads of the text (default: 3).", metavar="N", min=1, max=5),
    ] = None,
    initial_max_bytes: Annotated[
        int | None,
        _own(
            "initial-max-bytes",
            "Limit of the first read (default: 16).",
            metavar="BYTES",
            min=1,
            max=65536,
        ),
    ] = None,
) -> Report:
    """Read again with the size that the error named."""
    from fulfillment_cli.cli.flow_command import run_flow
    from fulfillment_cli.flows.retry import run_retry

    policy = {
        "max_attempts": ("max_attempts", max_attempts),
        "initial_max_bytes": ("initial_max_bytes", initial_max_bytes),
    }
    return run_flow(options, Flow.RETRY, run_retry, policy=policy)


def fallback(
    options: FlowOptions,
    allow_source: Annotated[
        list[Source] | None,
        _own(
            "allow-source",
            "A catalog that may be asked; repeatable, in order (default: both).",
            metavar="primary|backup",
        ),
    ] = None,
) -> Report:
    """Ask an allowed backup catalog where the primary one is unavailable."""
    from fulfillment_cli.cli.flow_command import run_flow
    from fulfillment_cli.domain.errors import UsageError
    from fulfillment_cli.flows.fallback import run_fallback

    if allow_source and len(set(allow_source)) != len(allow_source):
        raise UsageError("--allow-source names a source twice.", hint="Name each source once.")
    names = [str(source) for source in allow_source or ()] or None
    policy = {"allowed_sources": ("allow_source", names)}
    return run_flow(options, Flow.FALLBACK, run_fallback, policy=policy)


def timeout(
    options: FlowOptions,
    timeout_ms: Annotated[
        int | None,
        _own(
            "timeout-ms",
            "Deadline over the catalog read (default: 75).",
            metavar="MS",
            min=1,
            max=60000,
        ),
    ] = None,
) -> Report:
    """Stop before any write where the catalog read passes its deadline."""
    from fulfillment_cli.cli.flow_command import run_flow
    from fulfillment_cli.flows.timeout import run_timeout

    policy = {"timeout_ms": ("timeout_ms", timeout_ms)}
    return run_flow(options, Flow.TIMEOUT, run_timeout, policy=policy)


def checkpoint(
    options: FlowOptions,
    stop_after: Annotated[
        Literal["prepared", "reserved"] | None,
        _own("stop-after", "Where to stop (default: reserved for a new task, else the end)."),
    ] = None,
) -> Report:
    """Stop at a confirmed stage; with --directory, continue any task to its end."""
    from fulfillment_cli.cli.flow_command import run_flow
    from fulfillment_cli.flows.checkpoint import run_checkpoint

    return run_flow(options, Flow.CHECKPOINT, run_checkpoint, stop_after=stop_after)


def pause(
    options: FlowOptions,
    decision: Annotated[
        Literal["approve", "reject"] | None,
        _own("decision", "Decide about a paused task; needs --directory and --actor.", env=False),
    ] = None,
    actor: Annotated[str | None, _own("actor", "Who decides.", env=False, metavar="NAME")] = None,
    revision: Annotated[
        int | None,
        _own(
            "revision",
            "Refuse to decide where the task is at another revision.",
            metavar="N",
            min=1,
        ),
    ] = None,
    expires_in: Annotated[
        str | None,
        _own(
            "expires-in",
            "Refuse a decision after this time, such as 2h; opens an expired one again.",
            env=False,
            metavar="TIME",
        ),
    ] = None,
) -> Report:
    """Wait for a person's decision before anything is written outside."""
    from fulfillment_cli.cli.decision import check_decision
    from fulfillment_cli.cli.durations import parse_duration
    from fulfillment_cli.cli.flow_command import run_flow
    from fulfillment_cli.domain.errors import UsageError
    from fulfillment_cli.flows.pause import resume_paused, run_pause

    decided = check_decision(options, decision, actor, revision)
    if decided is None:
        seconds = None if expires_in is None else parse_duration(expires_in, "--expires-in")
        return run_flow(options, Flow.PAUSE, run_pause, expires_in=seconds)
    if expires_in is not None:
        raise UsageError("--expires-in sets the time for a decision; it does not go with one.")
    # A decision makes no task: a text from the environment is not meant for it.
    return run_flow(replace(options, request=None), Flow.PAUSE, resume_paused, **decided)


def session(
    options: FlowOptions,
    question: Annotated[
        str | None,
        _own("question", "Up to 1000 characters (default: what is ordered, and its stage)."),
    ] = None,
) -> Report:
    """Answer a question about an order from its restored context."""
    from fulfillment_cli.cli.flow_command import run_flow
    from fulfillment_cli.cli.inputs import check_question
    from fulfillment_cli.flows.session import run_session

    return run_flow(options, Flow.SESSION, run_session, question=check_question(question))


def compensation(options: FlowOptions) -> Report:
    """Release the reservation again where the shipment is rejected."""
    from fulfillment_cli.cli.flow_command import run_flow
    from fulfillment_cli.flows.compensation import run_compensation

    return run_flow(options, Flow.COMPENSATION, run_compensation)


def side_effect(options: FlowOptions) -> Report:
    """Ask the ledger what happened where the answer to a write was lost."""
    from fulfillment_cli.cli.flow_command import run_flow
    from fulfillment_cli.flows.side_effect import run_side_effect

    return run_flow(options, Flow.SIDE_EFFECT, run_side_effect)
