"""What the recovery commands share: options, where they look, and how they log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fulfillment_cli.cli.options import OutputOptions
from fulfillment_cli.logs import LogFormat, formatter

LOGGER = "fulfil.recovery"

_PANEL = "Output and configuration"


def _option(name: str, text: str, metavar: str) -> Any:
    return typer.Option(
        f"--{name}",
        envvar=f"FULFIL_{name.upper().replace('-', '_')}",
        help=text,
        rich_help_panel=_PANEL,
        metavar=metavar,
        show_default=False,
    )


@dataclass(frozen=True, kw_only=True)
class RecoveryOptions(OutputOptions):
    """What finds a ledger, a model and the configuration."""

    service_url: Annotated[
        str | None,
        _option(
            "service-url",
            "A ledger that is already up; its token from FULFIL_SERVICE_TOKEN.",
            "ORIGIN",
        ),
    ] = None
    provider: Annotated[
        str | None, _option("provider", "Model provider of the configuration.", "NAME")
    ] = None
    config: Annotated[
        Path | None, _option("config", "Configuration (default: ditto.yaml, where it is).", "FILE")
    ] = None
    env_file: Annotated[
        Path | None, _option("env-file", "Credentials (default: .env).", "FILE")
    ] = None

    def repeated(self) -> dict[str, str]:
        """The fields of a :class:`~fulfillment_cli.cli.next_command.Place` that were given."""
        given = {"service_url": self.service_url, "provider": self.provider}
        paths = {"config": self.config, "env_file": self.env_file}
        absolute = {name: str(path.absolute()) for name, path in paths.items() if path}
        return {name: text for name, text in given.items() if text is not None} | absolute


@contextmanager
def logging_to_stderr(level: str, log_format: LogFormat = "text") -> Iterator[None]:
    """Show what recovery logs, from ``level`` on."""
    logger = logging.getLogger(LOGGER)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(log_format))
    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
