"""Traces and metrics of what is done: to nobody, or by OpenTelemetry where that is asked for.

No order text, address or operation key is ever exported.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

log = logging.getLogger("fulfil.telemetry")

TRACES, METRICS = "TRACES", "METRICS"
"""The signals, as the variables name them."""


class Part:
    """Something that lasts for a while.

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
        """How it ended, or what else is known of it by now."""


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

    def moved(self, flow: str, before: str, stage: str) -> None:
        """A task's new stage was saved."""

    def outcome(self, kind: str, state: str) -> None:
        """What is saved of an operation: the state of its verdict, ``pending`` or ``unknown``."""

    def attempted(self, flow: str, result: str, code: str | None) -> None:
        """How a sweep's attempt at a task ended, and the code where it did not go on."""

    async def flush(self) -> None:
        """Send what was told; waits a second at most."""


class _Parts(Part):
    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__(
            {name: value for part in parts for name, value in part.facts.items()},
            {name: value for part in parts for name, value in part.headers.items()},
        )
        self._parts = parts

    def ended(self, name: str, value: str | int | bool) -> None:
        for part in self._parts:
            part.ended(name, value)


class Several(Telemetry):
    """Tells each of several."""

    def __init__(self, *listeners: Telemetry) -> None:
        self._listeners = listeners

    @contextmanager
    def run(self, task_id: str, command: str, first: Callable[[], str | None]) -> Iterator[Part]:
        with self._all(one.run(task_id, command, first) for one in self._listeners) as part:
            yield part

    @contextmanager
    def step(self, name: str, stage: str) -> Iterator[Part]:
        with self._all(one.step(name, stage) for one in self._listeners) as part:
            yield part

    @contextmanager
    def ledger_request(self, method: str, path: str, origin: str) -> Iterator[Part]:
        with self._all(one.ledger_request(method, path, origin) for one in self._listeners) as part:
            yield part

    @contextmanager
    def _all(self, entered: Iterable[AbstractContextManager[Part]]) -> Iterator[Part]:
        with ExitStack() as stack:
            yield _Parts([stack.enter_context(one) for one in entered])

    def observe(self, event: str, data: Mapping[str, Any]) -> None:
        for one in self._listeners:
            one.observe(event, data)

    def moved(self, flow: str, before: str, stage: str) -> None:
        for one in self._listeners:
            one.moved(flow, before, stage)

    def outcome(self, kind: str, state: str) -> None:
        for one in self._listeners:
            one.outcome(kind, state)

    def attempted(self, flow: str, result: str, code: str | None) -> None:
        for one in self._listeners:
            one.attempted(flow, result, code)

    async def flush(self) -> None:
        await asyncio.gather(*(one.flush() for one in self._listeners))


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
        provider: Name of the model provider, for what is told of its requests.
    """
    asked = [signal for signal in (TRACES, METRICS) if is_asked_for(environment, signal)]
    if not asked or not is_installed():
        return Telemetry()
    listeners: list[Telemetry] = []
    for signal in asked:
        try:
            listeners.append(_listener(signal, environment, provider))
        except Exception as error:  # noqa: BLE001 - a wrong variable must not end a run
            _without(signal, f"{type(error).__name__}: {error}")
    return Several(*listeners)


def _listener(signal: str, environment: Mapping[str, str], provider: str) -> Telemetry:
    if signal == TRACES:
        from fulfillment_cli.adapters.otel import OtelTraces

        return OtelTraces(environment, provider)
    from fulfillment_cli.adapters.otel_metrics import OtelMetrics

    return OtelMetrics(environment, provider)


@functools.cache
def _without(signal: str, why: str) -> None:
    """Said once: a sweep opens many directories."""
    log.warning("No %s, by the OTEL_* variables: %s", signal.lower(), why)
