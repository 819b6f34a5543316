"""``fulfil show``: the story of one task, in the terminal, as JSON, or as a page."""

from __future__ import annotations

import asyncio
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fulfillment_cli.cli.next_command import Place, next_command
from fulfillment_cli.cli.recovery_options import RecoveryOptions
from fulfillment_cli.cli.running import abandon_stdout
from fulfillment_cli.cli.watching import watching
from fulfillment_cli.domain.exits import EXIT_OF_STAGE
from fulfillment_cli.domain.order import printable
from fulfillment_cli.domain.stage_info import STAGE_INFO, safe_to_do
from fulfillment_cli.domain.stages import FINAL
from fulfillment_cli.domain.text import wrapped
from fulfillment_cli.report import BAD, GOOD, WAITING, Line, Report, coloured

if TYPE_CHECKING:
    from fulfillment_cli.viewing.outside import Outside
    from fulfillment_cli.viewing.story import Moment, Story

POLL_SECONDS = 0.2
_STYLE_OF_TONE = {"plain": "", "good": GOOD, "warn": WAITING, "bad": BAD}
_ANSI = {"plain": "0", "good": "32", "warn": "33", "bad": "1;31"}


def show(
    options: RecoveryOptions,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The task directory.")],
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="ID", help="Id of the task (default: the only one)."),
    ] = None,
    remote: Annotated[
        bool, typer.Option("--remote", help="Ask the ledger what it knows; nothing is sent.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until the task is final.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write it as one self-contained page."),
    ] = None,
) -> Report:
    """Show what happened to a task, what is known of it, and what is safe to do now."""
    return options.invocation.run(_show(options, directory.absolute(), task, remote, follow, html))


async def _show(
    options: RecoveryOptions,
    directory: Path,
    task: str | None,
    remote: bool,
    follow: bool,
    html: Path | None,
) -> Report:
    from fulfillment_cli.viewing.story import whole_story

    status = 0
    told = False
    if follow:
        told = options.output == "text"
        with watching(options.invocation) if told else nullcontext():
            await _follow(directory, task, aloud=told)
    story = whole_story(directory, task)
    if follow:
        status = EXIT_OF_STAGE[story.checkpoint.stage]
    outside = await _ask(options, story) if remote else None
    if outside is not None and outside.error is not None:
        status = status or outside.error.exit_status
    following = next_command(story.checkpoint, _place(options, story))
    document = story.to_json() | {
        "remote": None if outside is None else outside.to_json(),
        "next": following,
    }
    lines = _head(story, outside, following)
    if html is not None:
        from fulfillment_cli.viewing.page import write_page

        write_page(html, story, outside, following)
        document["html"] = str(html)
        lines.append(Line("page", str(html)))
    elif not told:
        lines.append(Line("", ""))
        columns = _Columns()
        for moment in story.moments:
            style = _STYLE_OF_TONE[moment.told.tone]
            lines += [Line("", text, style) for text in columns(moment)]
    return Report(document, tuple(lines), status)


async def _follow(directory: Path, task: str | None, *, aloud: bool) -> None:
    """Print the story as it goes on, until it is final or nobody reads it."""
    from fulfillment_cli.viewing.story import Teller, read_story

    teller, columns = Teller(), _Columns()
    while True:
        story = read_story(directory, task, teller)
        try:
            for moment in story.moments if aloud else ():
                for text in columns(moment):
                    _print(text, moment)
            sys.stdout.flush()
        except BrokenPipeError:
            abandon_stdout()
            return
        if story.checkpoint.stage in FINAL and not story.running:
            return
        await asyncio.sleep(POLL_SECONDS)


def _print(text: str, moment: Moment) -> None:
    if coloured(sys.stdout) and moment.told.tone != "plain":
        text = f"\x1b[{_ANSI[moment.told.tone]}m{text}\x1b[0m"
    print(text)


class _Columns:
    """Lines of a story: time, gap since the line before, who, what; the date where it changes.

    On a terminal long lines go on below their beginning, on a narrow one all of them stand there;
    piped they stay whole.
    """

    def __init__(self) -> None:
        self._day = ""
        self._width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def __call__(self, moment: Moment) -> list[str]:
        from fulfillment_cli.adapters.clock import to_timestamp
        from fulfillment_cli.viewing.spans import exact

        day, _, time = to_timestamp(moment.at).partition("T")
        gap = f"+{exact(moment.gap)}" if moment.gap else ""
        dated = [f"{day} UTC"] if day != self._day else []
        self._day = day
        begin = f"{time[:12]}  {gap:>8}  {moment.told.lane:<6}  "
        text = printable(moment.told.text)
        if self._width is None:
            return [*dated, begin + text]
        if self._width < 2 * len(begin):
            below = wrapped(text, max(self._width - 2, 1))
            return [*dated, begin.rstrip(), *(f"  {line}" for line in below)]
        first, *rest = wrapped(text, self._width - len(begin))
        return [*dated, begin + first, *(" " * len(begin) + line for line in rest)]


def _head(story: Story, outside: Outside | None, following: str | None) -> list[Line]:
    """Where the task stands, before how it came there."""
    checkpoint = story.checkpoint
    info = STAGE_INFO[checkpoint.stage]
    tone = {0: GOOD, 4: WAITING}.get(EXIT_OF_STAGE[checkpoint.stage], BAD)
    lines = [
        Line("directory", str(story.directory)),
        Line("task", f"{checkpoint.id} (flow {checkpoint.flow}, goal {checkpoint.goal})"),
        Line("stage", f"{checkpoint.stage}: {info.meaning}", tone),
    ]
    if checkpoint.order is not None:
        order = checkpoint.order
        lines.append(Line("order", f"{order.quantity} x {order.sku} to {order.address}"))
    for label, issue in (
        ("error", checkpoint.error),
        ("compensation error", checkpoint.compensation_error),
        ("uncertain", checkpoint.uncertainty),
        ("last attempt", checkpoint.last_error),
    ):
        if issue is not None:
            lines.append(Line(label, f"{issue.code}: {issue.message}", BAD))
    lines.append(Line("known outside", story.known_outside))
    if outside is not None:
        lines.append(Line("the ledger says", outside.text))
    if story.running:
        about = "a process is at work on it: wait for it, or watch it with --follow"
        lines.append(Line("running", about, WAITING))
    lines.append(Line("safe to do", safe_to_do(checkpoint, str(story.directory))))
    if following is not None:
        lines.append(Line("next", following, "bold"))
    return lines


async def _ask(options: RecoveryOptions, story: Story) -> Outside:
    from fulfillment_cli.domain.errors import FulfilError
    from fulfillment_cli.runtime import open_runtime
    from fulfillment_cli.settings import load_settings
    from fulfillment_cli.viewing.outside import Outside, ask_outside

    try:
        async with open_runtime(
            story.directory,
            settings=load_settings(options.config, options.env_file),
            service_url=options.service_url,
            details=options.verbose,
        ) as runtime:
            return await ask_outside(runtime, story.checkpoint)
    except FulfilError as error:
        return Outside(error=error)


def _place(options: RecoveryOptions, story: Story) -> Place:
    return Place(str(story.directory), story.checkpoint.id, **options.repeated())
