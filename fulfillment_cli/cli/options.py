"""The options that commands share, declared once.

A command takes a dataclass of options as one parameter; :func:`expanded`, applied where the command
is loaded, shows Typer a parameter for each field.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from fulfillment_cli.cli.running import Invocation
from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.domain.stage_info import with_directory

_TASK, _NEW, _OUTPUT = "Task", "New task", "Output and configuration"


def _option(name: str, text: str, panel: str, metavar: str | None = None) -> Any:
    return typer.Option(
        f"--{name}",
        envvar=f"FULFIL_{name.upper().replace('-', '_')}",
        help=text,
        rich_help_panel=panel,
        metavar=metavar,
        show_default=False,
    )


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """How a command speaks.

    Attributes:
        invocation: The running command; made by Typer's caller.
        typed: Names of the parameters that stood on the command line itself, not in ``FULFIL_*``.
    """

    output: Annotated[
        Literal["text", "json"],
        _option("output", "text (default), or json: exactly one document on stdout.", _OUTPUT),
    ] = "text"
    quiet: Annotated[bool, _option("quiet", "Nothing on stderr but errors.", _OUTPUT)] = False
    verbose: Annotated[
        bool, _option("verbose", "Progress, timings and tracebacks on stderr.", _OUTPUT)
    ] = False
    invocation: Invocation
    typed: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class FlowOptions(OutputOptions):
    """What all eight flows take."""

    directory: Annotated[
        Path | None,
        _option("directory", "Continue in this task directory; a new one otherwise.", _TASK, "DIR"),
    ] = None
    task: Annotated[str | None, _option("task", "Id of the task (default: task).", _TASK, "ID")] = (
        None
    )
    request: Annotated[
        str | None,
        _option("request", "Your own order text instead of a generated one.", _NEW, "FILE|-"),
    ] = None
    inventory: Annotated[
        Path | None,
        _option(
            "inventory", "Stock of the new ledger: CSV or JSON of sku, quantity.", _NEW, "FILE"
        ),
    ] = None
    fault: Annotated[
        list[str] | None,
        _option("fault", "Fault of the new ledger's service; repeatable.", _NEW, "NAME[=VALUE]"),
    ] = None
    service_url: Annotated[
        str | None,
        _option(
            "service-url",
            "A ledger that is already up; its token from FULFIL_SERVICE_TOKEN.",
            _TASK,
            "ORIGIN",
        ),
    ] = None
    provider: Annotated[
        str | None, _option("provider", "Model provider of the configuration.", _OUTPUT, "NAME")
    ] = None
    config: Annotated[
        Path | None,
        _option("config", "Configuration (default: ditto.yaml, where it is).", _OUTPUT, "FILE"),
    ] = None
    env_file: Annotated[
        Path | None, _option("env-file", "Credentials (default: .env).", _OUTPUT, "FILE")
    ] = None


def expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Show Typer the fields of a command's :class:`OutputOptions` parameter as options.

    A command without such a parameter is returned as it is.
    """
    signature = inspect.signature(function, eval_str=True)
    groups = [
        (parameter.name, parameter.annotation)
        for parameter in signature.parameters.values()
        if inspect.isclass(parameter.annotation) and issubclass(parameter.annotation, OutputOptions)
    ]
    if not groups:
        return function
    group_name, group = groups[0]
    hints = get_type_hints(group, include_extras=True)
    shared = [
        field for field in dataclasses.fields(group) if field.name not in ("invocation", "typed")
    ]
    named = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("ctx", named, annotation=typer.Context),
        *(own for own in signature.parameters.values() if own.name != group_name),
        *(
            inspect.Parameter(
                field.name, named, default=field.default, annotation=hints[field.name]
            )
            for field in shared
        ),
    ]

    @functools.wraps(function)
    def command(ctx: typer.Context, **values: Any) -> Any:
        invocation: Invocation = ctx.obj
        options = group(
            **{field.name: values.pop(field.name) for field in shared},
            invocation=invocation,
            typed=frozenset(name for name in ctx.params if _was_typed(ctx, name)),
        )
        invocation.follow(options.output == "json", options.quiet, options.verbose)
        try:
            return function(**{group_name: options}, **values)
        except FulfilError as error:
            error.hint = _for_this(error.hint, ctx, options)
            raise

    parameters = [parameter.replace(kind=named) for parameter in parameters]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    return command


def _for_this(hint: str, ctx: typer.Context, options: Any) -> str:
    """A hint with this command and its directory in place of words."""
    hint = hint.replace("fulfil COMMAND", ctx.command_path)
    directory = getattr(options, "directory", None) or ctx.params.get("directory")
    return hint if directory is None else with_directory(hint, str(directory.absolute()))


def _was_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
