"""Whatever bytes arrive: 4xx or a closed connection, a service that lives, the same ledger."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CONFIGURED = settings(
    max_examples=150,
    deadline=None,
    # a fixture that is shared by the examples is what these tests are about
    suppress_health_check=list(HealthCheck),
)
TOKEN_LINE = b"Authorization: Bearer test-token\r\n"
HEAD = b"POST /reserve HTTP/1.1\r\nHost: localhost\r\n" + TOKEN_LINE


def check(service: Any, data: bytes, *, statuses: str = "45") -> bytes:
    """Send it. What comes back is nothing or HTTP errors, and nothing has happened."""
    before = service.ledger_rows()
    answer: bytes = service.raw(data)
    if answer:
        assert answer.startswith(b"HTTP/1.1 "), answer[:100]
        assert chr(answer[9]) in statuses, answer[:100]
        assert b"Traceback" not in answer
    assert service.process.poll() is None
    assert service.ledger_rows() == before
    return answer


def served(service: Any) -> None:
    assert service.get("/healthz")[0] == 200


@pytest.fixture
def valid(body: Any) -> bytes:
    return json.dumps(body("reserve", "fuzz")).encode()


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"", 411),
        (b"Content-Length: -1\r\n", 400),
        (b"Content-Length: +{n}\r\n", 400),
        (b"Content-Length: {n}.0\r\n", 400),
        (b"Content-Length: 0x{n}\r\n", 400),
        (b"Content-Length: {n}, {n}\r\n", 400),
        (b"Content-Length: \r\n", 400),
        (b"Content-Length: 1_0\r\n", 400),
        (b"Content-Length: \xb2\r\n", 400),
        (b"Content-Length: " + b"9" * 19 + b"\r\n", 413),
        (b"Content-Length: " + b"9" * 5000 + b"\r\n", 400),
        (b"Content-Length: {n}\r\nContent-Length: {n}\r\n", 400),
        (b"Content-Length: {n}\r\ncontent-length: 3\r\n", 400),
        (b"Content-Length: 0\r\n", 400),
        (b"Content-Length : {n}\r\n", 400),
        (b"Content-Length: 9999\r\n", 400),
        (b"Content-Length: 65537\r\n", 413),
        (b"Transfer-Encoding: chunked\r\n", 501),
        (b"Transfer-Encoding: identity\r\nContent-Length: {n}\r\n", 501),
        (b"Content-Length: {n}\r\nTransfer-Encoding: chunked\r\n", 501),
        (b"transfer-encoding:\x0bchunked\r\n", 501),
        (b"Content-Length: {n}\r\nHost: localhost\r\n", 421),
        (b"Content-Length: {n}\r\n" + TOKEN_LINE, 401),
        (b"Content-Length: {n}\r\nno colon\r\n", 400),
        (b"Content-Length: {n}\r\n: no name\r\n", 400),
        (b"Content-Length: {n}\r\nX: " + b"x" * 70_000 + b"\r\n", 431),
        (b"Content-Length: {n}\r\n" + b"X: y\r\n" * 120, 431),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else None,
)
def test_framing_that_is_not_certain_is_refused(
    shared: Any, valid: bytes, lines: bytes, status: int
) -> None:
    lines = lines.replace(b"{n}", str(len(valid)).encode())
    answer = check(shared, HEAD + lines + b"\r\n" + valid)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:100]
    assert b"\r\nConnection: close\r\n" in answer
    served(shared)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"POST /reserve", 400),
        (b"GET /healthz", 400),
        (b"GET", 400),
        (b"GET /healthz HTTP/1.1 extra", 400),
        (b"GET /healthz HTTP/2.0", 505),
        (b"GET /healthz HTTP/1.2", 505),
        (b"GET /healthz HTTP/0.9", 505),
        (b"GET /healthz HTTP/x", 400),
        (b"GET /healthz ICY/1.1", 400),
        (b"GET http://localhost/healthz HTTP/1.1", 404),
        (b"OPTIONS * HTTP/1.1", 404),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1", 414),
        (b"GET /" + b"a" * 60_000 + b" HTTP/1.1", 404),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0", 505),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else None,
)
def test_request_lines_that_mean_nothing(shared: Any, line: bytes, status: int) -> None:
    answer = check(shared, line + b"\r\nHost: localhost\r\n" + TOKEN_LINE + b"\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:100]
    served(shared)


def test_the_log_keeps_only_the_beginning_of_a_long_path(shared: Any) -> None:
    shared.raw(b"GET /" + b"a" * 60_000 + b"?" + b"b" * 5_000 + b" HTTP/1.1\r\n\r\n")
    longest = shared.rows("SELECT max(length(path)), max(length(query)) FROM requests")
    assert longest == [(500, 500)]


def test_half_a_request_does_nothing_wherever_it_is_cut(shared: Any, valid: bytes) -> None:
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(valid) + valid
    cuts = {*range(0, len(whole), 7), *range(len(whole) - 12, len(whole))}
    for cut in sorted(cuts):
        check(shared, whole[:cut])
    served(shared)


def test_a_second_request_in_the_body_is_not_served(shared: Any, valid: bytes) -> None:
    hidden = HEAD + b"Content-Length: %d\r\n\r\n" % len(valid) + valid
    for framing in (
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Content-Length: 4\r\nContent-Length: 0\r\n",
        b"Content-Length: 999999\r\n",
        b"",
    ):
        answer = check(shared, HEAD + framing + b"\r\n" + hidden)
        assert answer.count(b"HTTP/1.1 ") == 1
    refused = b"POST /reserve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
    assert check(shared, refused + hidden).count(b"HTTP/1.1 ") == 1
    get = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + TOKEN_LINE
    assert check(shared, get + b"Content-Length: 2\r\n\r\n" + hidden).count(b"HTTP/1.1 ") == 1


@CONFIGURED
@given(data=st.binary(max_size=400))
def test_random_bytes(shared: Any, data: bytes) -> None:
    check(shared, data)


names = st.sampled_from(
    ["Host", "Content-Length", "Transfer-Encoding", "Expect", "Connection", "X", "Authorization"]
)
values = st.one_of(
    st.sampled_from(["localhost", "0", "5", "chunked", "100-continue", "close", "keep-alive"]),
    st.text(st.characters(max_codepoint=255), max_size=20),
)


@CONFIGURED
@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "get", "\x00"]),
    target=st.one_of(
        st.sampled_from(["/reserve", "/ship", "/healthz", "/operations/k", "//", "*", "/%"]),
        st.text(
            st.characters(max_codepoint=255, exclude_characters=" \r\n"), min_size=1, max_size=30
        ),
    ),
    version=st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/1.", "HTTP/11", "http/1.1", ""]),
    headers=st.lists(st.tuples(names, values), max_size=6),
    end=st.sampled_from(["\r\n", "\n", "\r", ""]),
    rest=st.binary(max_size=50),
)
def test_random_requests_without_the_token(
    shared: Any, *, method: str, target: str, version: str, headers: Any, end: str, rest: bytes
) -> None:
    lines = "".join(f"{name}: {value}{end}" for name, value in headers)
    head = f"{method} {target} {version}\r\n{lines}{end}"
    check(shared, head.encode("latin-1") + rest)


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["key", "taskUid", "order", "reservationKey", "sku", "quantity", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@CONFIGURED
@given(kind=st.sampled_from(["reserve", "ship", "release"]), document=documents)
def test_random_documents(shared: Any, kind: str, document: Any) -> None:
    """An address is never generated, so none of these is a whole order."""
    before = shared.ledger_rows()
    body = json.dumps(document).encode()
    status, answer = shared.request("POST", f"/{kind}", body)
    assert (status, answer["error"]["code"]) == (400, "INVALID_REQUEST")
    assert shared.ledger_rows() == before


@CONFIGURED
@given(seed=st.integers(0, 2**32))
def test_damaged_orders(shared: Any, valid: bytes, seed: int) -> None:
    """A damaged body is refused, or it is still an order; then it is done once, as it says."""
    source = random.Random(seed)
    damaged = bytearray(valid)
    for _ in range(source.randint(1, 4)):
        damaged[source.randrange(len(damaged))] = source.randrange(256)
    status, answer = shared.request("POST", "/reserve", bytes(damaged))
    if status == 400:
        assert answer["error"]["code"] == "INVALID_REQUEST"
        return
    assert status in (200, 409, 422)
    order = json.loads(bytes(damaged))["order"]
    assert type(order["quantity"]) is int and order["address"].strip()
    held = shared.rows("SELECT coalesce(sum(quantity), 0) FROM reservations")[0][0]
    left, initial = shared.rows("SELECT quantity, initial_quantity FROM inventory")[0]
    assert left >= 0 and left + held == initial
