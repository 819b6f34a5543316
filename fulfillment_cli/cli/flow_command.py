"""Runs one flow for one command: target, runtime, flow, report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fulfillment_cli.cli.next_command import command_line, next_command
from fulfillment_cli.cli.progress import Progress
from fulfillment_cli.cli.target import Target, find_target, require_own_task_id
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.order import printable
from fulfillment_cli.flows.creation import find
from fulfillment_cli.report import Report, task_report
from fulfillment_cli.runtime import open_runtime
from fulfillment_cli.settings import PACKAGED, load_settings

if TYPE_CHECKING:
    from fulfillment_cli.cli.options import FlowOptions
    from fulfillment_cli.cli.running import Invocation
    from fulfillment_cli.domain.stages import Flow
    from fulfillment_cli.flows.task_run import FlowResult
    from fulfillment_cli.settings import Settings

RunFlow = Callable[..., Awaitable["FlowResult"]]


def run_flow(
    options: FlowOptions,
    flow: Flow,
    function: RunFlow,
    *,
    policy: Mapping[str, tuple[str, Any]] | None = None,
    **others: Any,
) -> Report:
    """Run a flow function to its report.

    Args:
        policy: The command's policy options: parameter of ``function`` -> the option's name and
            value. From the environment they are for new tasks only.
        others: Further arguments of ``function``.
    """
    if options.quiet and options.verbose:
        raise UsageError("--quiet and --verbose exclude each other.")
    # Files of the user's may be pipes that nobody writes to: they are read before there is an event
    # loop, which a signal could not interrupt while it waits.
    settings = load_settings(options.config, options.env_file)
    target = find_target(options, flow, settings)
    _announce(options.invocation, settings, target, command_line(flow, target.place(options)))
    return options.invocation.run(_run(options, settings, target, function, policy or {}, others))


async def _run(
    options: FlowOptions,
    settings: Settings,
    target: Target,
    function: RunFlow,
    policy: Mapping[str, tuple[str, Any]],
    others: dict[str, Any],
) -> Report:
    invocation, place = options.invocation, target.place(options)
    with Progress(invocation) as progress:
        async with open_runtime(
            target.directory,
            stock=target.stock,
            faults=target.faults,
            settings=settings,
            provider=options.provider,
            service_url=options.service_url,
            progress=progress,
            details=invocation.verbose,
        ) as runtime:
            if target.request is not None and find(runtime, target.task) is None:
                require_own_task_id(options)
            given = {
                parameter: value
                for parameter, (name, value) in policy.items()
                if target.request is not None or name in options.typed
            }
            arguments = {"task_id": target.task} | _texts(target) | given | others
            result = await function(runtime, **arguments)
            invocation.outcome = task_report(
                directory=place.directory,
                checkpoint=result.checkpoint,
                error=result.error,
                questions=result.questions,
                answer=result.answer,
                note=result.note,
                following=next_command(result.checkpoint, place),
            )
    return invocation.outcome


def _announce(invocation: Invocation, settings: Settings, target: Target, following: str) -> None:
    """Tell where a new task will be, before anything is made.

    Whoever sees this process killed can go on with it.
    """
    invocation.continue_with = following
    if settings.source == PACKAGED:
        invocation.say(f"config: {PACKAGED} (there is no ditto.yaml here)")
    if target.new_directory:
        invocation.say(f"directory: {printable(str(target.directory))}")
        invocation.say(f"continue: {printable(following)}")


def _texts(target: Target) -> dict[str, Any]:
    """The arguments that make a task; none for a flow function that only continues one."""
    if target.request is None:
        return {}
    return {"request": target.request, "expected": target.expected}
