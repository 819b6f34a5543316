"""An OTLP receiver: a small HTTP server that decodes with the official protobuf package."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

Attributes = dict[str, Any]


class Receiver:
    """A collector: takes what is sent, says nothing.

    Attributes:
        spans: What arrived, as JSON-like dicts.
        metrics: The newest state of each metric, by its name and the process it is from.
        raw: All of it as bytes, by path, to look for what must not be in it.
        stalled: Not to answer any more until the test ends.
    """

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.metrics: dict[tuple[str, str], Any] = {}
        self.raw = {"/v1/traces": b"", "/v1/metrics": b""}
        self.resources: list[Attributes] = []
        self.stalled = False
        self.requests = 0
        self._ending = threading.Event()
        self._taking = threading.Lock()  # a process sends both at once
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": self.origin}

    def take(self, path: str, body: bytes) -> bytes:
        """Keep what is sent; the answer to it."""
        with self._taking:
            self.requests += 1
            stalled = self.stalled
        if stalled:
            self._ending.wait()
        with self._taking:
            self.raw[path] += body
            if path == "/v1/traces":
                self._take_traces(ExportTraceServiceRequest.FromString(body))
                return ExportTraceServiceResponse().SerializeToString()
            self._take_metrics(ExportMetricsServiceRequest.FromString(body))
            return ExportMetricsServiceResponse().SerializeToString()

    def _take_traces(self, request: Any) -> None:
        for resource in request.resource_spans:
            self.resources.append(_attributes(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans += [_span(span) for span in scope.spans]

    def _take_metrics(self, request: Any) -> None:
        for resource in request.resource_metrics:
            self.resources.append(_attributes(resource.resource.attributes))
            process = self.resources[-1]["service.instance.id"]
            for scope in resource.scope_metrics:
                # What is sent again counts from the process's start: the newest is all of it.
                self.metrics |= {(metric.name, process): metric for metric in scope.metrics}

    def named(self, beginning: str) -> list[dict[str, Any]]:
        """The spans of a name, in the order of their start."""
        found = [span for span in self.spans if span["name"].startswith(beginning)]
        return sorted(found, key=lambda span: int(span["start"]))

    def counted(self, name: str) -> list[tuple[Attributes, int]]:
        """A counter's attributes and value, in the order of their first use."""
        return [
            (_attributes(point.attributes), point.as_int)
            for metric in self.all_of(name)
            for point in metric.sum.data_points
        ]

    def measured(self, name: str) -> list[tuple[Attributes, int, float]]:
        """A histogram's attributes, count and sum, in the order of their first use."""
        return [
            (_attributes(point.attributes), point.count, point.sum)
            for metric in self.all_of(name)
            for point in metric.histogram.data_points
        ]

    def all_of(self, name: str) -> list[Any]:
        """The metric as each process sent it."""
        return [metric for (named, _), metric in self.metrics.items() if named == name]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            answer = receiver.take(self.path, body)
            try:
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                pass  # it was stalled, and nobody waited

    return Handler


def _attributes(pairs: Any) -> Attributes:
    values = {}
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        values[pair.key] = (
            [one.string_value for one in value.values] if kind == "array_value" else value
        )
    return values


def _span(span: Any) -> dict[str, Any]:
    return {
        "name": span.name,
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "kind": span.kind,
        "start": span.start_time_unix_nano,
        "attributes": _attributes(span.attributes),
        "links": [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        "failed": span.status.code == 2,
        "events": len(span.events),
        "message": span.status.message,
    }
