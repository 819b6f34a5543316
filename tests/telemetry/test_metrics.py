"""Metrics, as a real OTLP receiver gets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_model import Reply, ScriptedModel, right_answer
from tests.telemetry.conftest import NEW, Fulfil
from tests.telemetry.receiver import Receiver

CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "scripted",
    "gen_ai.request.model": "scripted",
}


def run(flow: str, stage: str, *, resumed: bool = False, **others: str) -> dict[str, Any]:
    """The attributes of a run."""
    named = {"fulfil.flow": flow, "fulfil.resumed": resumed, "fulfil.stage": stage}
    return named | {f"error.{name}": value for name, value in others.items()}


def change(flow: str, before: str, stage: str) -> tuple[dict[str, Any], int]:
    """One change of a stage, once."""
    return {"fulfil.flow": flow, "fulfil.from_stage": before, "fulfil.to_stage": stage}, 1


def outcomes(receiver: Receiver) -> list[tuple[str, str, int]]:
    """Kind, outcome and how often."""
    return [
        (told.pop("fulfil.operation.kind"), told.pop("fulfil.operation.outcome"), count)
        for told, count in receiver.counted("fulfil.operation.outcomes")
        if len(told) == 2
    ]


def requests(receiver: Receiver) -> list[tuple[Any, ...]]:
    """Method, status, error and how often, of the requests to the ledger."""
    found = []
    for told, count, seconds in receiver.measured("http.client.request.duration"):
        assert told.pop("server.address") == "127.0.0.1"
        assert 0 < told.pop("server.port") < 65536
        assert 0 < seconds < 60
        method, status = told.pop("http.request.method"), told.pop("http.response.status_code", 0)
        found.append((method, status, told.pop("error.type", None), count))
        assert told == {}
    return found


def test_a_run_is_measured(receiver: Receiver, fulfil: Fulfil) -> None:
    fulfil("checkpoint", *NEW, env=receiver.environment)

    assert {name for name, _ in receiver.metrics} == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "http.client.request.duration",
        "fulfil.task.runs",
        "fulfil.stage.changes",
        "fulfil.operation.outcomes",
    }
    ((told, count, seconds),) = receiver.measured("gen_ai.client.operation.duration")
    assert (told, count) == (CHAT, 1)
    assert 0 < seconds < 60
    assert receiver.measured("gen_ai.client.token.usage") == [
        (CHAT | {"gen_ai.token.type": "input"}, 1, 10),
        (CHAT | {"gen_ai.token.type": "output"}, 1, 5),
    ]
    # Its id, a look-up; the reservation.
    assert requests(receiver) == [("GET", 200, None, 2), ("POST", 200, None, 1)]
    assert receiver.counted("fulfil.task.runs") == [(run("checkpoint", "reserved"), 1)]
    assert receiver.counted("fulfil.stage.changes") == [
        change("checkpoint", "queued", "prepared"),
        change("checkpoint", "prepared", "reserved"),
    ]
    assert outcomes(receiver) == [("reserve", "committed", 1)]
    assert {one["service.name"] for one in receiver.resources} == {"fulfil"}


def test_units_and_boundaries_are_those_of_the_conventions(
    receiver: Receiver, fulfil: Fulfil
) -> None:
    fulfil("checkpoint", *NEW, env=receiver.environment)

    told = {name: metric for (name, _), metric in receiver.metrics.items()}
    assert {name: metric.unit for name, metric in told.items()} == {
        "gen_ai.client.operation.duration": "s",
        "gen_ai.client.token.usage": "{token}",
        "http.client.request.duration": "s",
        "fulfil.task.runs": "{run}",
        "fulfil.stage.changes": "{change}",
        "fulfil.operation.outcomes": "{outcome}",
    }
    bounds = {
        name: list(metric.histogram.data_points[0].explicit_bounds)
        for name, metric in told.items()
        if metric.HasField("histogram")
    }
    seconds = bounds["gen_ai.client.operation.duration"]
    assert (len(seconds), seconds[0], seconds[-1]) == (14, 0.01, 81.92)
    tokens = bounds["gen_ai.client.token.usage"]
    assert (len(tokens), tokens[0], tokens[-1]) == (14, 1, 67108864)
    http = bounds["http.client.request.duration"]
    assert (len(http), http[0], http[-1]) == (14, 0.005, 10)


def test_a_resumed_run_is_told_from_a_first_one(receiver: Receiver, fulfil: Fulfil) -> None:
    first = fulfil("checkpoint", *NEW, "--stop-after", "prepared")
    fulfil("checkpoint", "--directory", first["directory"], env=receiver.environment)

    assert receiver.counted("fulfil.task.runs") == [
        (run("checkpoint", "completed", resumed=True), 1)
    ]
    assert outcomes(receiver) == [("reserve", "committed", 1), ("ship", "committed", 1)]
    assert receiver.measured("gen_ai.client.operation.duration") == []


def test_an_error_is_a_run_and_a_request_of_its_type(
    receiver: Receiver, fulfil: Fulfil, scripted: ScriptedModel
) -> None:
    scripted.script(then=lambda request: Reply({}, status=503))

    fulfil("checkpoint", *NEW, status=4, env=receiver.environment)

    ((told, _, _),) = receiver.measured("gen_ai.client.operation.duration")
    assert told == CHAT | {"error.type": "MODEL_UNAVAILABLE"}
    assert receiver.measured("gen_ai.client.token.usage") == []
    assert receiver.counted("fulfil.task.runs") == [
        (run("checkpoint", "queued", type="MODEL_UNAVAILABLE"), 1)
    ]
    assert receiver.counted("fulfil.stage.changes") == []


def test_a_rejection_and_its_release_are_outcomes(receiver: Receiver, fulfil: Fulfil) -> None:
    fulfil("compensation", *NEW, env=receiver.environment)

    assert outcomes(receiver) == [
        ("reserve", "committed", 1),
        ("ship", "rejected", 1),
        ("release", "committed", 1),
    ]
    assert ("POST", 422, "422", 1) in requests(receiver)


def test_a_lost_answer_is_a_failed_request_and_no_outcome(
    receiver: Receiver, fulfil: Fulfil
) -> None:
    """It is looked up: what is counted is what is known in the end."""
    fulfil("side-effect", *NEW, env=receiver.environment)

    assert ("POST", 0, "OUTCOME_UNKNOWN", 1) in requests(receiver)
    assert outcomes(receiver) == [("reserve", "committed", 1), ("ship", "committed", 1)]


def test_what_is_not_known_yet_is_an_outcome(receiver: Receiver, fulfil: Fulfil) -> None:
    fulfil(
        *("checkpoint", *NEW, "--fault", "lookupUnavailable"), status=4, env=receiver.environment
    )
    fulfil(
        *("checkpoint", *NEW, "--fault", "reservationDelayMs=600000"),
        status=4,
        env=receiver.environment,
    )

    assert outcomes(receiver) == [("reserve", "unknown", 1), ("reserve", "pending", 1)]
    assert [told["fulfil.stage"] for told, _ in receiver.counted("fulfil.task.runs")] == [
        "uncertain",
        "uncertain",
    ]


@pytest.mark.parametrize(("most", "result", "status"), [("1", "dead-letter", 3), ("2", "later", 4)])
def test_a_sweep_counts_its_attempts(
    receiver: Receiver,
    fulfil: Fulfil,
    scripted: ScriptedModel,
    tmp_path: Path,
    most: str,
    result: str,
    status: int,
) -> None:
    """Of two directories in one process, one task goes on and one does not."""

    def answers_the_one(request: dict[str, Any]) -> Reply:
        well = "SKU-1" in json.dumps(request["messages"])
        return right_answer(request) if well else Reply({}, status=503)

    (tmp_path / "ill.txt").write_text("SKU: SKU-2; quantity: 2; delivery address: Dock-East.")
    scripted.script(then=lambda request: Reply({}, status=503))
    fulfil("side-effect", *NEW, status=4)
    fulfil("checkpoint", "--request", "ill.txt", "--inventory", "stock.csv", status=4)
    scripted.script(then=answers_the_one)

    fulfil("recover", "--max-attempts", most, status=status, env=receiver.environment)

    failed = {"fulfil.flow": "checkpoint", "error.type": "MODEL_UNAVAILABLE"}
    attempts = receiver.counted("fulfil.recovery.attempts")
    assert len(attempts) == 2
    assert ({"fulfil.flow": "side-effect", "fulfil.recovery.result": "finished"}, 1) in attempts
    assert (failed | {"fulfil.recovery.result": result}, 1) in attempts
    dead = [(failed, 1)] if result == "dead-letter" else []
    assert receiver.counted("fulfil.dead_letters") == dead
    runs = receiver.counted("fulfil.task.runs")
    assert (run("side-effect", "completed", resumed=True), 1) in runs
    assert (run("checkpoint", "queued", resumed=True), 1) in runs
