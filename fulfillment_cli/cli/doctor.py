"""``fulfil doctor``: whether orders can run here, and what to do where they cannot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fulfillment_cli.cli.progress import Progress
from fulfillment_cli.cli.recovery_options import RecoveryOptions
from fulfillment_cli.report import BAD, GOOD, Line, Report

if TYPE_CHECKING:
    from fulfillment_cli.viewing.doctor import Finding


def doctor(
    options: RecoveryOptions,
    root: Annotated[
        Path, typer.Argument(metavar="[ROOT]", help="Where the task directories are, or will be.")
    ] = Path(".fulfil-tasks"),
    request: Annotated[
        bool, typer.Option("--request", help="Also ask the model one small question.")
    ] = False,
) -> Report:
    """Check configuration, model, database, file system, clock and permissions."""
    return options.invocation.run(_examine(options, root, request))


async def _examine(options: RecoveryOptions, root: Path, request: bool) -> Report:
    from fulfillment_cli.viewing.doctor import examine, examine_model

    found, settings = examine(root, options.config, options.env_file, options.provider)
    if request and settings is not None:
        with Progress(options.invocation) as progress:
            found.append(await examine_model(settings, options.provider, progress))
    return _report(found)


def _report(found: list[Finding]) -> Report:
    lines = []
    for finding in found:
        mark, style = ("ok", GOOD) if finding.ok else ("WRONG", BAD)
        lines.append(Line(f"{mark:5} {finding.name}", finding.detail, style))
        if finding.hint is not None:
            lines.append(Line("      do", finding.hint))
    right = all(finding.ok for finding in found)
    document = {"ok": right, "checks": [finding.to_json() for finding in found]}
    return Report(document, tuple(lines), 0 if right else 1)
