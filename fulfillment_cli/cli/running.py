"""One command from its start to its exit status: signals, the event loop, the one catch."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fulfillment_cli.domain.errors import FulfilError
    from fulfillment_cli.report import Report

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A stop signal came; not an ``Exception``, so that nothing on the way takes it for one."""

    def __init__(self, number: int) -> None:
        self.number = number


class Signals:
    """The first SIGINT or SIGTERM cancels what runs, or is raised; a second one exits at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.cancel: Callable[[], object] | None = None

    def install(self) -> None:
        """Listen; a signal that our parent had us ignore stays ignored."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            _show_cursor()
            os._exit(128 + number)
        self.received = number
        if self.cancel is None:
            raise Interrupted(number)
        self.cancel()


class Invocation:
    """One run of the program.

    Attributes:
        json, quiet, verbose: How it speaks.
        continue_with: The command that continues the task in hand, or none.
        outcome: What the command did, from the moment that it is done: cleaning up may still be
            interrupted, and then this is what is told.
        started: When it began, on the monotonic clock.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.json, self.quiet, self.verbose = _guess(arguments, environment)
        self.continue_with: str | None = None
        self.outcome: Report | None = None
        self.signals = Signals()
        self.started = time.monotonic()

    def follow(self, json: bool, quiet: bool, verbose: bool) -> None:
        """Speak as the options say, now that they are parsed."""
        self.json, self.quiet, self.verbose = json, quiet, verbose

    @property
    def watched(self) -> bool:
        """Whether somebody looks at stderr, on a terminal that can draw over its lines."""
        return not self.quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def say(self, line: str) -> None:
        """One line on stderr for whoever watches; not with ``--quiet``."""
        if not self.quiet:
            say(line)

    def run(self, work: Coroutine[Any, Any, Report]) -> Report:
        """Run a command's work in an event loop, cancelled by the first stop signal.

        Raises:
            Interrupted: It was cancelled before it was done.
        """
        import asyncio

        async def supervised() -> Report:
            loop = asyncio.get_running_loop()
            task = asyncio.ensure_future(work)
            self.signals.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            try:
                return await task
            except asyncio.CancelledError:
                number = self.signals.received
                if number is None:
                    raise
                if self.outcome is None:
                    raise Interrupted(number) from None
                return self.outcome

        try:
            return asyncio.run(supervised())
        finally:
            self.signals.cancel = None


def complete_streams() -> None:
    """Give a process that was started without one of its three streams a stream to nowhere.

    What is opened first would get its descriptor, and ``print`` writes to stdout where there is no
    stderr.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        with suppress(OSError):
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor, inheritable=True)
                os.close(null)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def finish(invocation: Invocation, call: Callable[[], Report | int | None]) -> int:
    """Call a command, show its report or its error, and return the exit status.

    The only place where errors are caught to be shown.
    """
    for stream in (sys.stdout, sys.stderr):
        # What cannot be encoded is escaped, in JSON as JSON escapes it.
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        invocation.signals.install()
        outcome = call()
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        return _show_error(invocation, error)
    if outcome is None or isinstance(outcome, int):
        return outcome or 0  # Typer's own: help, version, completion
    return _show(invocation, outcome)


def _show(invocation: Invocation, report: Report) -> int:
    from fulfillment_cli.report import show

    try:
        show(report, as_json=invocation.json, quiet=invocation.quiet)
    except BrokenPipeError:
        abandon_stdout()  # the reader has what it wanted
    except OSError as error:
        abandon_stdout()
        if report.failed:
            show(report, as_json=False, quiet=invocation.quiet)  # an error is more than its form
        say(f"error INTERNAL: The output could not be written ({error.strerror}).")
        return report.exit_status or 1
    return report.exit_status


def _show_error(invocation: Invocation, error: BaseException) -> int:
    from fulfillment_cli.domain.codes import EXIT_UNFINISHED
    from fulfillment_cli.domain.errors import FulfilError, UsageError
    from fulfillment_cli.report import error_report

    known = _as_known(error)
    status = known.exit_status
    if isinstance(error, Interrupted | KeyboardInterrupt):
        status = 128 + (error.number if isinstance(error, Interrupted) else signal.SIGINT)
    if known.code == "INTERRUPTED" and invocation.continue_with is None:
        known = FulfilError(
            "Interrupted; what was saved stays.",
            code=known.code,
            hint="Run the same command again.",
        )
    if invocation.verbose and not isinstance(known, UsageError):
        say("".join(traceback.format_exception(error)).rstrip())
    unfinished = status == EXIT_UNFINISHED or known.code == "INTERRUPTED"
    following = invocation.continue_with if unfinished else None
    return _show(invocation, error_report(known, status, following))


def _as_known(error: BaseException) -> FulfilError:
    """Any exception as an error with a code."""
    from fulfillment_cli.domain.errors import FulfilError, UsageError

    if isinstance(error, FulfilError):
        return error
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "fulfil"
        message = " ".join(error.format_message().split()).replace("Value error, ", "")
        stop = "" if message.endswith((".", "?", "!", ")")) else "."
        return UsageError(message + stop, hint=f"See `{command} --help`.")
    if isinstance(error, Interrupted | KeyboardInterrupt | typer.Abort):
        return FulfilError(code="INTERRUPTED")
    if isinstance(error, OSError) and error.filename is None and error.errno == errno.ENOSPC:
        # Typer's own output: help, version.
        abandon_stdout()
        return FulfilError(
            f"The output could not be written ({error.strerror}).", hint="Write it elsewhere."
        )
    return FulfilError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _guess(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[bool, bool, bool]:
    """How to speak about a command line that may not be parsable at all."""
    output = environment.get("FULFIL_OUTPUT", "text")
    for position, word in enumerate(arguments):
        if word.startswith("--output="):
            output = word.partition("=")[2]
        elif word == "--output" and position + 1 < len(arguments):
            output = arguments[position + 1]
    return output == "json", "--quiet" in arguments, "--verbose" in arguments


def say(line: str) -> None:
    """One line on stderr; a reader that went away is no reason to stop."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def abandon_stdout() -> None:
    """Let nothing more be written to a stdout that is broken, not even at the exit."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _show_cursor() -> None:
    """A spinner may have hidden it."""
    with suppress(OSError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), b"\x1b[?25h")
