"""What is told of the work: nothing by default, OpenTelemetry where the environment asks for it.

No order text, address or operation key is ever exported.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

TRACES, METRICS = "TRACES", "METRICS"
"""The signals, as the variables name them."""


class Part:
    """Something that is traced while it lasts.

    Attributes:
        facts: What the ``entered`` event is to keep of a run; empty where nothing is traced.
        headers: What goes along with a request.
    """

    def __init__(
        self, facts: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.facts = dict(facts or {})
        self.headers = dict(headers or {})

    def ended(self, name: str, value: str | int | bool) -> None:
        """How it ended."""


class Telemetry:
    """Tells nobody."""

    @contextmanager
    def run(self, task_id: str, command: str, first: Callable[[], str | None]) -> Iterator[Part]:
        """One command's hold on one task.

        Args:
            first: Asked for the ``traceparent`` of the task's first traced run, to link to it.
        """
        yield Part()

    @contextmanager
    def step(self, name: str, stage: str) -> Iterator[Part]:
        """One step from a stage."""
        yield Part()

    @contextmanager
    def ledger_request(self, method: str, path: str, origin: str) -> Iterator[Part]:
        """One request to the ledger; its headers are to be sent along."""
        yield Part()

    def observe(self, event: str, data: Mapping[str, Any]) -> None:
        """One line of the history, such as ``model-request`` and its ``model-answer``."""

    async def flush(self) -> None:
        """Send what was traced; waits a second at most."""


def is_asked_for(environment: Mapping[str, str], signal: str) -> bool:
    """Whether the environment asks for a signal."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = _exporter(environment, signal)
    if exporter not in ("", "otlp"):
        return exporter == "console"
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(environment.get(name) for name in endpoints)


def to_console(environment: Mapping[str, str], signal: str) -> bool:
    """Whether a signal goes to stderr."""
    return _exporter(environment, signal) == "console"


def _exporter(environment: Mapping[str, str], signal: str) -> str:
    return environment.get(f"OTEL_{signal}_EXPORTER", "").strip()


def is_installed() -> bool:
    """Whether the extra ``otel`` is there, without loading any of it."""
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def telemetry_for(environment: Mapping[str, str], provider: str) -> Telemetry:
    """What the environment asks for.

    Args:
        provider: Name of the model provider, for the spans of its requests.
    """
    if not is_asked_for(environment, TRACES) or not is_installed():
        return Telemetry()
    from fulfillment_cli.adapters.otel import OtelTraces

    return OtelTraces(environment, provider)
