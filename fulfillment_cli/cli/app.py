"""The Typer application: which commands there are, and the run of one of them.

Commands are loaded when they are run. To add one, write a function that returns a
:class:`~fulfillment_cli.report.Report` in a module of this package, and a line in
:data:`COMMANDS`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fulfillment_cli.cli.running import Invocation, complete_streams, finish
from fulfillment_cli.version import __version__


@dataclass(frozen=True, slots=True)
class Command:
    """One command, before it is loaded.

    Attributes:
        function: ``module:function`` in this package.
        purpose: Its line in the help.
        panel: The panel of the help it stands in.
    """

    function: str
    purpose: str
    panel: str = "Flows"


COMMANDS: dict[str, Command] = {
    "retry": Command("flows:retry", "Read again with the size that the error named."),
    "fallback": Command("flows:fallback", "Ask an allowed backup catalog when the primary fails."),
    "timeout": Command("flows:timeout", "Stop before any write when a read passes its deadline."),
    "checkpoint": Command("flows:checkpoint", "Stop at a confirmed stage, continue to the end."),
    "pause": Command("flows:pause", "Wait for a person's decision before any write."),
    "session": Command("flows:session", "Answer a question from a task's restored context."),
    "compensation": Command("flows:compensation", "Release again what could not be shipped."),
    "side-effect": Command("flows:side_effect", "Find out what a lost answer had done."),
    "recover": Command(
        "recover:recover", "Continue every unfinished task after a restart.", "Recovery"
    ),
    "reconcile": Command(
        "reconcile:reconcile", "Compare every checkpoint with the ledger.", "Recovery"
    ),
    "review": Command("review:review", "List what waits for a person; repair it.", "Recovery"),
    "events": Command("events:events", "Stream the event log.", "Recovery"),
    "list": Command("list_:list_", "List the tasks, the last changed first.", "Look"),
    "show": Command("show:show", "Show what happened to a task, and what is safe now.", "Look"),
    "explain": Command("explain:explain", "Say what a code or a stage means.", "Look"),
    "doctor": Command("doctor:doctor", "Check that orders can run here.", "Set up"),
    "init": Command("init_:init", "Write a configuration to start from.", "Set up"),
    "experiments": Command(
        "experiments:experiments", "Run the end-to-end experiments and the crash matrix.", "Proof"
    ),
}

_EPILOG = (
    "Example: `fulfil checkpoint` runs a new order until its stock is reserved, and prints the "
    "command that takes it to its shipment.\n\n"
    "Every option of a flow can also be set as FULFIL_OPTION, except what decides."
)


class _PlainFlags:
    """In the help, a flag stands without a type: it takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for option in found:
            if getattr(option, "is_flag", False):
                option.metavar = ""
        return found


class PlainCommand(_PlainFlags, TyperCommand):
    """A command as it is run."""


class LazyGroup(_PlainFlags, TyperGroup):
    """Knows the commands by the table; loads the one that is run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, command in COMMANDS.items():
            listed = TyperCommand(name, help=command.purpose, rich_help_panel=command.panel)
            self.add_command(listed)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and _load(str(name)), rest


def _load(name: str) -> Any:
    module, _, function = COMMANDS[name].function.partition(":")
    from fulfillment_cli.cli.options import expanded

    single = typer.Typer(add_completion=False)
    callback = getattr(import_module(f"fulfillment_cli.cli.{module}"), function)
    single.command(name, cls=PlainCommand)(expanded(callback))
    return get_command(single)


app = typer.Typer(
    cls=LazyGroup,
    help="Run an order from free text to shipment, and recover from every failure on the way.",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fulfil {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit status; without arguments, show the help."""
    complete_streams()
    invocation = Invocation(arguments, os.environ)
    words = list(arguments) or ["--help"]
    return finish(
        invocation,
        lambda: get_command(app)(
            args=words, prog_name="fulfil", standalone_mode=False, obj=invocation
        ),
    )
