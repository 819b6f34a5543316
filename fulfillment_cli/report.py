"""What a command did, or why it did not -> text for a person | one JSON document.

Commands return a :class:`Report` and print nothing; :func:`show` is the one renderer.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from fulfillment_cli.domain.exits import EXIT_OF_STAGE
from fulfillment_cli.domain.stage_info import safe_to_do
from fulfillment_cli.domain.text import columns_of, counted

if TYPE_CHECKING:
    from fulfillment_cli.domain.checkpoint import Checkpoint
    from fulfillment_cli.domain.errors import FulfilError
    from fulfillment_cli.domain.order import Issue, SessionAnswer

GOOD, WAITING, BAD = "green", "yellow", "bold red"
_STYLE_OF_EXIT = {0: GOOD, 4: WAITING}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text: ``label: value``.

    Attributes:
        label: What it is; indented by two where it belongs to the line above.
        value: What a program or a stranger may have written; shown escaped.
        style: How the value looks on a terminal, in rich's words.
    """

    label: str
    value: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a command has to say.

    Attributes:
        document: The whole of it, as JSON.
        lines: The same for a person.
        exit_status: The status that the command ends with.
        notes: Lines that go to stderr in text form.
        failed: It is an error: its lines go to stderr.
    """

    document: dict[str, Any]
    lines: tuple[Line, ...]
    exit_status: int = 0
    notes: tuple[str, ...] = ()
    failed: bool = False


def task_report(
    *,
    directory: str,
    checkpoint: Checkpoint,
    error: Issue | None,
    questions: int,
    answer: SessionAnswer | None,
    note: str | None,
    following: str | None,
) -> Report:
    """What one command did with one task (contract, section 2).

    Args:
        error: Why the task stands where it stands, or none.
        questions: Questions asked by this command.
        answer: A session's answer, or none.
        note: One line that a person should read, or none.
        following: The command that continues the task; none where nothing is left.
    """
    result: dict[str, Any] = {
        "stage": checkpoint.stage.value,
        "error": None if error is None else error.to_json(),
        "questions": questions,
    }
    if answer is not None:
        result["answer"] = answer.to_json()
    if note is not None:
        result["note"] = note
    status = EXIT_OF_STAGE[checkpoint.stage] if answer is None else 0
    lines = [Line("directory", directory)]
    asked = counted(questions, "question")
    lines.append(Line("result", f"{checkpoint.stage} ({asked})", _STYLE_OF_EXIT.get(status, BAD)))
    if error is not None:
        lines.append(Line("error", f"{error.code}: {error.message}", BAD))
    if answer is not None:
        lines.append(
            Line("answer", f"sku {answer.sku}, quantity {answer.quantity}, stage {answer.stage}")
        )
    lines += _checkpoint_lines(checkpoint)
    if following is not None:
        lines.append(Line("next", following, "bold"))
    elif error is not None:
        lines.append(Line("do", safe_to_do(checkpoint, directory)))
    return Report(
        document={
            "directory": directory,
            "result": result,
            "checkpoint": checkpoint.to_json(),
            "next": following,
        },
        lines=tuple(lines),
        exit_status=status,
        notes=() if note is None else (note,),
    )


def error_report(error: FulfilError, exit_status: int, following: str | None = None) -> Report:
    """Why a command was not done.

    Args:
        exit_status: Usually the error's own.
        following: The command that continues the task, where one is in hand.
    """
    return Report(
        document={
            "error": {"code": error.code, "message": error.message, "hint": error.hint},
        },
        lines=(Line(f"error {error.code}", f"{error.message} {error.hint}", BAD),),
        exit_status=exit_status,
        notes=() if following is None else (f"continue: {following}",),
        failed=True,
    )


def show(report: Report, *, as_json: bool, quiet: bool = False) -> None:
    """Print a report.

    Raises:
        OSError: Standard output cannot be written; ``BrokenPipeError`` where nobody reads it.
    """
    if as_json:
        _write_json(report.document, sys.stdout)
        return
    _write_lines(report.lines, sys.stderr if report.failed else sys.stdout)
    if not quiet:
        _write_lines(tuple(Line("", note) for note in report.notes), sys.stderr)


def _checkpoint_lines(checkpoint: Checkpoint) -> list[Line]:
    """The facts of a checkpoint that a person asks for; JSON has all of them."""
    lines = [
        Line(
            "checkpoint",
            f"task {checkpoint.id}, revision {checkpoint.revision}, flow {checkpoint.flow}, "
            f"goal {checkpoint.goal}",
        )
    ]
    order, reservation, shipment = checkpoint.order, checkpoint.reservation, checkpoint.shipment
    if order is not None:
        lines.append(Line("  order", f"{order.quantity} x {order.sku} to {order.address}"))
    if checkpoint.selected_source is not None:
        lines.append(Line("  catalog", checkpoint.selected_source))
    if checkpoint.approval is not None:
        lines.append(
            Line("  decision", f"{checkpoint.approval.decision} by {checkpoint.approval.actor}")
        )
    if reservation is not None:
        lines.append(Line("  reservation", f"{reservation.key}, {reservation.status}"))
    if shipment is not None:
        lines.append(Line("  shipment", f"{shipment.key} to {shipment.address}"))
    for label, issue in (
        ("  compensation error", checkpoint.compensation_error),
        ("  uncertainty", checkpoint.uncertainty),
    ):
        if issue is not None:
            lines.append(Line(label, f"{issue.code}: {issue.message}", BAD))
    return lines


def _write_json(document: dict[str, Any], stream: TextIO | None) -> None:
    from fulfillment_cli.domain.order import printable

    if stream is None:
        return
    text = json.dumps(document, ensure_ascii=False, indent=2 if stream.isatty() else None)
    # An escaped control or bidi character is the same character to every reader of JSON.
    safe = "\n".join(printable(line) for line in text.split("\n"))
    print(safe, file=stream, flush=True)


def _write_lines(lines: tuple[Line, ...], stream: TextIO | None) -> None:
    from fulfillment_cli.domain.order import printable

    if stream is None or not lines:
        return
    columns = shutil.get_terminal_size().columns if stream.isatty() else None
    shown = [
        (label, _fitted(label, printable(line.value), columns), line.style)
        for line in lines
        for label in (f"{line.label}: " if line.label else "",)
    ]
    if not coloured(stream):
        print("\n".join(label + value for label, value, _ in shown), file=stream, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, force_terminal=True, color_system="standard", highlight=False)
    text = Text("\n").join(
        Text.assemble((label, "dim"), (value, style)) for label, value, style in shown
    )
    # soft_wrap: a command that is to be copied must not be broken into lines.
    console.print(text, soft_wrap=True)
    stream.flush()


def _fitted(label: str, value: str, columns: int | None) -> str:
    """Sentences broken at spaces for a terminal; never within a command, or what is no sentence."""
    if columns is None or not value.endswith((".", "?")):
        return value
    lines, used = [""], columns_of(label)
    for word in re.findall(r"`[^`]*`\S*|\S+", value):
        space = " " if lines[-1].strip() else ""
        if space and used + 1 + columns_of(word) > columns:
            lines.append("  ")
            used, space = 2, ""
        lines[-1] += space + word
        used += columns_of(space + word)
    return "\n".join(lines)


def coloured(stream: TextIO) -> bool:
    """``NO_COLOR``, then ``FORCE_COLOR``, then whether a person reads the stream."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"
