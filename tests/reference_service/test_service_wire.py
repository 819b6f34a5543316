"""Tokens, hosts, limits and connections: what happens before a path is looked at."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from reference_service.database import Database
from reference_service.faults import Faults
from reference_service.handler import Handler
from reference_service.ledger import Ledger, Operation
from reference_service.routes import Routes
from reference_service.server import MAX_CONNECTIONS, Server

Start = Callable[..., Any]


@pytest.mark.parametrize("path", ["/healthz", "/operations/k", "/inventory", "/nowhere"])
@pytest.mark.parametrize("token", [None, "", "wrong", "test-token2", "test-toke", "ünï"])
def test_every_path_wants_the_token(shared: Any, path: str, token: str | None) -> None:
    status, answer = shared.request("GET", path, token=token)
    assert (status, answer["error"]["code"]) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("value", ["test-token", "Basic test-token", "Bearer", "Bearertest-token"])
def test_the_token_is_a_bearer_token(shared: Any, value: str) -> None:
    headers = {"Authorization": value}
    assert shared.request("GET", "/healthz", headers=headers, token=None)[0] == 401


def test_a_token_is_given_once(shared: Any) -> None:
    line = b"Authorization: Bearer test-token\r\n"
    answer = shared.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + line + line + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "localhost", "LOCALHOST:80", "[::1]:9"]
)
def test_our_own_names_are_served(shared: Any, host: str) -> None:
    assert shared.request("GET", "/healthz", headers={"Host": host})[0] == 200


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "127.0.0.1.evil.example", "localhost:", "127.0.0.1:x", "a@localhost"],
)
def test_other_names_are_not_served(shared: Any, host: str) -> None:
    status, answer = shared.request("GET", "/healthz", headers={"Host": host})
    assert (status, answer["error"]["code"]) == (421, "INVALID_HOST")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "NOT_FOUND"),
        ("GET", "/catalog", 404, "NOT_FOUND"),
        ("GET", "/catalog/other?sku=SKU-1", 404, "NOT_FOUND"),
        ("GET", "/healthz/", 404, "NOT_FOUND"),
        ("POST", "/refund", 404, "NOT_FOUND"),
        ("GET", "/reserve", 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/operations/k", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/healthz", 405, "METHOD_NOT_ALLOWED"),
        ("BREW", "/inventory", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/operations/", 400, "INVALID_REQUEST"),
        ("GET", "/operations/a%20b", 400, "INVALID_REQUEST"),
        ("GET", "/operations/a/b", 400, "INVALID_REQUEST"),
        ("GET", "/operations/" + "a" * 101, 400, "INVALID_REQUEST"),
        ("GET", "/operations/k?x=1", 400, "INVALID_REQUEST"),
        ("GET", "/operations?limit=0", 400, "INVALID_REQUEST"),
        ("GET", "/inventory?after=%2e", 400, "INVALID_REQUEST"),
        ("GET", "/healthz?x=1", 400, "INVALID_REQUEST"),
        ("GET", "/catalog/primary", 400, "INVALID_REQUEST"),
        ("GET", "/catalog/primary?sku=", 400, "INVALID_REQUEST"),
        ("GET", "/catalog/primary?sku=a&sku=b", 400, "INVALID_REQUEST"),
    ],
)
def test_what_is_not_there(shared: Any, method: str, path: str, status: int, code: str) -> None:
    got, answer = shared.request(method, path)
    assert (got, answer["error"]["code"]) == (status, code)
    assert answer["error"]["message"]


def test_a_405_says_what_is_allowed_and_a_head_has_no_body(shared: Any) -> None:
    head = b"HEAD /reserve HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer test-token\r\n\r\n"
    answer = shared.raw(head)
    assert b"\r\nAllow: POST\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_the_largest_body_that_is_read_and_one_byte_more(shared: Any, body: Any) -> None:
    valid = json.dumps(body("reserve", "k", quantity=0)).encode()
    status, answer = shared.request("POST", "/reserve", valid.ljust(64 * 1024))
    assert (status, answer["error"]["code"]) == (400, "INVALID_REQUEST")
    status, answer = shared.request("POST", "/reserve", valid.ljust(64 * 1024 + 1))
    assert (status, answer["error"]["code"]) == (413, "BODY_LIMIT")


def test_the_answer_to_a_huge_body_arrives_although_it_is_not_read(shared: Any) -> None:
    head = (
        b"POST /reserve HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer test-token\r\n"
        b"Content-Length: 500000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", shared.port), timeout=10) as connection:
        connection.sendall(head + b"x" * 10_000)
        assert connection.recv(9, socket.MSG_PEEK) == b"HTTP/1.1 "
        for _ in range(49):  # a client that writes all before it reads: no reset may meet it
            connection.sendall(b"x" * 10_000)
            time.sleep(0.001)
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_connection_serves_many_requests(shared: Any, body: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared.port)
    with closing(connection):
        connection.connect()
        used = connection.sock
        for method, path, payload, status in (
            ("GET", "/healthz", None, 200),
            ("POST", "/reserve", b"{}", 400),  # read to its end, so the next one is found
            ("GET", "/nowhere", None, 404),
            ("POST", "/ship", json.dumps(body("ship", "", quantity=0)), 400),
            ("GET", "/healthz", None, 200),
        ):
            connection.request(method, path, payload, {"Authorization": "Bearer test-token"})
            with connection.getresponse() as response:
                response.read()
                assert response.status == status
            assert connection.sock is used


def test_pipelined_requests_are_answered_in_order(shared: Any) -> None:
    head = "GET {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer test-token\r\n{}\r\n"
    first, last = head.format("/healthz", ""), head.format("/nowhere", "Connection: close\r\n")
    answer = shared.raw((first + last).encode(), half_close=False)
    assert answer.count(b"HTTP/1.1 ") == 2
    assert answer.index(b" 200 ") < answer.index(b" 404 ")


def test_a_body_is_asked_for_only_if_it_is_wanted(shared: Any) -> None:
    head = (
        "POST /reserve HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n"
        "Expect: 100-continue\r\nContent-Length: {}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", shared.port), timeout=10) as connection:
        connection.sendall(head.format("test-token", 2).encode())
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
    for token, length, status in (("wrong", 2, 401), ("test-token", 70_000, 413)):
        answer = shared.raw(head.format(token, length).encode())
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server in this process, for what cannot be brought about from outside."""
    database = Database.open(str(tmp_path / "s.sqlite"), {"SKU-1": 10}, existing=False)
    with closing(Ledger(database)) as ledger:
        server = Server(0, b"test-token", ledger, Routes(ledger, Faults()))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.stop()
        thread.join()


def asked(server: Server, method: str, path: str, payload: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    with closing(connection):
        text = json.dumps(payload) if payload else None
        connection.request(method, path, text, {"Authorization": "Bearer test-token"})
        with connection.getresponse() as response:
            return response.status, json.loads(response.read())


def test_a_failure_of_ours_is_a_500_and_its_operation_is_taken_up_again(
    server: Server, body: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settle = server.ledger.settle
    failures = iter([True, True])

    def failing(key: str, refused: Any = ()) -> Operation:
        if next(failures, False):
            raise MemoryError("no room for secrets")
        return settle(key, refused)

    monkeypatch.setattr(server.ledger, "settle", failing)
    for method, path, payload in (
        ("POST", "/reserve", body("reserve", "t-reserve")),
        ("GET", "/operations/t-reserve", None),
    ):
        status, answer = asked(server, method, path, payload)
        assert (status, answer["error"]["code"]) == (500, "INTERNAL")
        assert "secrets" not in repr(answer)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "reference_service: POST '/reserve': MemoryError: no room for secrets"
    assert len(lines) == 2
    status, answer = asked(server, "GET", "/operations/t-reserve")
    assert (status, answer["state"]) == (200, "committed")
    assert server.ledger.available("SKU-1") == 8


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", b""),
        (b"GET /hea", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: loc", b"HTTP/1.1 408 "),
        (
            b"POST /reserve HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer test-token\r\n"
            b"Content-Length: 9\r\n\r\n{",
            b"HTTP/1.1 408 ",
        ),
    ],
)
def test_a_silent_client_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, data: bytes, expected: bytes
) -> None:
    monkeypatch.setattr(Handler, "timeout", 0.05)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(data)
        assert connection.recv(65536)[:13] == expected


def test_connections_over_the_limit_wait_for_a_place(shared: Any) -> None:
    request = (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer test-token\r\n\r\n"
    )
    with ExitStack() as stack:

        def connected() -> socket.socket:
            address = ("127.0.0.1", shared.port)
            return stack.enter_context(socket.create_connection(address, timeout=10))

        inside = [connected() for _ in range(MAX_CONNECTIONS)]
        waiting = connected()
        waiting.sendall(request)
        waiting.settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        waiting.settimeout(10)
        inside[-1].sendall(request)  # who is served while others wait gives up the place
        assert b"\r\nConnection: close\r\n" in inside[-1].recv(65536)
        assert b" 200 " in waiting.recv(65536)
