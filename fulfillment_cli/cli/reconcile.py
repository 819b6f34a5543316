"""``fulfil reconcile``: checkpoints and ledger side by side."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fulfillment_cli.cli.next_command import Place, command_line, next_command
from fulfillment_cli.cli.recovery_options import RecoveryOptions
from fulfillment_cli.domain.codes import EXIT_FAILED, EXIT_OK
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.domain.text import counted
from fulfillment_cli.recovery import audit
from fulfillment_cli.recovery.directories import DEFAULT_ROOT
from fulfillment_cli.report import Line, Report

if TYPE_CHECKING:
    from fulfillment_cli.recovery.audit import Difference
    from fulfillment_cli.recovery.reconcile import Reconciliation
    from fulfillment_cli.settings import Settings


def reconcile(
    options: RecoveryOptions,
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DIR]...", help="Task directories, or where to look for them."),
    ] = None,
) -> Report:
    """Compare every checkpoint with its ledger; writes nothing.

    A directory's own ledger is started to be asked; a ledger that starts finishes what a dead one
    had claimed. Exit status: 0 nothing differs, 1 something does.
    """
    from fulfillment_cli.settings import load_settings

    settings = load_settings(options.config, options.env_file)
    return options.invocation.run(_reconcile(options, settings, directories or [DEFAULT_ROOT]))


async def _reconcile(options: RecoveryOptions, settings: Settings, roots: list[Path]) -> Report:
    from fulfillment_cli.recovery.directories import find_directories
    from fulfillment_cli.recovery.reconcile import reconcile as compare

    found = [directory for root in roots for directory in find_directories(root)]
    directories = list(dict.fromkeys(found))
    result = await compare(directories, settings, service_url=options.service_url)
    return _report(options, result)


def _remedy(options: RecoveryOptions, difference: Difference) -> tuple[str | None, str]:
    """The command that would resolve it, where one would, and what it or a person does."""
    task, kind = difference.task, difference.kind
    if task is None:
        if kind == audit.RESULT_MISMATCH:
            path = Path(str(difference.directory)) / difference.key
            return shlex.join(["rm", str(path)]), "Nothing reads it."
        if kind == audit.STOCK_MISMATCH:
            return None, "Correct the stock at the ledger; no task is concerned."
        return None, "Restore the tasks.sqlite that had its task, or correct the ledger."
    checkpoint = task.checkpoint
    place = Place(str(task.directory), checkpoint.id, **options.repeated())
    if kind == audit.RESULT_MISMATCH:
        return command_line(checkpoint.flow, place), "Writes it again from the checkpoint."
    if kind == audit.RESERVATION_LEFT and checkpoint.stage is Stage.NEEDS_REVIEW:
        action = ("--action", "release", "--actor", "NAME", "--reason", "TEXT")
        revision = ("--revision", str(checkpoint.revision))
        return command_line("review", place, *action, *revision), "Tries the release again."
    if kind == audit.PLAN_MISMATCH or checkpoint.final:
        return None, "Restore tasks.sqlite and service.sqlite from copies of the same time."
    return next_command(checkpoint, place), "Looks the operation up and saves what it finds."


def _report(options: RecoveryOptions, result: Reconciliation) -> Report:
    differences: list[dict[str, Any]] = []
    lines: list[Line] = []
    for difference in result.differences:
        command, advice = _remedy(options, difference)
        document = difference.to_json()
        differences.append(document | {"command": command, "advice": advice})
        where = f"task {document['task']} in {document['directory']}"
        about = "no task is known" if difference.task is None else where
        lines.append(Line(difference.kind, f"{difference.key}: {about}", "bold red"))
        lines.append(Line("  saved", difference.saved))
        lines.append(Line("  found", difference.found))
        lines.append(Line("  do", command or advice))
    lines += [
        Line("not compared", f"{directory}: {error.code}: {error.message}", "yellow")
        for directory, error in result.not_compared.items()
    ]
    directories = counted(result.directories, "directory", "directories")
    about = f"{counted(result.tasks, 'task')} in {directories}"
    lines.append(Line("compared", f"{about}, {counted(len(differences), 'difference')}"))
    notes = []
    if result.moving:
        notes.append(f"left out, at work meanwhile: {counted(result.moving, 'task')}")
    if result.started:
        notes.append(
            f"started {counted(result.started, 'ledger')}, which finished "
            f"{counted(result.finished, 'operation')} that a dead one had claimed"
        )
    status = max((error.exit_status for error in result.not_compared.values()), default=EXIT_OK)
    return Report(
        {
            "differences": differences,
            "compared": {"directories": result.directories, "tasks": result.tasks},
            "moving": result.moving,
            "ledgersStarted": result.started,
            "claimedOperationsFinished": result.finished,
            "notCompared": [
                {"directory": str(directory), "code": error.code, "message": error.message}
                for directory, error in result.not_compared.items()
            ],
        },
        tuple(lines),
        EXIT_FAILED if differences else status,
        tuple(notes),
    )
