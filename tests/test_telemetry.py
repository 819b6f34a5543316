"""Traces, as a real OTLP receiver gets them; and that nothing depends on one being there."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from fulfillment_cli.adapters.ledger import Ledger
from fulfillment_cli.adapters.telemetry import TRACES, Telemetry, is_asked_for, telemetry_for
from fulfillment_cli.domain.errors import FulfilError
from tests.scripted_model import Reply, ScriptedModel
from tests.support import ROOT, Child

ADDRESS = "Secret-Lane-99"
REQUEST = f"SKU: SKU-1; quantity: 2; delivery address: {ADDRESS}."


class Receiver:
    """A collector: takes what is sent, says nothing.

    Attributes:
        spans: What arrived, as JSON-like dicts.
        raw: The same as bytes, to look for what must not be in it.
        stalled: Not to answer any more until the test ends.
    """

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.raw = b""
        self.resources: list[dict[str, Any]] = []
        self.stalled = False
        self.requests = 0
        self._ending = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *arguments: object) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests += 1
                if receiver.stalled:
                    receiver._ending.wait()
                    return
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver._take(body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}"
        }

    def _take(self, body: bytes) -> None:
        self.raw += body
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            self.resources.append(_attributes(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans += [_span(span) for span in scope.spans]

    def named(self, beginning: str) -> list[dict[str, Any]]:
        """The spans of a name, in the order of their start."""
        found = [span for span in self.spans if span["name"].startswith(beginning)]
        return sorted(found, key=lambda span: int(span["start"]))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _attributes(pairs: Any) -> dict[str, Any]:
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


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def fulfil(tmp_path: Path, scripted: ScriptedModel) -> Callable[..., dict[str, Any]]:
    """Run a command as a process, with an environment of its own; its JSON document."""
    (tmp_path / "ditto.yaml").write_text(scripted.config())
    (tmp_path / "order.txt").write_text(REQUEST)
    (tmp_path / "stock.csv").write_text("sku,quantity\nSKU-1,9\n")
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("OTEL_", "FULFIL_"))}

    def run(*words: str, status: int = 0, env: dict[str, str] | None = None) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "fulfillment_cli", *words, "--output", "json"],
            cwd=tmp_path,
            env=kept | {"PYTHONPATH": str(ROOT)} | (env or {}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done
        document: dict[str, Any] = json.loads(done.stdout)
        return document | {"stderr": done.stderr}

    return run


NEW = ("--request", "order.txt", "--inventory", "stock.csv")


def test_a_run_is_a_trace_of_steps_and_requests(
    receiver: Receiver, fulfil: Callable[..., dict[str, Any]]
) -> None:
    fulfil("checkpoint", *NEW, env=receiver.environment)

    (run,) = receiver.named("run checkpoint")
    assert run["parent"] == ""
    assert run["attributes"] == {
        "fulfil.task.id": "task",
        "fulfil.command": "checkpoint",
        "fulfil.stage": "reserved",
    }
    assert {span["trace"] for span in receiver.spans} == {run["trace"]}
    steps = receiver.named("step ")
    assert [step["name"] for step in steps] == ["step prepare", "step resolve_operation"]
    assert {step["parent"] for step in steps} == {run["id"]}
    (chat,) = receiver.named("chat ")
    assert chat["parent"] == steps[0]["id"]
    assert chat["kind"] == 3  # CLIENT
    attributes = chat["attributes"]
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.provider.name"] == "scripted"
    assert attributes["gen_ai.request.model"] == "scripted"
    assert attributes["gen_ai.usage.input_tokens"] == 10
    assert attributes["gen_ai.usage.output_tokens"] == 5
    assert attributes["gen_ai.response.finish_reasons"] == ["stop"]
    requests = [*receiver.named("GET "), *receiver.named("POST ")]
    assert [one["name"] for one in requests] == ["GET /operations/{key}", "POST /reserve"]
    assert {one["parent"] for one in requests} == {steps[1]["id"]}
    assert requests[1]["attributes"]["http.response.status_code"] == 200
    assert receiver.resources[0]["service.name"] == "fulfil"


def test_nothing_of_the_order_is_told(
    receiver: Receiver, fulfil: Callable[..., dict[str, Any]]
) -> None:
    """Nor where it fails, nor of a person's decision."""
    made = fulfil("compensation", *NEW, env=receiver.environment)
    paused = fulfil("pause", *NEW, env=receiver.environment)
    fulfil(
        *("pause", "--directory", paused["directory"], "--decision", "approve"),
        *("--actor", "Anna-Actor"),
        env=receiver.environment,
    )

    assert made["result"]["stage"] == "compensated"
    assert len(receiver.named("run pause")) == 2
    for secret in (ADDRESS, "SKU-1", "task-reserve", "task-ship", "task-release", "Anna", "Bearer"):
        assert secret.encode() not in receiver.raw, secret


def test_a_resumed_run_is_linked_to_the_first(
    receiver: Receiver, fulfil: Callable[..., dict[str, Any]]
) -> None:
    first = fulfil("checkpoint", *NEW, "--stop-after", "prepared", env=receiver.environment)
    fulfil("checkpoint", "--directory", first["directory"], "--stop-after", "reserved")
    fulfil("checkpoint", "--directory", first["directory"], env=receiver.environment)
    story = fulfil("show", first["directory"])["story"]

    one, two = receiver.named("run checkpoint")
    assert two["links"] == [(one["trace"], one["id"])]
    assert one["links"] == []
    assert one["trace"] != two["trace"]
    entered = [moment["data"] for moment in story if moment["kind"] == "entered"]
    assert entered[0]["traceparent"].startswith(f"00-{one['trace']}-{one['id']}-0")
    assert "traceparent" not in entered[1]


def test_an_error_is_told_by_its_code_alone(
    receiver: Receiver, fulfil: Callable[..., dict[str, Any]], scripted: ScriptedModel
) -> None:
    scripted.script(then=lambda request: Reply({"error": ADDRESS}, status=503))

    fulfil("checkpoint", *NEW, status=4, env=receiver.environment)

    (run,), (chat,) = receiver.named("run checkpoint"), receiver.named("chat ")[:1]
    assert (run["failed"], chat["failed"]) == (True, True)
    assert run["attributes"]["error.type"] == "MODEL_UNAVAILABLE"
    assert chat["attributes"]["error.type"] == "MODEL_UNAVAILABLE"
    assert (run["events"], run["message"]) == (0, "")
    assert ADDRESS.encode() not in receiver.raw


def test_a_lost_answer_is_a_failed_request(
    receiver: Receiver, fulfil: Callable[..., dict[str, Any]]
) -> None:
    fulfil("side-effect", *NEW, env=receiver.environment)

    reserve, ship = receiver.named("POST ")
    assert reserve["failed"]
    assert reserve["attributes"]["error.type"] == "OUTCOME_UNKNOWN"
    assert not ship["failed"]


def test_a_collector_that_does_not_answer_is_not_waited_for(
    receiver: Receiver, fulfil: Callable[..., dict[str, Any]]
) -> None:
    """It never answers: a run that waited for it would not end."""
    receiver.stalled = True

    done = fulfil("checkpoint", *NEW, env=receiver.environment)

    assert done["result"]["stage"] == "reserved"
    assert receiver.requests >= 1
    assert "opentelemetry" not in done["stderr"].lower()


def test_a_collector_that_is_not_there_is_not_missed(
    fulfil: Callable[..., dict[str, Any]],
) -> None:
    done = fulfil("checkpoint", *NEW, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})

    assert done["result"]["stage"] == "reserved"
    assert all(line.startswith(("directory:", "continue:")) for line in done["stderr"].splitlines())


def test_the_console_exporter_leaves_stdout_alone(fulfil: Callable[..., dict[str, Any]]) -> None:
    done = fulfil("checkpoint", *NEW, env={"OTEL_TRACES_EXPORTER": "console"})

    assert done["result"]["stage"] == "reserved"
    assert '"name": "run checkpoint"' in done["stderr"]


def test_nothing_is_loaded_without_being_asked_for(tmp_path: Path, scripted: ScriptedModel) -> None:
    code = (
        "import sys, asyncio, json\n"
        "from fulfillment_cli import open_runtime, run_checkpoint\n"
        "from fulfillment_cli.settings import Settings\n"
        "async def main():\n"
        "    settings = Settings.model_validate(json.loads(sys.argv[1]))\n"
        "    async with open_runtime('d', settings=settings, stock={'SKU-1': 9}) as runtime:\n"
        "        result = await run_checkpoint(runtime, request=sys.argv[2])\n"
        "        print(result.stage)\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or 'protobuf' in name])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, scripted.config(), REQUEST],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == ["reserved", "[]"]


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, False),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, False),
    ],
)
def test_when_traces_are_asked_for(environment: dict[str, str], asked: bool) -> None:
    assert is_asked_for(environment, TRACES) is asked
    if not asked:
        assert type(telemetry_for(environment, "p")) is Telemetry


def _ask_ledger(pipe: Any, origin: str) -> str:
    """In a process of its own, whose provider nothing else has used."""
    import asyncio

    from fulfillment_cli.adapters.otel import OtelTraces

    async def ask() -> str:
        tracer = OtelTraces({"OTEL_TRACES_EXPORTER": "console"}, "p")
        async with Ledger(origin, "token", tracer) as ledger:
            with tracer.run("task", "checkpoint", lambda: None) as run:
                with suppress(FulfilError):
                    await ledger.available("primary", "SKU-1")
                return run.facts["traceparent"]

    return asyncio.run(ask())


def test_the_ledger_gets_the_traceparent(child: Callable[..., Child]) -> None:
    arrived: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            arrived.append(self.headers.get("traceparent"))
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        run = child(_ask_ledger, f"http://127.0.0.1:{server.server_port}").hear()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    (parent,) = arrived
    assert parent is not None
    assert parent.split("-")[1] == run.split("-")[1]  # the same trace
    assert parent.split("-")[2] != run.split("-")[2]  # its own span in it
