"""The eight commands as child processes: stage, exit status, next command, rows of the ledger."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ROOT, Cli, Ledger, the_directory
from tests.scripted_model import ScriptedModel

FLOWS: dict[str, tuple[str, int, int, list[str], str | None]] = {
    # stage, exit status, questions, POSTs, the command that continues
    "retry": ("completed", 0, 1, ["/reserve", "/ship"], None),
    "fallback": ("completed", 0, 1, ["/reserve", "/ship"], None),
    "timeout": ("timed-out", 4, 1, [], "checkpoint"),
    "checkpoint": ("reserved", 0, 1, ["/reserve"], "checkpoint"),
    "pause": ("paused", 0, 1, [], "pause"),
    "session": ("prepared", 0, 2, [], "checkpoint"),
    "compensation": ("compensated", 0, 1, ["/reserve", "/ship", "/release"], None),
    "side-effect": ("completed", 0, 1, ["/reserve", "/ship"], None),
}


@pytest.mark.parametrize("flow", FLOWS)
def test_a_new_task_of_each_flow(flow: str, cli: Cli) -> None:
    stage, status, questions, posts, following = FLOWS[flow]

    done = cli.run(flow, "--output", "json")

    directory = the_directory(cli)
    assert done.status == status, done
    assert done.stderr.splitlines() == [
        f"directory: {directory}",
        f"continue: fulfil {flow} --directory {directory}",
    ]
    document = done.json
    assert document["directory"] == str(directory)
    assert set(document["result"]) - {"answer"} == {"stage", "error", "questions"}
    assert document["result"]["stage"] == document["checkpoint"]["stage"] == stage
    assert document["result"]["questions"] == questions
    if following is None:
        assert document["next"] is None
    else:
        assert document["next"].startswith(f"fulfil {following} --directory {directory}")
    assert Ledger(directory).posts() == posts
    assert directory.stat().st_mode & 0o777 == 0o700


def test_the_facts_of_each_ending(cli: Cli) -> None:
    retry = cli.json("retry", "--max-attempts", "1", status=1)
    assert retry["result"]["error"]["code"] == "SOURCE_TOO_LARGE"
    assert retry["result"]["questions"] == 0

    fallback = cli.json("fallback", "--allow-source", "primary", status=1)
    assert fallback["result"]["error"]["code"] == "UNAVAILABLE"
    assert fallback["checkpoint"]["selectedSource"] is None

    stuck = cli.json("compensation", "--fault", "rejectRelease", status=3)
    assert stuck["result"]["stage"] == "needs-review"
    assert stuck["result"]["error"]["code"] == "ADDRESS_REJECTED"
    assert stuck["checkpoint"]["compensationError"]["code"] == "COMPENSATION_RELEASE_REJECTED"

    unknown = cli.json("side-effect", "--fault", "lookupUnavailable", status=4)
    assert unknown["result"]["stage"] == "uncertain"
    assert unknown["result"]["error"]["code"] == "OUTCOME_UNKNOWN"
    assert unknown["next"] == f"fulfil side-effect --directory {unknown['directory']}"


def test_a_fault_of_the_flow_can_be_turned_off(cli: Cli) -> None:
    done = cli.json("timeout", "--fault", "catalogDelayMs=0", "--timeout-ms", "60000")

    assert done["result"]["stage"] == "completed"
    assert done["checkpoint"]["selectedSource"] == "primary"


def test_continued_to_the_end_and_then_only_told(cli: Cli, shared_model: ScriptedModel) -> None:
    first = cli.run("checkpoint")
    (following,) = [line for line in first.stdout.splitlines() if line.startswith("next: ")]

    second = cli.follow(following.removeprefix("next: "), "--output", "json")

    assert second.json["result"] == {"stage": "completed", "error": None, "questions": 0}
    assert second.stderr == ""
    directory = second.json["directory"]
    asked, requests = len(shared_model.requests), Ledger(directory).requests()
    third = cli.json("checkpoint", "--directory", directory)
    assert third["checkpoint"] == second.json["checkpoint"]
    assert (len(shared_model.requests), Ledger(directory).requests()) == (asked, requests)
    assert Ledger(directory).posts() == ["/reserve", "/ship"]


def test_a_task_that_timed_out_goes_on_only_by_checkpoint(cli: Cli) -> None:
    first = cli.json("timeout", status=4)

    again = cli.json("timeout", "--directory", first["directory"], status=4)
    assert again["result"]["stage"] == "timed-out"

    done = cli.follow(again["next"], "--output", "json")
    assert done.json["result"]["stage"] == "completed"
    assert done.json["checkpoint"]["catalogWaived"] is True


def test_stop_after(cli: Cli) -> None:
    first = cli.json("checkpoint", "--stop-after", "prepared")
    assert first["result"]["stage"] == "prepared"

    second = cli.json("checkpoint", "--directory", first["directory"], "--stop-after", "reserved")
    assert (second["result"]["stage"], second["result"]["questions"]) == ("reserved", 0)


def test_a_decision_is_taken_once(cli: Cli) -> None:
    paused = cli.json("pause")
    directory = paused["directory"]
    decide = ("pause", "--directory", directory, "--actor", "example-operator")
    assert "--revision 3" in paused["next"]

    moved = cli.run(*decide, "--decision", "approve", "--revision", "2", "--output", "json")
    assert (moved.status, moved.code) == (5, "REVISION_CONFLICT")

    done = cli.json(*decide, "--decision", "approve", "--revision", "3")
    assert done["result"]["stage"] == "completed"
    assert done["checkpoint"]["approval"]["actor"] == "example-operator"

    second = cli.run(*decide, "--decision", "reject", "--output", "json")
    assert (second.status, second.code) == (2, "ALREADY_DECIDED")


def test_a_rejection_ends_the_task(cli: Cli) -> None:
    directory = cli.json("pause")["directory"]

    done = cli.json("pause", "--directory", directory, "--decision", "reject", "--actor", "A")

    assert (done["result"]["stage"], done["next"]) == ("rejected", None)
    assert Ledger(directory).posts() == []


def test_only_a_paused_task_is_decided(cli: Cli) -> None:
    directory = cli.json("retry")["directory"]

    done = cli.run(
        *("pause", "--directory", directory, "--decision", "approve", "--actor", "A"),
        *("--output", "json"),
    )
    assert (done.status, done.code) == (2, "FLOW_MISMATCH")


def test_an_order_changed_after_the_approval_is_not_sent(cli: Cli) -> None:
    import sqlite3
    from contextlib import closing

    first = cli.json("pause", "--fault", "lookupUnavailable")
    directory = first["directory"]
    approve = ("pause", "--directory", directory, "--decision", "approve", "--actor", "A")
    assert cli.json(*approve, status=4)["result"]["stage"] == "uncertain"
    with closing(sqlite3.connect(Path(directory) / "tasks.sqlite")) as connection, connection:
        changed = connection.execute(
            "UPDATE tasks SET document = json_set(document, '$.order.quantity',"
            " json_extract(document, '$.order.quantity') + 1)"
        )
        assert changed.rowcount == 1
    requests = Ledger(directory).requests()

    done = cli.run("pause", "--directory", directory, "--output", "json")

    assert (done.status, done.code) == (3, "PLAN_MISMATCH")
    assert Ledger(directory).requests() == requests
    assert Ledger(directory).posts() == []


def test_a_session_answers_from_what_is_saved(cli: Cli) -> None:
    first = cli.json("checkpoint")
    order = first["checkpoint"]["order"]

    done = cli.json("session", "--directory", first["directory"], "--question", "Where is it?")

    assert done["result"]["answer"] == {
        "sku": order["sku"],
        "quantity": order["quantity"],
        "stage": "reserved",
    }
    assert done["checkpoint"]["revision"] == first["checkpoint"]["revision"] + 1


def test_a_session_answered_is_a_success_at_any_stage(cli: Cli) -> None:
    first = cli.json("timeout", status=4)

    done = cli.json("session", "--directory", first["directory"])

    assert done["result"]["answer"]["stage"] == "timed-out"


def test_the_users_own_order(cli: Cli) -> None:
    (cli.directory / "order.txt").write_text(
        "Fulfillment request. SKU: LAMP-7; quantity: 3; delivery address: 1 High Street.\n"
    )
    (cli.directory / "stock.csv").write_text("sku,quantity\nLAMP-7,5\n")
    own = ("checkpoint", "--request", "order.txt")

    done = cli.json(*own, "--inventory", "stock.csv", "--stop-after", "reserved")

    directory = done["directory"]
    assert done["checkpoint"]["order"] == {
        "sku": "LAMP-7",
        "quantity": 3,
        "address": "1 High Street",
    }
    assert Ledger(directory).rows("SELECT quantity FROM inventory") == [(2,)]

    again = cli.json(*own, "--directory", directory)
    assert again["result"]["stage"] == "completed"

    other = cli.run("retry", "--request", "order.txt", "--directory", directory)
    assert (other.status, other.code) == (2, "TASK_EXISTS")

    typed = cli.run("checkpoint", "--directory", directory, "--inventory", "stock.csv")
    assert (typed.status, typed.code) == (2, "USAGE")

    second = cli.json(*own, "--directory", directory, "--task", "second", status=1)
    assert second["result"]["error"]["code"] == "INSUFFICIENT_STOCK"
    assert second["checkpoint"]["id"] == "second"

    missing = cli.run("checkpoint", "--directory", directory, "--task", "third")
    assert (missing.status, missing.code) == (2, "TASK_NOT_FOUND")


def test_an_order_from_standard_input(cli: Cli) -> None:
    (cli.directory / "stock.json").write_text('{"LAMP-7": 5}')
    process = cli.start(
        *("retry", "--request", "-", "--inventory", "stock.json", "--output", "json"),
        stdin=-1,
    )
    assert process.stdin is not None
    process.stdin.write(
        "Fulfillment request. SKU: LAMP-7; quantity: 3; delivery address: Dock-North."
    )

    done = cli.end(process)

    assert done.json["checkpoint"]["order"]["sku"] == "LAMP-7"


def test_a_shared_ledger(cli: Cli, shared_model: ScriptedModel) -> None:
    import json
    import subprocess
    import sys

    from tests.cli.conftest import scripted_config

    (cli.directory / "fixture.json").write_text('{"stock": {"LAMP-7": 5}}')
    (cli.directory / "order.txt").write_text(
        "Fulfillment request. SKU: LAMP-7; quantity: 3; delivery address: Dock-North."
    )
    service = subprocess.Popen(
        [
            *(sys.executable, "-m", "reference_service", "--database"),
            *(str(cli.directory / "service.sqlite"), "--fixture"),
            str(cli.directory / "fixture.json"),
        ],
        env=cli.environment | {"FULFIL_SERVICE_TOKEN": "secret", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None
        origin = json.loads(service.stdout.readline())["origin"]
        config = scripted_config(shared_model, origin)
        (cli.directory / "ditto.yaml").write_text(json.dumps(config))
        (cli.directory / ".env").write_text("FULFIL_SERVICE_TOKEN=secret\n")
        at = ("--service-url", origin)

        first = cli.json("checkpoint", "--request", "order.txt", "--task", "order-1", *at)

        assert first["result"]["stage"] == "reserved"
        assert f"--task order-1 --service-url {origin}" in first["next"]
        assert not (Path(first["directory"]) / "service.sqlite").exists()
        done = cli.follow(first["next"], "--output", "json")
        assert done.json["result"]["stage"] == "completed"

        spawned = cli.run(
            *("checkpoint", "--directory", first["directory"], "--task", "order-1"),
        )
        assert spawned.status == 0  # a final task asks no ledger
    finally:
        service.terminate()
        service.communicate(timeout=10)


@pytest.mark.parametrize("typed", [True, False])
def test_policy_options_are_for_new_tasks(typed: bool, cli: Cli) -> None:
    """Typed, they are refused for a task that is there; from the environment, passed over."""
    directory = cli.json("retry", "--fault", "lookupUnavailable", status=4)["directory"]
    variables: dict[str, Any] = {"FULFIL_MAX_ATTEMPTS": "5", "FULFIL_FAULT": "rejectShipping"}

    if typed:
        done = cli.run("retry", "--directory", directory, "--max-attempts", "5")
        assert (done.status, done.code) == (2, "POLICY_FIXED")
    else:
        done = cli.run("retry", "--directory", directory, "--output", "json", env=variables)
        assert done.status == 4
        assert done.json["checkpoint"]["policy"]["maxAttempts"] == 3


def test_options_from_the_environment(cli: Cli) -> None:
    done = cli.run(
        "fallback",
        env={
            "FULFIL_ALLOW_SOURCE": "backup primary",
            "FULFIL_FAULT": "primaryUnavailable=false catalogDelayMs=1",
            "FULFIL_OUTPUT": "json",
            "FULFIL_QUIET": "1",
        },
    )

    assert done.stderr == ""
    assert done.json["checkpoint"]["policy"]["allowedSources"] == ["backup", "primary"]
    assert done.json["checkpoint"]["selectedSource"] == "backup"


@pytest.mark.parametrize("request_from", ["order.txt", "nowhere.txt", "-"])
def test_an_order_from_the_environment_is_no_claim_about_a_task_that_is_there(
    cli: Cli, request_from: str
) -> None:
    directory = cli.json("checkpoint")["directory"]
    (cli.directory / "order.txt").write_text("another text")

    reading, writing = os.pipe()  # whoever reads this waits for ever
    done = cli.run(
        *("checkpoint", "--directory", directory, "--output", "json"),
        env={"FULFIL_REQUEST": request_from, "FULFIL_INVENTORY": "nowhere.csv"},
        stdin=reading,
    )
    os.close(reading)
    os.close(writing)

    assert done.json["result"]["stage"] == "completed"
