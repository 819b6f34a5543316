"""The options that all flow commands have, declared once.

A command that takes ``common: Common`` gets all of them: :func:`with_common` writes them into
the signature that Typer reads, and hands them over as one value.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer


class Output(StrEnum):
    """Form of the results."""

    TEXT = "text"
    JSON = "json"


TASK = "Task"
NEW = "New task"
SETUP = "Configuration and output"


def _option(*names: str, panel: str, variable: str, help: str, **more: Any) -> Any:
    return typer.Option(
        *names,
        envvar=f"FULFIL_{variable}",
        show_envvar=False,
        rich_help_panel=panel,
        help=help,
        **more,
    )


@dataclass(frozen=True)
class Common:
    """What every flow command is given.

    ``ctx`` tells which options were typed and which came from the environment.
    """

    ctx: typer.Context
    directory: Annotated[
        Path | None,
        _option(
            "--directory",
            panel=TASK,
            variable="DIRECTORY",
            metavar="DIR",
            help="Continue in an existing task directory.",
        ),
    ] = None
    task: Annotated[
        str,
        _option("--task", panel=TASK, variable="TASK", metavar="ID", help="The task's id."),
    ] = "task"
    request: Annotated[
        str | None,
        _option(
            "--request",
            panel=NEW,
            variable="REQUEST",
            metavar="FILE",
            help="Your own order text instead of a generated one; - reads standard input.",
        ),
    ] = None
    inventory: Annotated[
        Path | None,
        _option(
            "--inventory",
            panel=NEW,
            variable="INVENTORY",
            metavar="FILE",
            help="Opening stock for it: CSV with sku,quantity or JSON.",
        ),
    ] = None
    fault: Annotated[
        list[str] | None,
        _option(
            "--fault",
            panel=NEW,
            variable="FAULT",
            metavar="NAME[=VALUE]",
            help="Switch a fault of the new ledger's service; repeatable.",
        ),
    ] = None
    service_url: Annotated[
        str | None,
        _option(
            "--service-url",
            panel=NEW,
            variable="SERVICE_URL",
            metavar="ORIGIN",
            help="A ledger that is already up; its token is FULFIL_SERVICE_TOKEN.",
        ),
    ] = None
    provider: Annotated[
        str | None,
        _option(
            "--provider", panel=SETUP, variable="PROVIDER", metavar="NAME", help="Model provider."
        ),
    ] = None
    config: Annotated[
        Path | None,
        _option(
            "--config",
            panel=SETUP,
            variable="CONFIG",
            metavar="FILE",
            help="Configuration instead of ./ditto.yaml.",
        ),
    ] = None
    env_file: Annotated[
        Path | None,
        _option(
            "--env-file",
            panel=SETUP,
            variable="ENV_FILE",
            metavar="FILE",
            help="Credentials instead of ./.env.",
        ),
    ] = None
    output: Annotated[
        Output,
        _option("--output", panel=SETUP, variable="OUTPUT", help="Form of the results."),
    ] = Output.TEXT
    quiet: Annotated[
        bool,
        _option("--quiet", panel=SETUP, variable="QUIET", help="Only results and errors."),
    ] = False
    verbose: Annotated[
        bool,
        _option(
            "--verbose",
            panel=SETUP,
            variable="VERBOSE",
            help="Each step with its time; tracebacks.",
        ),
    ] = False

    def typed(self, name: str) -> bool:
        """Whether an option was typed on the command line, not taken from the environment."""
        source = self.ctx.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    def typed_or_new(self, name: str, value: Any, *, new: bool) -> Any:
        """A policy option: what the environment holds is a default for new tasks only."""
        return value if new or self.typed(name) else None


def with_common(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's ``common`` parameter by the options of :class:`Common`."""
    hints = get_type_hints(Common, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.name == "ctx" else field.default,
            annotation=hints[field.name],
        )
        for field in fields(Common)
    ]
    own_hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own_hints[parameter.name])
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "common"
    ]

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        common = Common(**{field.name: values.pop(field.name) for field in fields(Common)})
        command(common, **values)

    wrapper.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
    return wrapper
