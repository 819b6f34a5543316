"""What stops a start, and what a start keeps."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]


@pytest.mark.parametrize(
    ("options", "environment", "code"),
    [
        ([], {"FULFIL_SERVICE_TOKEN": ""}, "TOKEN_MISSING"),
        ([], {"FULFIL_SERVICE_TOKEN": "  "}, "TOKEN_MISSING"),
        (["--port", "65536"], {}, "INVALID_USAGE"),
        (["--port", "-1"], {}, "INVALID_USAGE"),
        (["--port", "x"], {}, "INVALID_USAGE"),
        (["--lock-timeout", "nan"], {}, "INVALID_USAGE"),
        (["--token", "t"], {}, "INVALID_USAGE"),
        (["--fixture", "/nonexistent"], {}, "FIXTURE_INVALID"),
        (["--existing"], {}, "DATABASE_MISSING"),
        (["--database", "/nonexistent/s.sqlite"], {}, "DATABASE_UNAVAILABLE"),
        (["--database", "/nonexistent/s.sqlite", "--existing"], {}, "DATABASE_MISSING"),
    ],
)
def test_why_it_does_not_start(
    start: Start, tmp_path: Path, options: list[str], environment: dict[str, str], code: str
) -> None:
    service = start(options=options, environment=environment)
    assert service.ready.keys() == {"error"}
    assert service.ready["error"]["code"] == code
    assert service.ready["error"]["message"]
    assert service.wait() == 2
    assert list(tmp_path.glob("service.sqlite*")) == []


@pytest.mark.parametrize("faults", [{"unknown": True}, {"rejectShipping": "yes"}])
def test_a_wrong_fixture_stops_the_start(start: Start, faults: Any) -> None:
    service = start(faults=faults)
    assert service.ready["error"]["code"] == "FIXTURE_INVALID"
    assert not service.database.exists()


def test_a_foreign_file_stops_the_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "service.sqlite").write_bytes(b"my diary")
    service = start()
    assert service.ready["error"]["code"] == "DATABASE_INVALID"
    assert service.wait() == 2
    assert (tmp_path / "service.sqlite").read_bytes() == b"my diary"


@pytest.mark.parametrize("name", ["service.sqlite", "service.sqlite.lock"])
def test_a_directory_in_the_place_of_the_database(start: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    service = start()
    assert service.ready["error"]["code"] == "DATABASE_INVALID"
    assert service.wait() == 2


def test_a_damaged_ledger_is_reported_without_a_traceback(start: Start) -> None:
    first = start()
    first.stop()
    content = bytearray(first.database.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    first.database.write_bytes(content)
    service = start()
    assert service.ready["error"]["code"] == "DATABASE_INVALID"
    assert service.wait() == 2
    assert first.database.read_bytes() == content


def test_an_address_that_is_taken(start: Start, tmp_path: Path) -> None:
    first = start()
    (tmp_path / "other").mkdir()
    service = start(tmp_path / "other", options=["--port", str(first.port)])
    assert service.ready["error"]["code"] == "ADDRESS_IN_USE"
    assert service.wait() == 2


def test_a_port_can_be_used_again_at_once(start: Start) -> None:
    first = start()
    first.get("/healthz")
    first.kill()
    again = start(options=["--port", str(first.port)])
    assert again.ready == first.ready


def test_stock_of_a_fixture_counts_only_for_a_new_ledger(start: Start) -> None:
    first = start(stock={"SKU-1": 10})
    first.kill()
    again = start(stock={"SKU-1": 99, "SKU-2": 5})
    assert again.get("/inventory")[1]["inventory"] == [
        {"sku": "SKU-1", "quantity": 10, "initialQuantity": 10}
    ]


def test_the_token_is_not_on_the_command_line(start: Start) -> None:
    service = start(environment={"FULFIL_SERVICE_TOKEN": "only-in-the-environment"})
    command = Path(f"/proc/{service.process.pid}/cmdline").read_text()
    assert "only-in-the-environment" not in command
    assert service.request("GET", "/healthz", token="only-in-the-environment")[0] == 200


def test_an_outside_tool_that_writes_is_waited_for(start: Start) -> None:
    service = start()
    with closing(sqlite3.connect(service.database, isolation_level=None)) as outside:
        outside.execute("BEGIN IMMEDIATE")
        answers: list[Any] = []
        thread = threading.Thread(
            target=lambda: answers.append(service.post("reserve", "t-reserve"))
        )
        thread.start()
        thread.join(timeout=0.2)
        assert answers == []
        outside.execute("COMMIT")
        thread.join()
    assert answers[0][0] == 200
    assert json.dumps(answers[0][1]).count("committed") == 1
