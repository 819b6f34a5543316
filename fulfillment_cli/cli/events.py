"""``fulfil events``: the event log as a stream that a consumer can resume."""

from __future__ import annotations

import asyncio
import json
import select
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fulfillment_cli.cli.running import Invocation, abandon_stdout
from fulfillment_cli.cli.watching import watching
from fulfillment_cli.domain.errors import TaskNotFound, UsageError
from fulfillment_cli.recovery.directories import DEFAULT_ROOT, find_directories
from fulfillment_cli.report import Report

if TYPE_CHECKING:
    from fulfillment_cli.recovery.outbox import Outbox

POLL_SECONDS = 0.2


def events(
    ctx: typer.Context,
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="A task directory, or where to look for them.")
    ] = DEFAULT_ROOT,
    after: Annotated[
        int, typer.Option("--after", min=0, metavar="SEQ", help="Only events after this one.")
    ] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what is appended later.")
    ] = False,
    task: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="Only this task's events.")
    ] = None,
    output: Annotated[
        Literal["text", "jsonl"],
        typer.Option("--output", help="jsonl: one JSON object on each line."),
    ] = "text",
) -> Report:
    """Stream the event log: at least once, in order for each task.

    Sequence numbers are a directory's own: to resume with --after, name one directory.
    """
    from fulfillment_cli.recovery.outbox import Outbox

    invocation: Invocation = ctx.obj
    invocation.follow(False, False, invocation.verbose)
    found = find_directories(directory)
    if after and len(found) > 1:
        raise UsageError(
            f"{directory} holds {len(found)} task directories, each with its own sequence.",
            hint="Name one of them to resume with --after.",
        )
    if not found and directory != DEFAULT_ROOT:
        raise TaskNotFound(f"{directory} holds no tasks.")
    outbox = Outbox(after, task)
    write = _write_json if output == "jsonl" else _write_text

    async def stream() -> Report:
        with watching(invocation) if follow else nullcontext():
            return await _stream(directory, outbox, write, follow=follow)

    return invocation.run(stream())


async def _stream(
    root: Path, outbox: Outbox, write: Callable[[Path, dict[str, object]], None], *, follow: bool
) -> Report:
    try:
        while True:
            for directory in find_directories(root):
                for event in outbox.read(directory):
                    write(directory, event)
            sys.stdout.flush()
            if not follow or _nobody_reads():
                break
            await asyncio.sleep(POLL_SECONDS)
    except BrokenPipeError:
        abandon_stdout()  # the reader has what it wanted
    return Report({}, ())


def _nobody_reads() -> bool:
    """Whether the other end of stdout was closed while there was nothing to write."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(happened & (select.POLLERR | select.POLLNVAL) for _, happened in poll.poll(0))
    except (OSError, ValueError):
        return False


def _write_json(directory: Path, event: dict[str, object]) -> None:
    print(json.dumps(event | {"directory": str(directory)}, ensure_ascii=True))


def _write_text(directory: Path, event: dict[str, object]) -> None:
    from fulfillment_cli.domain.order import printable

    about = json.dumps(event["data"], ensure_ascii=False)
    facts = (event["seq"], event["at"], directory.name, event["taskId"], event["revision"])
    print(*facts, event["kind"], printable(about))
