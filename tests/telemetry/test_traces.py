"""Traces, as a real OTLP receiver gets them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fulfillment_cli.adapters.ledger import Ledger
from fulfillment_cli.domain.errors import FulfilError
from tests.scripted_model import Reply, ScriptedModel
from tests.support import Child
from tests.telemetry.conftest import ADDRESS, NEW, Fulfil
from tests.telemetry.receiver import Receiver


def test_a_run_is_a_trace_of_steps_and_requests(receiver: Receiver, fulfil: Fulfil) -> None:
    fulfil("checkpoint", *NEW, env=receiver.environment)

    (run,) = receiver.named("run checkpoint")
    assert run["parent"] == ""
    assert run["attributes"] == {
        "fulfil.task.id": "task",
        "fulfil.command": "checkpoint",
        "fulfil.flow": "checkpoint",
        "fulfil.resumed": False,
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


def test_a_resumed_run_is_linked_to_the_first(receiver: Receiver, fulfil: Fulfil) -> None:
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
    receiver: Receiver, fulfil: Fulfil, scripted: ScriptedModel
) -> None:
    scripted.script(then=lambda request: Reply({"error": ADDRESS}, status=503))

    fulfil("checkpoint", *NEW, status=4, env=receiver.environment)

    (run,), (chat,) = receiver.named("run checkpoint"), receiver.named("chat ")[:1]
    assert (run["failed"], chat["failed"]) == (True, True)
    assert run["attributes"]["error.type"] == "MODEL_UNAVAILABLE"
    assert chat["attributes"]["error.type"] == "MODEL_UNAVAILABLE"
    assert (run["events"], run["message"]) == (0, "")
    assert ADDRESS.encode() not in receiver.raw["/v1/traces"]


def test_a_lost_answer_is_a_failed_request(receiver: Receiver, fulfil: Fulfil) -> None:
    fulfil("side-effect", *NEW, env=receiver.environment)

    reserve, ship = receiver.named("POST ")
    assert reserve["failed"]
    assert reserve["attributes"]["error.type"] == "OUTCOME_UNKNOWN"
    assert not ship["failed"]


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
