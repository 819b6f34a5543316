"""``fulfil review``: what waits for a person, and a person's repair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fulfillment_cli.cli.next_command import DEFAULT_TASK, Place, command_line, next_command
from fulfillment_cli.cli.recovery_options import RecoveryOptions
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.recovery.directories import DEFAULT_ROOT
from fulfillment_cli.report import Line, Report

if TYPE_CHECKING:
    from fulfillment_cli.recovery.review import Decision
    from fulfillment_cli.recovery.waiting import Waiting
    from fulfillment_cli.settings import Settings

_EXAMPLE = "For example: fulfil review --directory DIR --action close --actor NAME --reason TEXT."


def _own(name: str, text: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=text, show_default=False, **more)


def review(
    options: RecoveryOptions,
    root: Annotated[
        Path | None, typer.Argument(metavar="[ROOT]", help="Where to look for what waits.")
    ] = None,
    directory: Annotated[
        Path | None, _own("directory", "The task directory that is acted on.", metavar="DIR")
    ] = None,
    task: Annotated[
        str | None, _own("task", "Id of the task (default: task).", metavar="ID")
    ] = None,
    action: Annotated[
        Literal["requeue", "release", "close", "resubmit"] | None,
        _own("action", "What is done about it; needs --directory, --actor and --reason."),
    ] = None,
    actor: Annotated[str | None, _own("actor", "Who decides.", metavar="NAME")] = None,
    reason: Annotated[str | None, _own("reason", "Why, 1-500 characters.", metavar="TEXT")] = None,
    revision: Annotated[
        int | None,
        _own("revision", "Refuse where the task is at another revision.", metavar="N", min=1),
    ] = None,
    new_id: Annotated[
        str | None, _own("as", "Id of the new task of a resubmit.", metavar="NEW_ID")
    ] = None,
) -> Report:
    """List what waits for a person; with --action, do what a person decided."""
    from fulfillment_cli.settings import load_settings

    settings = load_settings(options.config, options.env_file)
    if action is None:
        if any(value is not None for value in (actor, reason, revision, new_id)):
            raise UsageError("--actor and --reason go with --action.", hint=_EXAMPLE)
        if directory is not None and root is not None:
            raise UsageError("Give either ROOT or --directory.")
        return _list(options, directory or root, task)
    if directory is None or actor is None or reason is None:
        raise UsageError("--action needs --directory, --actor and --reason.", hint=_EXAMPLE)
    from fulfillment_cli.recovery.review import Action, Decision

    decision = Decision(Action(action), actor, reason, revision, new_id)
    return options.invocation.run(
        _act(options, settings, directory, task or DEFAULT_TASK, decision)
    )


def _list(options: RecoveryOptions, root: Path | None, task: str | None) -> Report:
    from fulfillment_cli.adapters.clock import Clock
    from fulfillment_cli.recovery.directories import find_directories
    from fulfillment_cli.recovery.waiting import waiting_in
    from fulfillment_cli.viewing.spans import brief

    found: list[Waiting] = []
    for directory in find_directories(root or DEFAULT_ROOT):
        found += waiting_in(directory, Clock())
    if task is not None:
        found = [item for item in found if item.task == task]
    found.sort(key=lambda item: -(item.age or 0))
    lines: list[Line] = []
    items = []
    for item in found:
        commands = _commands(options, item)
        items.append(item.to_json() | {"commands": commands})
        about = f"{item.task or '(all)'} in {item.directory}"
        lines.append(Line(item.kind, about, "yellow" if item.kind == "paused" else "bold red"))
        lines.append(Line("  reason", f"{item.issue.code}: {item.issue.message}"))
        if item.age is not None:
            lines.append(Line("  age", brief(item.age)))
        lines += [Line("  do", command) for command in commands]
    lines.append(Line("waiting", str(len(found))))
    return Report({"waiting": items}, tuple(lines))


def _commands(options: RecoveryOptions, item: Waiting) -> list[str]:
    """The commands that a person may choose from."""
    checkpoint = item.checkpoint
    if checkpoint is None:
        return []
    place = _place(options, item.directory, checkpoint.id)
    if item.kind == "paused":
        if item.expired:
            return [command_line("pause", place, "--expires-in", "2h")]
        following = next_command(checkpoint, place)
        return [] if following is None else [following]
    actions = ["requeue"] if item.kind == "dead-letter" else []
    reservation = checkpoint.reservation
    if item.kind == "needs-review" and reservation is not None and reservation.status == "active":
        actions.append("release")
    return [
        command_line(
            "review",
            place,
            *("--action", action, "--actor", "NAME", "--reason", "TEXT"),
            *("--revision", str(checkpoint.revision)),
        )
        for action in (*actions, "close")
    ]


def _place(options: RecoveryOptions, directory: Path, task: str) -> Place:
    return Place(str(directory.absolute()), task, **options.repeated())


async def _act(
    options: RecoveryOptions, settings: Settings, directory: Path, task: str, decision: Decision
) -> Report:
    from fulfillment_cli.recovery.review import act
    from fulfillment_cli.report import task_report
    from fulfillment_cli.runtime import open_runtime

    place = _place(options, directory, task)
    async with open_runtime(
        directory,
        settings=settings,
        provider=options.provider,
        service_url=options.service_url,
        details=options.verbose,
    ) as runtime:
        result = await act(runtime, task, decision)
        following = next_command(result.checkpoint, place)
        if decision.new_id is not None:
            new = _place(options, directory, decision.new_id)
            following = next_command(runtime.store.load(decision.new_id), new)
        report = task_report(
            directory=place.directory,
            checkpoint=result.checkpoint,
            error=result.error,
            questions=result.questions,
            answer=None,
            note=result.note,
            following=following,
        )
    return _done(report)


def _done(report: Report) -> Report:
    """The exit status of a repair is about the repair: a stage that stays is no failure of it."""
    from dataclasses import replace

    released = report.document["result"]["stage"] not in ("needs-review", "uncertain")
    kept = report.document["checkpoint"]["closed"]
    return report if not (released or kept) else replace(report, exit_status=0)
