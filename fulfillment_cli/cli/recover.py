"""``fulfil recover``: the sweep, once or for as long as the process runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fulfillment_cli.cli.recovery_options import RecoveryOptions
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.text import counted
from fulfillment_cli.recovery.directories import DEFAULT_ROOT
from fulfillment_cli.report import Line, Report

if TYPE_CHECKING:
    from fulfillment_cli.recovery.summary import Pass
    from fulfillment_cli.settings import Settings

WATCH_DELAY_SECONDS = 3.0
"""How long a service waits before its first pass, so that what it needs is up, too (seeds/001)."""


def _own(name: str, text: str, variable: str | None = None, **more: Any) -> Any:
    return typer.Option(f"--{name}", envvar=variable, help=text, show_default=False, **more)


@dataclass(frozen=True)
class Watch:
    """Whether and how passes follow each other; times in seconds."""

    on: bool
    interval: float
    delay: float


def recover(
    options: RecoveryOptions,
    root: Annotated[
        Path, typer.Argument(metavar="[ROOT]", help="Where to look for task directories.")
    ] = DEFAULT_ROOT,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="Most tasks of a pass.")
    ] = 100,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=64, metavar="N", help="Directories side by side.")
    ] = 2,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    disable: Annotated[
        bool | None,
        typer.Option(
            "--disable/--enable",
            envvar="DISABLE_PROCESS_RESTORE",
            help="Do nothing.",
            show_default=False,
        ),
    ] = None,
    max_attempts: Annotated[
        int | None,
        _own(
            "max-attempts",
            "Attempts before a task is a dead letter (default: 3).",
            "MAX_RETRY_ATTEMPTS",
            metavar="N",
            min=1,
            max=100,
        ),
    ] = None,
    startup_delay: Annotated[
        float | None,
        _own(
            "startup-delay",
            "Seconds before the first pass (default: 3 with --watch, else 0).",
            "STARTUP_DELAY",
            metavar="S",
            min=0,
            max=3600,
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Sweep again and again.")] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", min=0.1, max=86400, metavar="S", help="Seconds between passes."),
    ] = 30.0,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        _own(
            "log-level",
            "What is logged on stderr: debug, info (default), warning or error.",
            "LOG_LEVEL",
            metavar="LEVEL",
            case_sensitive=False,
        ),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option("--log-format", help="How it is logged; json: one object on each line."),
    ] = "text",
    create: Annotated[
        int | None,
        _own(
            "create",
            "Make N interrupted tasks below ROOT to try it on.",
            metavar="N",
            min=1,
            max=1000,
        ),
    ] = None,
    cleanup: Annotated[
        bool, typer.Option("--cleanup", help="Remove what --create made below ROOT.")
    ] = False,
) -> Report:
    """Continue every unfinished task below ROOT from its saved plan, up to its saved goal.

    Exit status 0: nothing is left; 3: something needs a person; 4: for a later pass.
    """
    from fulfillment_cli.settings import load_settings

    if dry_run and watch:
        raise UsageError("--dry-run and --watch exclude each other.")
    settings = load_settings(options.config, options.env_file)
    if create is not None or cleanup:
        from fulfillment_cli.cli.recover_trial import make_or_remove

        return make_or_remove(options, root, create, cleanup=cleanup)
    given = {"disabled": disable, "max_attempts": max_attempts, "log_level": log_level}
    settings = _with_recovery(settings, **given)
    if settings.recovery.disabled:
        return Report({"disabled": True}, (Line("recover", "disabled; nothing was done"),))
    delay = settings.recovery.startup_delay if startup_delay is None else startup_delay
    if delay is None:
        delay = WATCH_DELAY_SECONDS if watch else 0.0
    sweep = _sweep_options(options, settings, root, limit, jobs, dry_run)
    return options.invocation.run(
        _recover(options, settings, sweep, Watch(watch, interval, delay), log_format)
    )


def _with_recovery(settings: Settings, **given: Any) -> Settings:
    """The configuration, with what options and variables say instead."""
    changed = {name: value for name, value in given.items() if value is not None}
    return settings.model_copy(update={"recovery": settings.recovery.model_copy(update=changed)})


def _sweep_options(
    options: RecoveryOptions, settings: Settings, root: Path, limit: int, jobs: int, dry_run: bool
) -> Any:
    import random

    from fulfillment_cli.recovery.attempt import Retry
    from fulfillment_cli.recovery.sweep import SweepOptions

    recovery = settings.recovery
    retry = Retry(
        recovery.max_attempts, recovery.backoff_base, recovery.backoff_cap, random.Random()
    )
    return SweepOptions(root, retry, limit, jobs, dry_run, options.service_url, options.provider)


async def _recover(
    options: RecoveryOptions,
    settings: Settings,
    sweep_options: Any,
    watch: Watch,
    log_format: Literal["text", "json"],
) -> Report:
    import asyncio
    from contextlib import suppress

    from fulfillment_cli.cli.recovery_options import logging_to_stderr
    from fulfillment_cli.recovery.sweep import Sweep

    stop = asyncio.Event()
    sweep = Sweep(settings, sweep_options, stopping=stop.is_set)

    async def pause(seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)

    if watch.on:
        loop = asyncio.get_running_loop()
        # A service is asked to end: it finishes the step in hand, and that is a success.
        options.invocation.signals.cancel = lambda: loop.call_soon_threadsafe(stop.set)
    level = "error" if options.quiet else settings.recovery.log_level
    with logging_to_stderr(level, log_format):
        await pause(watch.delay) if watch.delay else None
        passes = 0
        last: Pass | None = None
        while not stop.is_set():
            last = await sweep.run_pass()
            passes += 1
            if not watch.on:
                break
            await pause(watch.interval)
    return _report(sweep_options.root, last, passes, watched=watch.on)


def _report(root: Path, last: Pass | None, passes: int, *, watched: bool) -> Report:
    """The last pass; a service that was asked to end has done what it was for."""
    document: dict[str, Any] = {"root": str(root.absolute()), "passes": passes}
    if last is None:
        return Report(document, (Line("recover", "stopped before the first pass"),))
    lines = [Line("", line) for line in _columns(last.table())] if last.found else []
    if last.dry_run:
        lines = [Line("would continue", f"{one.task} in {one.directory}") for one in last.planned]
    lines += [
        Line("problem", f"{where}: {issue.code}: {issue.message}", "yellow")
        for where, issue in last.problems.items()
    ]
    if last.skipped:
        lines.append(Line("skipped", f"{counted(last.skipped, 'task')} of another ledger"))
    left = f"{last.unfinished} unfinished, {last.needs_person} for a person (fulfil review)"
    if last.left.next_attempt_at:
        left += f"; next attempt at {last.left.next_attempt_at}"
    lines.append(Line("left", left))
    return Report(document | last.to_json(), tuple(lines), 0 if watched else last.exit_status)


def _columns(rows: list[list[str]]) -> list[str]:
    """Rows as lines of text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
