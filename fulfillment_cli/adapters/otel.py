"""Traces by OpenTelemetry: a run, its steps, its requests to the model and to the ledger.

The export has a thread of its own, short timeouts, and no way to raise: a collector that is slow,
away or wrong is nothing that a run should notice.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Link, Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fulfillment_cli.adapters.telemetry import EXPORTER, Part, Telemetry
from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.version import __version__

EXPORT_SECONDS = 1.0
"""Longest that a command waits for its traces to be taken, once, at its end."""

_PROPAGATOR = TraceContextTextMapPropagator()

# What the SDK has to say about a collector goes to whoever listens, not to the terminal.
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())


@functools.cache
def _provider(console: bool) -> TracerProvider:
    """One for each process: it has a thread. Reads the OTEL_* variables that it knows."""
    named = {"service.version": __version__}
    resource = Resource.create(named).merge(Resource.create())
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "fulfil"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_exporter(console)))
    return provider


def _exporter(console: bool) -> SpanExporter:
    if console:
        return ConsoleSpanExporter(out=sys.stderr)  # stdout has the one document
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(timeout=EXPORT_SECONDS)


class _SpanPart(Part):
    def __init__(self, span: Span, **others: Mapping[str, str]) -> None:
        super().__init__(**others)
        self._span = span

    def ended(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)


class OtelTraces(Telemetry):
    """Spans as the semantic conventions name them.

    Args:
        environment: Says where they go.
        provider: Name of the model provider in the configuration.
    """

    def __init__(self, environment: Mapping[str, str], provider: str) -> None:
        self._provider = _provider(environment.get(EXPORTER, "").strip() == "console")
        self._tracer = self._provider.get_tracer("fulfil", __version__)
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
        task = id(_current_task())
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
        if not self._used or _gave_up.is_set():
            return
        done = threading.Event()

        def export() -> None:
            self._provider.force_flush(int(EXPORT_SECONDS * 1000))
            done.set()

        # Not a thread of the loop's pool: its end would wait for it.
        threading.Thread(target=export, daemon=True).start()
        if not await asyncio.to_thread(done.wait, EXPORT_SECONDS):
            _gave_up.set()  # a sweep of many directories waits for it only once

    @contextmanager
    def _span(
        self,
        name: str,
        attributes: Mapping[str, str | int],
        kind: SpanKind = SpanKind.INTERNAL,
        links: list[Link] | None = None,
    ) -> Iterator[Span]:
        """A span; of an error only its code is kept: a message may name a key."""
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
                code = error.code if isinstance(error, FulfilError) else type(error).__name__
                span.set_attribute("error.type", code)
                span.set_status(StatusCode.ERROR)
                raise


_gave_up = threading.Event()


def _answered(span: Span, data: Mapping[str, Any]) -> None:
    usage = data.get("usage") or {}
    for name, counted in (("input", "prompt_tokens"), ("output", "completion_tokens")):
        if isinstance(usage.get(counted), int):
            span.set_attribute(f"gen_ai.usage.{name}_tokens", usage[counted])
    if data.get("finishReason") is not None:
        span.set_attribute("gen_ai.response.finish_reasons", [str(data["finishReason"])])
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


def _current_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
