"""What wrong usage and configuration get: exit 2, a code, one line, and nothing is made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Done

Inside = Callable[..., Done]

CASES: dict[str, tuple[str, list[str]]] = {
    "unknown option": ("USAGE", ["checkpoint", "--bogus"]),
    "unknown command": ("USAGE", ["chekpoint"]),
    "missing value": ("USAGE", ["checkpoint", "--task"]),
    "stray argument": ("USAGE", ["checkpoint", "more"]),
    "deadline too small": ("USAGE", ["timeout", "--timeout-ms", "0"]),
    "deadline too large": ("USAGE", ["timeout", "--timeout-ms", "60001"]),
    "deadline not a number": ("USAGE", ["timeout", "--timeout-ms", "soon"]),
    "no attempt": ("USAGE", ["retry", "--max-attempts", "0"]),
    "too many attempts": ("USAGE", ["retry", "--max-attempts", "6"]),
    "no byte": ("USAGE", ["retry", "--initial-max-bytes", "0"]),
    "too many bytes": ("USAGE", ["retry", "--initial-max-bytes", "65537"]),
    "unknown source": ("USAGE", ["fallback", "--allow-source", "tertiary"]),
    "source twice": (
        "USAGE",
        ["fallback", "--allow-source", "backup", "--allow-source", "backup"],
    ),
    "unknown stage": ("USAGE", ["checkpoint", "--stop-after", "completed"]),
    "quiet and verbose": ("USAGE", ["checkpoint", "--quiet", "--verbose"]),
    "empty question": ("USAGE", ["session", "--question", " "]),
    "long question": ("USAGE", ["session", "--question", "x" * 1001]),
    "task id with a slash": ("TASK_ID_INVALID", ["checkpoint", "--task", "../x"]),
    "task id too long": ("TASK_ID_INVALID", ["checkpoint", "--task", "x" * 65]),
    "no such directory": ("DIRECTORY_NOT_FOUND", ["checkpoint", "--directory", "nowhere"]),
    "directory without a task": ("TASK_NOT_FOUND", ["checkpoint", "--directory", "empty"]),
    "decision without actor": (
        "USAGE",
        ["pause", "--directory", "empty", "--decision", "approve"],
    ),
    "actor without decision": ("USAGE", ["pause", "--directory", "empty", "--actor", "A"]),
    "revision alone": ("USAGE", ["pause", "--directory", "empty", "--revision", "3"]),
    "decision without directory": ("USAGE", ["pause", "--decision", "approve", "--actor", "A"]),
    "actor that forges a line": (
        "ACTOR_INVALID",
        ["pause", "--directory", "empty", "--decision", "approve", "--actor", "A\x1b[2KB"],
    ),
    "actor with bidi override": (
        "ACTOR_INVALID",
        ["pause", "--directory", "empty", "--decision", "reject", "--actor", "A\u202eB"],
    ),
    "unknown fault": ("FAULT_INVALID", ["checkpoint", "--fault", "everything"]),
    "delay without a value": ("FAULT_INVALID", ["checkpoint", "--fault", "catalogDelayMs"]),
    "delay not a number": ("FAULT_INVALID", ["checkpoint", "--fault", "catalogDelayMs=1e3"]),
    "delay too long": ("FAULT_INVALID", ["checkpoint", "--fault", "catalogDelayMs=600001"]),
    "switch not a boolean": ("FAULT_INVALID", ["checkpoint", "--fault", "rejectShipping=yes"]),
    "no stock": ("INVENTORY_INVALID", ["checkpoint", "--request", "order.txt"]),
    "stock without a text": ("USAGE", ["checkpoint", "--inventory", "stock.csv"]),
    "no such inventory": (
        "INVENTORY_INVALID",
        ["checkpoint", "--request", "order.txt", "--inventory", "nowhere.csv"],
    ),
    "no such request": (
        "REQUEST_INVALID",
        ["checkpoint", "--request", "nowhere.txt", "--inventory", "stock.csv"],
    ),
    "shared ledger without an id": (
        "USAGE",
        ["checkpoint", "--request", "order.txt", "--service-url", "http://127.0.0.1:1"],
    ),
    "shared ledger without a text": (
        "USAGE",
        ["checkpoint", "--task", "t", "--service-url", "http://127.0.0.1:1"],
    ),
    "shared ledger with stock": (
        "USAGE",
        [
            *("checkpoint", "--task", "t", "--request", "order.txt"),
            *("--inventory", "stock.csv", "--service-url", "http://127.0.0.1:1"),
        ],
    ),
    "shared ledger with a fault": (
        "USAGE",
        [
            *("checkpoint", "--task", "t", "--request", "order.txt"),
            *("--fault", "rejectShipping", "--service-url", "http://127.0.0.1:1"),
        ],
    ),
    "ledger that is not allowed": (
        "NETWORK_NOT_ALLOWED",
        [
            *("checkpoint", "--task", "t", "--request", "order.txt"),
            *("--service-url", "http://ledger.example:80"),
        ],
    ),
    "ledger with a path": (
        "USAGE",
        [
            *("checkpoint", "--task", "t", "--request", "order.txt"),
            *("--service-url", "http://ledger.example/path"),
        ],
    ),
    "request that is an unset variable": (
        "REQUEST_INVALID",
        ["checkpoint", "--request", "", "--inventory", "stock.csv"],
    ),
    "no such configuration": ("CONFIG_NOT_FOUND", ["checkpoint", "--config", "nowhere.yaml"]),
    "no such env file": ("CONFIG_NOT_FOUND", ["checkpoint", "--env-file", "nowhere.env"]),
    "configuration with a typo": ("CONFIG_INVALID", ["checkpoint", "--config", "typo.yaml"]),
    "unknown provider": ("PROVIDER_UNKNOWN", ["checkpoint", "--provider", "nobody"]),
    "provider without its key": ("PROVIDER_KEY_MISSING", ["checkpoint", "--provider", "keyed"]),
}


@pytest.fixture(autouse=True)
def files(cli: Cli) -> None:
    (cli.directory / "empty").mkdir()
    (cli.directory / "order.txt").write_text("2 of SKU-1 to Dock-North, please.\n")
    (cli.directory / "stock.csv").write_text("sku,quantity\nSKU-1,10\n")
    (cli.directory / "typo.yaml").write_text(
        "provider: local\nproviders: {local: {kind: local}}\nmodel: {max_atempts: 2}\n"
    )


@pytest.mark.parametrize("name", CASES)
def test_wrong_usage_is_told_in_one_line_and_makes_nothing(
    name: str, inside: Inside, cli: Cli
) -> None:
    code, arguments = CASES[name]
    before = sorted(cli.directory.rglob("*"))

    done = inside(*arguments)

    assert (done.status, done.code, done.stdout) == (2, code, "")
    assert len(done.stderr.splitlines()) == 1
    assert sorted(cli.directory.rglob("*")) == before


@pytest.mark.parametrize("name", CASES)
def test_wrong_usage_speaks_json(name: str, inside: Inside) -> None:
    code, (command, *options) = CASES[name]

    done = inside(command, "--output=json", *options)

    error = done.json["error"]
    assert (done.status, error["code"]) == (2, code)
    assert set(error) == {"code", "message", "hint"}
    assert error["message"]
    assert error["hint"]


def test_output_form_may_come_from_the_environment(inside: Inside) -> None:
    done = inside("checkpoint", "--bogus", env={"FULFIL_OUTPUT": "json"})

    assert done.json["error"]["code"] == "USAGE"


def test_an_unknown_output_form_is_told_as_text(inside: Inside) -> None:
    done = inside("checkpoint", "--output", "xml")

    assert (done.status, done.code, done.stdout) == (2, "USAGE", "")


def test_a_bad_environment_variable_is_named(inside: Inside) -> None:
    done = inside("timeout", env={"FULFIL_TIMEOUT_MS": "0"})

    assert done.code == "USAGE"
    assert "FULFIL_TIMEOUT_MS" in done.stderr


def test_a_typo_in_the_configuration_is_named_with_file_and_key(inside: Inside) -> None:
    done = inside("checkpoint", "--config", "typo.yaml")

    assert "typo.yaml: model.max_atempts: unknown key" in done.stderr


def test_what_decides_is_never_taken_from_the_environment(inside: Inside) -> None:
    done = inside(
        *("pause", "--directory", "empty"),
        env={"FULFIL_DECISION": "approve", "FULFIL_ACTOR": "nobody"},
    )

    assert done.code == "TASK_NOT_FOUND"


def test_a_command_that_is_nearly_right_is_suggested(inside: Inside) -> None:
    assert "Did you mean 'checkpoint'?" in inside("chekpoint").stderr


def test_an_unexpected_error_has_no_traceback_unless_it_is_asked_for(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("a defect\nin two lines")

    monkeypatch.setattr("fulfillment_cli.cli.flow_command.load_settings", broken)

    done = inside("checkpoint")
    assert (done.status, done.code) == (1, "INTERNAL")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" in inside("checkpoint", "--verbose").stderr
    spoken = inside("checkpoint", "--verbose", "--output", "json")
    assert spoken.json["error"]["code"] == "INTERNAL"


def test_the_local_model_is_missing(
    inside: Inside, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    done = inside("checkpoint", "--provider", "local")

    assert (done.status, done.code) == (2, "LOCAL_MODEL_MISSING")
    assert "pip install" in done.stderr
    assert "--provider" in done.stderr
    assert not Path(cli.directory / ".fulfil-tasks").exists()


def test_json_errors_are_one_document(inside: Inside) -> None:
    done = inside("checkpoint", "--task", "a\nb", "--output", "json")

    assert json.loads(done.stdout) == done.json
    assert done.stderr == ""
