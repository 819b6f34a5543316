"""``fulfil list``: one row a task over all directories, the newest first."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fulfillment_cli.cli.running import Invocation, abandon_stdout, say
from fulfillment_cli.domain.exits import EXIT_OF_STAGE
from fulfillment_cli.domain.order import printable
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.domain.text import columns_of, padded
from fulfillment_cli.report import Report, coloured

if TYPE_CHECKING:
    from fulfillment_cli.domain.errors import FulfilError
    from fulfillment_cli.viewing.listing import Row

_HEADING = ("AGE", "STAGE", "ORDER", "ATTEMPTS", "TASK", "DIRECTORY", "WAITS FOR")
_BELOW = ("", "", "", "attempts ", "task ", "", "waits for ")  # labels of what has no heading
_MEASURED = 200  # rows that the columns' widths are taken from; the rest is not waited for
_COLOUR_OF_EXIT = {0: "32", 4: "33"}


def list_(
    ctx: typer.Context,
    root: Annotated[
        Path, typer.Argument(metavar="[ROOT]", help="A task directory, or where to look for them.")
    ] = Path(".fulfil-tasks"),
    stage: Annotated[
        list[Stage] | None,
        typer.Option(
            "--stage", metavar="STAGE", help="Only at this stage; repeatable.", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="SPAN", help="Only what changed within it, as in 2h."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="At most so many.")
    ] = None,
    output: Annotated[
        Literal["text", "json", "jsonl"],
        typer.Option("--output", help="json: one document; jsonl: one object on each line."),
    ] = "text",
) -> Report:
    """List the tasks of all directories below ROOT, the last changed first."""
    from fulfillment_cli.cli.durations import parse_duration
    from fulfillment_cli.viewing.listing import Wanted, list_tasks

    invocation: Invocation = ctx.obj
    invocation.follow(output == "json", False, invocation.verbose)
    wanted = Wanted(
        tuple(dict.fromkeys(stage or ())),
        None if since is None else parse_duration(since, "--since"),
        limit,
    )
    warnings: list[dict[str, str]] = []

    def warn(directory: Path, error: FulfilError) -> None:
        warnings.append({"directory": str(directory), "code": error.code, "message": error.message})
        say(f"warning {error.code}: {printable(f'{directory}: {error.message}')}")

    rows = list_tasks(root, wanted, warn)
    if output == "json":
        return Report({"tasks": [row.to_json() for row in rows], "warnings": warnings}, ())
    try:
        count = _write_lines(rows) if output == "jsonl" else _write_table(rows)
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()  # the reader has what it wanted
        return Report({}, ())
    if not count and output == "text":
        invocation.say("no tasks" if not (stage or since) else "no such tasks")
    return Report({}, ())


def _write_lines(rows: Iterator[Row]) -> int:
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007 - the number of rows is wanted after it
        print(json.dumps(row.to_json(), ensure_ascii=True))
    return count


def _write_table(rows: Iterator[Row]) -> int:
    """Print rows in columns as wide as the first of them need, without waiting for the rest."""
    first = [_cells(row) for row in islice(rows, _MEASURED)]
    if not first:
        return 0
    widths = [max(map(columns_of, column)) for column in zip(_HEADING, *first, strict=True)]
    beside = _beside(widths)
    colours = coloured(sys.stdout)
    print(_line(_HEADING[:beside], widths))
    count = 0
    for cells in chain(first, map(_cells, rows)):
        count += 1
        below = [
            f"{' ' * (widths[0] + 2)}{label}{cell}"
            for label, cell in list(zip(_BELOW, cells, strict=True))[beside:]
            if cell not in ("-", "0")
        ]
        line = "\n".join((_line(cells[:beside], widths), *below))
        print(_with_colour(line, widths[0] + 2, cells[1]) if colours else line)
    return count


def _beside(widths: list[int]) -> int:
    """How many columns stand beside each other: on a narrow terminal the last ones go below."""
    if not sys.stdout.isatty():
        return len(widths)
    space = shutil.get_terminal_size().columns
    lengths = accumulate(width + 2 for width in widths)
    return max(2, sum(length - 2 <= space for length in lengths))


def _with_colour(line: str, begin: int, stage: str) -> str:
    colour = _COLOUR_OF_EXIT.get(EXIT_OF_STAGE[Stage(stage)], "1;31")
    end = begin + len(stage)
    return f"{line[:begin]}\x1b[{colour}m{line[begin:end]}\x1b[0m{line[end:]}"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    pairs = zip(cells, widths, strict=False)
    return "  ".join(padded(cell, width) for cell, width in pairs).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    from fulfillment_cli.viewing.spans import brief

    task, directory = row.task, row.directory
    with suppress(ValueError):
        directory = directory.relative_to(Path.cwd())
    order = "-" if task.sku is None else f"{task.quantity} x {task.sku}"
    cells = (
        *(brief(row.age), task.stage.value, order, str(task.attempts), task.id),
        *(str(directory), row.waits_for or "-"),
    )
    return tuple(map(printable, cells))
