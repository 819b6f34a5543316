"""A result or an error -> text for a person, or one JSON document. Nothing else prints.

Results go to stdout; progress, notes and errors to stderr. Colour and a spinner only where a
person reads: the stream is a terminal (or FORCE_COLOR is set) and NO_COLOR is not. Piped text is
never wrapped or cut.
"""

from __future__ import annotations

import json
import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from fulfillment_cli.domain.errors import FulfilError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

# Stages and error codes as people should see them at a glance.
_STYLES = {
    "completed": "bold green",
    "compensated": "green",
    "approved": "green",
    "prepared": "cyan",
    "reserved": "bold cyan",
    "paused": "bold yellow",
    "timed-out": "bold yellow",
    "uncertain": "bold yellow",
    "rejected": "magenta",
    "needs-review": "bold red",
    "failed": "bold red",
}


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads the stream."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def coloured(stream: TextIO) -> bool:
    """Whether the stream gets colour: NO_COLOR, then FORCE_COLOR, then whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_terminal(stream)


def console(stream: TextIO) -> Console:
    """A console on the stream that never wraps or interprets what it is given."""
    from rich.console import Console

    return Console(
        file=stream,
        force_terminal=coloured(stream),
        no_color=not coloured(stream),
        soft_wrap=True,
        highlight=False,
        markup=False,
        emoji=False,
    )


def say(stream: TextIO, *parts: tuple[str, str | None]) -> None:
    """One line of text in styles, the styles only where the stream has colour."""
    if not coloured(stream):
        print("".join(text for text, _ in parts), file=stream, flush=True)
        return
    from rich.text import Text

    console(stream).print(Text.assemble(*((text, style or "") for text, style in parts)))


def show_json(document: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(document, ensure_ascii=False))


def show_error(error: FulfilError, *, as_json: bool) -> None:
    """An error as one line on stderr, or as a JSON document on stdout."""
    if as_json:
        body = {"code": error.code, "message": error.message, "hint": error.hint}
        show_json({"error": body})
        return
    message = one_line(error.message)
    say(
        sys.stderr,
        (f"{error.code}: ", "bold red"),
        (f"{message} ", None),
        (one_line(error.hint), "dim"),
    )


def one_line(text: str) -> str:
    """Text with line breaks, control and bidi-override characters made visible."""
    from fulfillment_cli.domain.order import printable

    return printable(" ".join(text.split("\n")))


def show_result(document: dict[str, Any], *, as_json: bool) -> None:
    """What a command did and what is saved."""
    if as_json:
        show_json(document)
        return
    result, checkpoint = document["result"], document["checkpoint"]
    lines: list[tuple[str, list[tuple[str, str | None]]]] = [
        ("directory", [(document["directory"], None)]),
        ("result", _result_parts(result)),
    ]
    if "answer" in result:
        answer = result["answer"]
        facts = f"{answer['quantity']} x {answer['sku']}, {answer['stage']}"
        lines.append(("answer", [(facts, "bold")]))
    lines.append(("checkpoint", [(_checkpoint_line(checkpoint), None)]))
    lines += [(f"  {name}", [(value, None)]) for name, value in _checkpoint_facts(checkpoint)]
    if document["next"]:
        lines.append(("next", [(document["next"], "bold")]))
    for name, parts in lines:
        shown = [(one_line(text), style) for text, style in parts]
        say(sys.stdout, (f"{name + ':':15}", "dim"), *shown)


def _result_parts(result: dict[str, Any]) -> list[tuple[str, str | None]]:
    questions = result["questions"]
    asked = {0: "no question asked", 1: "1 question asked"}.get(
        questions, f"{questions} questions asked"
    )
    parts: list[tuple[str, str | None]] = [
        (result["stage"], _STYLES.get(result["stage"])),
        (f" ({asked})", "dim"),
    ]
    if result["error"]:
        error = result["error"]
        parts += [("  " + error["code"], "red"), (": " + error["message"], None)]
    return parts


def _checkpoint_line(checkpoint: dict[str, Any]) -> str:
    return (
        f"{checkpoint['stage']}, revision {checkpoint['revision']}, "
        f"task {checkpoint['id']}, flow {checkpoint['flow']}, goal {checkpoint['goal']}"
    )


def _checkpoint_facts(checkpoint: dict[str, Any]) -> list[tuple[str, str]]:
    """The saved facts worth a line each."""
    facts: list[tuple[str, str]] = []
    if order := checkpoint["order"]:
        facts.append(("order", f"{order['quantity']} x {order['sku']} to {order['address']}"))
    if source := checkpoint["selectedSource"]:
        facts.append(("catalog", source))
    if approval := checkpoint["approval"]:
        facts.append(("decision", f"{approval['decision']} by {approval['actor']}"))
    if reservation := checkpoint["reservation"]:
        facts.append(("reservation", f"{reservation['key']} ({reservation['status']})"))
    if shipment := checkpoint["shipment"]:
        facts.append(("shipment", shipment["key"]))
    if failed := checkpoint["compensationError"]:
        facts.append(("compensation", f"{failed['code']}: {failed['message']}"))
    return facts


class Progress:
    """What is being done, on stderr.

    On a terminal: a spinner with the newest line, gone at the end. With ``verbose``: every line
    with the seconds since the start, wherever stderr goes. Otherwise silent.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self._quiet = quiet
        self._verbose = verbose and not quiet
        self._started = time.monotonic()
        self._spinner: Status | None = None

    def note(self, text: str) -> None:
        """A line that a person should read, terminal or not; silent with ``--quiet``."""
        if not self._quiet:
            say(sys.stderr, (one_line(text), "dim"))

    def __call__(self, text: str) -> None:
        """One step, in a few words."""
        if self._verbose:
            seconds = time.monotonic() - self._started
            say(sys.stderr, (f"{seconds:8.3f}s  ", "dim"), (one_line(text), None))
        elif self._spinner is not None:
            from rich.text import Text

            self._spinner.update(Text(one_line(text)))

    def __enter__(self) -> Self:
        if not self._quiet and not self._verbose and is_terminal(sys.stderr):
            self._spinner = console(sys.stderr).status("")
            self._spinner.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None
        self("done")
