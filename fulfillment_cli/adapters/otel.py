"""Traces by OpenTelemetry: a run, its steps, its requests to the model and to the ledger."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Link, Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fulfillment_cli.adapters.otel_export import (
    EXPORT_SECONDS,
    Export,
    current_task,
    error_type,
    resource,
)
from fulfillment_cli.adapters.telemetry import TRACES, Part, Telemetry, to_console
from fulfillment_cli.version import __version__

_FINISH_REASONS = ("stop", "length", "content_filter", "tool_calls", "function_call")
"""Those of the protocol; a server's own words may be the order's."""

_PROPAGATOR = TraceContextTextMapPropagator()


@functools.cache
def _provider(console: bool) -> tuple[TracerProvider, Export]:
    """One for each process: it has a thread."""
    provider = TracerProvider(resource=resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_exporter(console)))
    return provider, Export(provider.force_flush)


def _exporter(console: bool) -> SpanExporter:
    if console:
        return ConsoleSpanExporter(out=sys.stderr)  # stdout has the one document
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(timeout=EXPORT_SECONDS)


class _SpanPart(Part):
    def __init__(self, span: Span, **others: Mapping[str, str]) -> None:
        super().__init__(**others)
        self._span = span

    def ended(self, name: str, value: str | int | bool) -> None:
        self._span.set_attribute(name, value)


class OtelTraces(Telemetry):
    """Spans as the semantic conventions name them.

    Args:
        environment: Says where they go.
        provider: Name of the model provider in the configuration.
    """

    def __init__(self, environment: Mapping[str, str], provider: str) -> None:
        spans, self._export = _provider(to_console(environment, TRACES))
        self._tracer = spans.get_tracer("fulfil", __version__)
        self._model_provider = provider
        self._asking: dict[int, Span] = {}
        self._used = False

    @contextmanager
    def run(self, task_id: str, command: str, first: Callable[[], str | None]) -> Iterator[Part]:
        self._used = True
        attributes = {"fulfil.task.id": task_id, "fulfil.command": command}
        before = _context_of(first())
        links = [] if before is None else [Link(before, {"fulfil.link": "first-run"})]
        with self._span(f"run {command}", attributes, links=links) as span:
            yield _SpanPart(span, facts={"traceparent": _headers()["traceparent"]})

    @contextmanager
    def step(self, name: str, stage: str) -> Iterator[Part]:
        with self._span(f"step {name}", {"fulfil.stage": stage}) as span:
            yield _SpanPart(span)

    @contextmanager
    def ledger_request(self, method: str, path: str, origin: str) -> Iterator[Part]:
        if not trace.get_current_span().is_recording():
            yield Part()  # outside of any run: to learn the ledger's id
            return
        # The path of a look-up ends in an operation's key.
        route = "/operations/{key}" if path.startswith("/operations/") else path
        place = urlsplit(origin)
        attributes: dict[str, str | int] = {
            "http.request.method": method,
            "url.template": route,
            "server.address": place.hostname or "",
            "server.port": place.port or (443 if place.scheme == "https" else 80),
        }
        with self._span(f"{method} {route}", attributes, SpanKind.CLIENT) as span:
            yield _SpanPart(span, headers=_headers())

    def observe(self, event: str, data: Mapping[str, Any]) -> None:
        task = current_task()
        if event == "model-request" and trace.get_current_span().is_recording():
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": self._model_provider,
                "gen_ai.request.model": str(data["model"]),
                "gen_ai.output.type": "text" if data["format"] == "text" else "json",
                "fulfil.question": str(data["question"]),
                "fulfil.attempt": int(data["attempt"]),
            }
            self._asking[task] = self._tracer.start_span(
                f"chat {data['model']}", kind=SpanKind.CLIENT, attributes=attributes
            )
        elif event == "model-answer" and (span := self._asking.pop(task, None)) is not None:
            _answered(span, data)

    async def flush(self) -> None:
        if self._used:
            await self._export.flush()

    @contextmanager
    def _span(
        self,
        name: str,
        attributes: Mapping[str, str | int],
        kind: SpanKind = SpanKind.INTERNAL,
        links: list[Link] | None = None,
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", error_type(error))
                span.set_status(StatusCode.ERROR)
                raise


def _answered(span: Span, data: Mapping[str, Any]) -> None:
    usage = data.get("usage") or {}
    for name, counted in (("input", "prompt_tokens"), ("output", "completion_tokens")):
        if isinstance(usage.get(counted), int):
            span.set_attribute(f"gen_ai.usage.{name}_tokens", usage[counted])
    reason = data.get("finishReason")
    if reason is not None:
        told = reason if reason in _FINISH_REASONS else "other"
        span.set_attribute("gen_ai.response.finish_reasons", [told])
    if data.get("code") is not None:
        span.set_attribute("error.type", str(data["code"]))
        span.set_status(StatusCode.ERROR)
    span.end()


def _headers() -> dict[str, str]:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier


def _context_of(traceparent: str | None) -> trace.SpanContext | None:
    if traceparent is None:
        return None
    context = _PROPAGATOR.extract({"traceparent": traceparent})
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None
