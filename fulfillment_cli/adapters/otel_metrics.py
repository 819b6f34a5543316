"""Metrics by OpenTelemetry: the model's and the ledger's requests, and what became of the tasks.

An attribute is one of few values, or a name out of the configuration: nothing of one task.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    PeriodicExportingMetricReader,
)

from fulfillment_cli.adapters.otel_export import (
    EXPORT_SECONDS,
    Export,
    current_task,
    error_type,
    resource,
)
from fulfillment_cli.adapters.telemetry import METRICS, Part, Telemetry, to_console
from fulfillment_cli.version import __version__

# The boundaries that the semantic conventions give.
_TOKENS = [4**power for power in range(14)]
_MODEL_SECONDS = [0.01 * 2**power for power in range(14)]
_HTTP_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]


class _Instruments:
    """What is measured; one of each for each process, which has a thread to send them."""

    def __init__(self, meter: Meter, export: Export) -> None:
        self.export = export
        self.model_duration = meter.create_histogram(
            *("gen_ai.client.operation.duration", "s", "GenAI operation duration."),
            explicit_bucket_boundaries_advisory=_MODEL_SECONDS,
        )
        self.model_tokens = meter.create_histogram(
            *("gen_ai.client.token.usage", "{token}", "Number of input and output tokens used."),
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.http_duration = meter.create_histogram(
            *("http.client.request.duration", "s", "Duration of HTTP client requests."),
            explicit_bucket_boundaries_advisory=_HTTP_SECONDS,
        )
        self.runs = meter.create_counter(
            "fulfil.task.runs", "{run}", "Commands that held a task, when they left it."
        )
        self.changes = meter.create_counter(
            "fulfil.stage.changes", "{change}", "Changes of a task's stage that were saved."
        )
        self.outcomes = meter.create_counter(
            "fulfil.operation.outcomes", "{outcome}", "What was learnt of a ledger operation."
        )
        self.attempts = meter.create_counter(
            "fulfil.recovery.attempts", "{attempt}", "Tasks that a sweep went on with."
        )
        self.dead_letters = meter.create_counter(
            "fulfil.dead_letters", "{task}", "Tasks that became dead letters."
        )


@functools.cache
def _instruments(console: bool) -> _Instruments:
    reader = PeriodicExportingMetricReader(_exporter(console))
    provider = MeterProvider([reader], resource(), shutdown_on_exit=False)
    return _Instruments(provider.get_meter("fulfil", __version__), Export(provider.force_flush))


def _exporter(console: bool) -> MetricExporter:
    if console:
        return ConsoleMetricExporter(out=sys.stderr)  # stdout has the one document
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(timeout=EXPORT_SECONDS)


class _Measured(Part):
    """Gathers the attributes of what is measured when it ends."""

    def __init__(self, attributes: Mapping[str, str | int]) -> None:
        super().__init__()
        self.attributes: dict[str, str | int | bool] = dict(attributes)

    def ended(self, name: str, value: str | int | bool) -> None:
        self.attributes[name] = value

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Keep what an error is told by."""
        try:
            yield
        except BaseException as error:
            self.ended("error.type", error_type(error))
            raise


class OtelMetrics(Telemetry):
    """Metrics as the semantic conventions name them, and our own.

    Args:
        environment: Says where they go.
        provider: Name of the model provider in the configuration.
    """

    def __init__(self, environment: Mapping[str, str], provider: str) -> None:
        self._instruments = _instruments(to_console(environment, METRICS))
        self._model_provider = provider
        self._asking: dict[int, str] = {}
        self._used = False

    @contextmanager
    def run(self, task_id: str, command: str, first: Callable[[], str | None]) -> Iterator[Part]:
        self._used = True
        part = _Measured({})
        try:
            with part.failing():
                yield part
        finally:
            if "fulfil.stage" in part.attributes:  # or else the task was never held
                self._instruments.runs.add(1, part.attributes)

    @contextmanager
    def ledger_request(self, method: str, path: str, origin: str) -> Iterator[Part]:
        self._used = True
        place = urlsplit(origin)
        part = _Measured(
            {
                "http.request.method": method,
                "server.address": place.hostname or "",
                "server.port": place.port or (443 if place.scheme == "https" else 80),
            }
        )
        started = time.monotonic()
        try:
            with part.failing():
                yield part
        finally:
            status = part.attributes.get("http.response.status_code")
            if isinstance(status, int) and status >= 400:
                part.ended("error.type", str(status))
            self._instruments.http_duration.record(time.monotonic() - started, part.attributes)

    def observe(self, event: str, data: Mapping[str, Any]) -> None:
        if event == "model-request":
            self._asking[current_task()] = str(data["model"])
        elif event == "model-answer":
            self._answered(data)

    def moved(self, flow: str, before: str, stage: str) -> None:
        attributes = {"fulfil.flow": flow, "fulfil.from_stage": before, "fulfil.to_stage": stage}
        self._instruments.changes.add(1, attributes)

    def outcome(self, kind: str, state: str) -> None:
        attributes = {"fulfil.operation.kind": kind, "fulfil.operation.outcome": state}
        self._instruments.outcomes.add(1, attributes)

    def attempted(self, flow: str, result: str, code: str | None) -> None:
        failed = {} if code is None else {"error.type": code}
        attributes = {"fulfil.flow": flow, "fulfil.recovery.result": result}
        self._instruments.attempts.add(1, attributes | failed)
        if result == "dead-letter":
            self._instruments.dead_letters.add(1, {"fulfil.flow": flow} | failed)

    async def flush(self) -> None:
        if self._used:
            await self._instruments.export.flush()

    def _answered(self, data: Mapping[str, Any]) -> None:
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._model_provider,
            "gen_ai.request.model": self._asking.pop(current_task()),
        }
        usage = data.get("usage") or {}
        for kind, counted in (("input", "prompt_tokens"), ("output", "completion_tokens")):
            if isinstance(usage.get(counted), int):
                self._instruments.model_tokens.record(
                    usage[counted], attributes | {"gen_ai.token.type": kind}
                )
        failed = {} if data["code"] is None else {"error.type": str(data["code"])}
        self._instruments.model_duration.record(data["seconds"], attributes | failed)
