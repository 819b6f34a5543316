"""Run one flow command: where it works, what it is given, how it is interrupted and reported."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fulfillment_cli import report
from fulfillment_cli.cli.inputs import generate_order, merge_faults, read_inventory, read_request
from fulfillment_cli.cli.options import Common, Output
from fulfillment_cli.domain.codes import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REVIEW,
    EXIT_SIGTERM,
    EXIT_UNFINISHED,
)
from fulfillment_cli.domain.commands import continue_command, next_command
from fulfillment_cli.domain.errors import FulfilError, TaskNotFound, UsageError
from fulfillment_cli.domain.order import Order
from fulfillment_cli.domain.stages import Flow, Stage
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.runtime import Runtime, open_runtime
from fulfillment_cli.settings import Settings, load_settings

TASKS_ROOT = ".fulfil-tasks"

FlowCall = Callable[[Runtime, bool, dict[str, Any]], Awaitable[FlowResult]]
"""A flow with its own options bound: runtime, whether a task is made, its common arguments."""

Result = TypeVar("Result")

_EXIT_OF_STAGE = {
    Stage.FAILED: EXIT_FAILED,
    Stage.NEEDS_REVIEW: EXIT_REVIEW,
    Stage.TIMED_OUT: EXIT_UNFINISHED,
    Stage.UNCERTAIN: EXIT_UNFINISHED,
    Stage.QUEUED: EXIT_UNFINISHED,
}


class Interrupted(FulfilError):
    """A signal ended the command; the saved checkpoint stays."""

    default_code = "INTERRUPTED"

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = EXIT_SIGTERM if number == signal.SIGTERM else None


@dataclass(frozen=True, slots=True)
class Target:
    """Where a command works, and what it makes a new task from.

    Attributes:
        new: Whether the directory is yet to be made.
        request, expected: Text of a new task, and the order it was generated from.
        stock, faults: For a ledger that is yet to be made.
    """

    directory: Path
    new: bool
    request: bytes | None = None
    expected: Order | None = None
    stock: dict[str, int] | None = None
    faults: dict[str, bool | int] | None = None


def execute(common: Common, flow: Flow, call: FlowCall) -> int:
    """Run a flow command to its report; its exit status.

    Raises:
        FulfilError: Nothing was reported yet; the caller does.
    """
    settings = load_settings(common.config, common.env_file)
    target = _target(common, flow)
    options = _repeated(common)
    again = continue_command(flow, target.directory, common.task, options)
    progress = report.Progress(quiet=common.quiet, verbose=common.verbose)
    if settings.source == "packaged default":
        progress.note("no ditto.yaml here: using the packaged default")
    if target.new:
        progress.note(f"directory: {target.directory}")
        progress.note(f"continue: {again}")
    try:
        with progress:
            result: FlowResult = interruptible(
                lambda done: _run(common, call, settings, target, progress, done)
            )
    except FulfilError as error:
        if error.exit_status in (EXIT_UNFINISHED,) or isinstance(error, Interrupted):
            error.hint = f"Continue with: {again}"
        raise
    if result.note:
        progress.note(result.note)
    document = _document(result, target.directory, options)
    report.show_result(document, as_json=common.output is Output.JSON)
    return EXIT_OK if result.answer else _EXIT_OF_STAGE.get(result.stage, EXIT_OK)


def _document(result: FlowResult, directory: Path, options: list[str]) -> dict[str, Any]:
    outcome: dict[str, Any] = {
        "stage": result.stage,
        "error": result.error.to_json() if result.error else None,
        "questions": result.questions,
    }
    if result.answer is not None:
        outcome["answer"] = result.answer.to_json()
    if result.note is not None:
        outcome["note"] = result.note
    return {
        "directory": str(directory),
        "result": outcome,
        "checkpoint": result.checkpoint.to_json(),
        "next": next_command(result.checkpoint, directory, options),
    }


async def _run(
    common: Common,
    call: FlowCall,
    settings: Settings,
    target: Target,
    progress: report.Progress,
    done: Callable[[FlowResult], None],
) -> None:
    async with open_runtime(
        target.directory,
        stock=target.stock,
        faults=target.faults,
        settings=settings,
        provider=common.provider,
        service_url=common.service_url,
        progress=progress,
        details=common.verbose,
    ) as runtime:
        task = {
            "task_id": common.task,
            "request": target.request,
            "expected": target.expected,
        }
        done(await call(runtime, target.request is not None, task))


def interruptible(work: Callable[[Callable[[Result], None]], Awaitable[None]]) -> Result:
    """Run asynchronous work under SIGINT and SIGTERM.

    The work tells its result as soon as it has one: a signal that comes while things are closed
    does not take it back. A second signal ends the process at once; what is saved is saved.

    Raises:
        Interrupted: A signal came before there was a result.
    """
    results: list[Result] = []
    received: list[int] = []

    async def supervised() -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def on_signal(number: int) -> None:
            if received:
                os._exit(128 + number)
            received.append(number)
            if task is not None:
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        await work(results.append)

    try:
        asyncio.run(supervised())
    except asyncio.CancelledError:
        if not results:
            raise Interrupted(received[0] if received else signal.SIGINT) from None
    return results[0]


def _target(common: Common, flow: Flow) -> Target:
    if common.directory is not None:
        return _existing(common)
    if common.service_url is not None and not common.typed("task"):
        raise UsageError(
            "--service-url needs --task for a new task: ids must be unique in a ledger."
        )
    directory = Path.cwd() / TASKS_ROOT / f"cli-{secrets.token_hex(4)}"
    if common.service_url is not None and (common.inventory or common.fault):
        raise UsageError("--inventory and --fault are for a ledger that is started here.")
    faults = merge_faults(flow, common.fault or [])
    if common.request is None:
        if common.inventory is not None:
            raise UsageError("--inventory goes with --request; a generated order has its stock.")
        order, text, generated = generate_order()
        return Target(directory, True, text.encode(), order, generated, faults)
    stock = _stock(common)
    return Target(directory, True, read_request(common.request), None, stock, faults)


def _stock(common: Common) -> dict[str, int] | None:
    if common.inventory is not None:
        return read_inventory(common.inventory)
    if common.service_url is not None:
        return None
    raise UsageError(
        "--request needs the stock of the ledger that is started for it.",
        code="INVENTORY_INVALID",
        hint="Give --inventory FILE, or --service-url of a ledger that is already up.",
    )


def _existing(common: Common) -> Target:
    assert common.directory is not None
    for option in ("inventory", "fault"):
        if common.typed(option):
            raise UsageError(f"--{option} is for a new directory only.")
    directory = common.directory.absolute()
    if not directory.is_dir():
        raise TaskNotFound(f"There is no directory {directory}.", code="DIRECTORY_NOT_FOUND")
    # A variable that is set for new tasks must not make one out of `--directory DIR`.
    named = common.request if common.typed("request") else None
    return Target(directory, False, None if named is None else read_request(named))


def _repeated(common: Common) -> list[str]:
    """The options that the next command needs again to find ledger, model and credentials."""
    names = ("service_url", "provider", "config", "env_file")
    return [
        part
        for name in names
        if common.typed(name)
        for part in ("--" + name.replace("_", "-"), str(_absolute(getattr(common, name))))
    ]


def _absolute(value: Any) -> Any:
    return value.absolute() if isinstance(value, Path) else value
