"""The Typer application and the one place where errors become exit statuses.

Commands live in modules of their own and import what is heavy only when they run, so that
``fulfil --help`` costs little more than importing Typer.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from fulfillment_cli.cli import flows
from fulfillment_cli.domain.errors import FulfilError, UsageError

EXAMPLE = """Example: fulfil checkpoint   then, with the directory that it prints:
fulfil checkpoint --directory DIR"""

app = typer.Typer(
    name="fulfil",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=EXAMPLE,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from fulfillment_cli.version import __version__

        typer.echo(f"fulfil {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Run an order from free text to shipment, and recover from every failure on the way."""


flows.register(app)


def run(arguments: list[str]) -> int:
    """Run one command line; its exit status. Every error of every command ends up here."""
    try:
        status = app(args=arguments, prog_name="fulfil", standalone_mode=False)
        sys.stdout.flush()
    except FulfilError as error:
        return _failed(error, arguments)
    except typer.TyperException as error:
        return _failed(_usage(error), arguments)
    except typer.Abort:
        return _failed(FulfilError(code="INTERRUPTED"), arguments)
    except BrokenPipeError:
        # Whoever read our output has enough. Keep the interpreter from flushing it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return _failed(FulfilError(code="INTERRUPTED"), arguments)
    except Exception as error:  # noqa: BLE001 - the one place that must not show a traceback
        if _wants(arguments, "--verbose", "FULFIL_VERBOSE"):
            traceback.print_exception(error)
        unexpected = FulfilError(f"{type(error).__name__}: {error}".splitlines()[0][:300])
        return _failed(unexpected, arguments)
    return status if isinstance(status, int) else 0


def _usage(error: typer.TyperException) -> FulfilError:
    message = " ".join(error.format_message().split()) or "See the help."
    return UsageError(message if message.endswith((".", "?", "!")) else f"{message}.")


def _failed(error: FulfilError, arguments: list[str]) -> int:
    from fulfillment_cli.report import show_error

    show_error(error, as_json=_output_is_json(arguments))
    return getattr(error, "status", None) or error.exit_status


def _wants(arguments: list[str], flag: str, variable: str) -> bool:
    return flag in arguments or os.environ.get(variable, "").lower() in ("1", "true", "yes", "on")


def _output_is_json(arguments: list[str]) -> bool:
    """Read the output form off the raw arguments: they may be the very thing that is wrong."""
    form = os.environ.get("FULFIL_OUTPUT", "")
    for position, argument in enumerate(arguments):
        if argument == "--output" and position + 1 < len(arguments):
            form = arguments[position + 1]
        elif argument.startswith("--output="):
            form = argument.partition("=")[2]
    return form in ("json", "jsonl")
