"""Real service processes for the tests, and a client that hides nothing."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "test-token"
DEADLINE = 10.0


class Service:
    """One service process on ``directory/service.sqlite``."""

    def __init__(
        self,
        directory: Path,
        *,
        stock: dict[str, int] | None = None,
        faults: dict[str, Any] | None = None,
        options: Sequence[str] = (),
        command: Sequence[str] = ("-m", "reference_service"),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.database = directory / "service.sqlite"
        fixture = directory / "fixture.json"
        fixture.write_text(json.dumps({"stock": stock or {"SKU-1": 10}, "faults": faults or {}}))
        self.stderr = directory / "stderr.txt"
        arguments = ["--database", str(self.database), "--fixture", str(fixture), *options]
        base = {name: value for name, value in os.environ.items() if name != "FULFIL_SERVICE_TOKEN"}
        with self.stderr.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *command, *arguments],
                cwd=ROOT,
                env=base | {"FULFIL_SERVICE_TOKEN": TOKEN} | (environment or {}),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ready: dict[str, Any] = json.loads(line) if line else {}

    @property
    def port(self) -> int:
        return int(self.ready["origin"].rpartition(":")[2])

    def request(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        token: str | None = TOKEN,
    ) -> tuple[int, Any]:
        """One request on a connection of its own: the status and the parsed body."""
        sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
        payload = json.dumps(body).encode() if isinstance(body, dict) else body
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        with closing(connection):
            connection.request(method, path, payload, sent | (headers or {}))
            with connection.getresponse() as response:
                assert response.getheader("Content-Type") == "application/json"
                return response.status, json.loads(response.read() or b"null")

    def get(self, path: str) -> tuple[int, Any]:
        return self.request("GET", path)

    def post(self, kind: str, key: str, **changes: Any) -> tuple[int, Any]:
        return self.request("POST", f"/{kind}", order_body(kind, key, **changes))

    def raw(self, data: bytes, *, half_close: bool = True) -> bytes:
        """Send bytes and read until the service closes. A reset counts as closed."""
        received = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE) as connection:
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
                while chunk := connection.recv(65536):
                    received += chunk
            except ConnectionError:
                pass
        return received

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Look into the database as an outside tool does."""
        with closing(sqlite3.connect(self.database, timeout=5)) as connection:
            return connection.execute(sql).fetchall()

    def ledger_rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """All that a request may not change by being refused."""
        tables = ("ledger", "inventory", "operations", "reservations", "shipments")
        return {table: self.rows(f"SELECT * FROM {table} ORDER BY 1") for table in tables}

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll until ``condition`` holds."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, f"not in time: {what}"
            time.sleep(0.005)

    def kill(self) -> None:
        self.process.kill()
        assert self.wait() == -signal.SIGKILL

    def stop(self) -> None:
        self.process.terminate()
        assert self.wait() == 0

    def wait(self) -> int:
        code = self.process.wait(timeout=DEADLINE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def close(self) -> None:
        """End it, and see that it has complained about nothing."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        assert self.stderr.read_text() == ""


def order_body(kind: str, key: str, **changes: Any) -> dict[str, Any]:
    """A valid body; ``changes`` to sku, quantity and address go into the order."""
    order = {"sku": "SKU-1", "quantity": 2, "address": "Dock-North"}
    order |= {name: changes.pop(name) for name in order if name in changes}
    reservation = key if kind == "reserve" else "t-reserve"
    body = {"key": key, "taskUid": "uid-1", "order": order, "reservationKey": reservation}
    return body | changes


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Start services on ``tmp_path`` (one at a time, as the lock demands)."""
    started: list[Service] = []

    def starter(directory: Path = tmp_path, **options: Any) -> Service:
        service = Service(directory, **options)
        started.append(service)
        return service

    yield starter
    for service in started:
        service.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all requests of a module that must change nothing."""
    service = Service(tmp_path_factory.mktemp("shared"))
    yield service
    service.close()


@pytest.fixture
def body() -> Callable[..., dict[str, Any]]:
    """``order_body``, for tests that need more than ``Service.post``."""
    return order_body
