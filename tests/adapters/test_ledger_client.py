"""The ledger client, against the real service and against servers that misbehave."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from fulfillment_cli.adapters import ledger as client
from fulfillment_cli.adapters.ledger import Ledger
from fulfillment_cli.domain.errors import (
    CatalogError,
    CatalogUnavailable,
    FulfilError,
    LedgerError,
    LedgerNotReached,
    OutcomeUnknown,
    UsageError,
)
from fulfillment_cli.domain.operations import Kind, Operation, Verdict
from fulfillment_cli.domain.order import Order
from tests.support import ORDER, STOCK, TOKEN, Service, http, origin_of, read_message, serving

StartService = Callable[..., Service]


def operation(kind: Kind = Kind.RESERVE, task_id: str = "task", **changes: Any) -> Operation:
    values: dict[str, Any] = {
        "kind": kind,
        "key": f"{task_id}-{kind}",
        "task_uid": "uid-1",
        "order": ORDER,
        "reservation_key": f"{task_id}-reserve",
    }
    return Operation(**values | changes)


# -- a server that answers what it is told -----------------------------------------------------


@dataclass
class RawServer:
    """``answer`` gets each request (head and body) and a writer to say anything with."""

    answer: Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
    requests: list[bytes] = field(default_factory=list)
    origin: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_message(reader)
        self.requests.append(request)
        await self.answer(request, writer)


@asynccontextmanager
async def raw_server(
    answer: bytes | Callable[[bytes, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[RawServer]:
    async def fixed(request: bytes, writer: asyncio.StreamWriter) -> None:
        assert isinstance(answer, bytes)
        writer.write(answer)
        await writer.drain()

    running = RawServer(fixed if isinstance(answer, bytes) else answer)
    async with serving(running.serve) as server:
        running.origin = origin_of(server)
        yield running


def state(of: Operation, name: str, **more: Any) -> dict[str, Any]:
    return {"key": of.key, "state": name, "fingerprint": of.fingerprint, **more}


@asynccontextmanager
async def ledger_at(origin: str) -> AsyncIterator[Ledger]:
    async with Ledger(origin, TOKEN) as ledger:
        yield ledger


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
    return port


# -- the real service --------------------------------------------------------------------------


async def test_a_task_s_operations_at_the_real_service(service: StartService) -> None:
    running = service()
    async with ledger_at(running.origin) as ledger:
        assert await ledger.identify() == running.ledger_id == ledger.ledger_id
        assert await ledger.available("primary", "SKU-1") == 10
        reserve, ship = operation(), operation(Kind.SHIP)
        assert await ledger.look_up(reserve) == Verdict("absent")
        committed = await ledger.submit(reserve)
        assert committed.state == "committed"
        assert committed == await ledger.submit(reserve) == await ledger.look_up(reserve)
        assert (await ledger.submit(ship)).state == "committed"
        rejected = await ledger.submit(operation(Kind.RELEASE))
        assert (rejected.state, rejected.code) == ("rejected", "ALREADY_SHIPPED")
        assert await ledger.look_up(operation(Kind.RELEASE)) == rejected
    assert running.stock() == 8
    assert running.reservations() == [("task-reserve", "SKU-1", 2, "shipped")]


@pytest.mark.parametrize(
    "other", [{"task_uid": "uid-2"}, {"order": Order(sku="SKU-1", quantity=3, address="D")}]
)
async def test_the_same_key_with_other_contents_is_a_conflict_and_changes_nothing(
    service: StartService, other: dict[str, Any]
) -> None:
    running = service()
    async with ledger_at(running.origin) as ledger:
        await ledger.submit(operation())
        before = running.business()
        for ask in (ledger.submit, ledger.look_up):
            verdict = await ask(operation(**other))
            assert (verdict.state, verdict.code) == ("conflict", "IDEMPOTENCY_CONFLICT")
    assert running.business() == before


async def test_a_lost_answer_is_unknown_and_the_look_up_knows(service: StartService) -> None:
    running = service(faults={"dropReservationResponse": True})
    async with ledger_at(running.origin) as ledger:
        with pytest.raises(OutcomeUnknown):
            await ledger.submit(operation())
        assert (await ledger.look_up(operation())).state == "committed"


async def test_a_write_in_hand_is_pending(service: StartService) -> None:
    running = service(faults={"reservationDelayMs": 600_000})
    async with ledger_at(running.origin) as ledger, ledger_at(running.origin) as other:
        sending = asyncio.create_task(ledger.submit(operation()))
        while (await other.look_up(operation())).state == "absent":
            await asyncio.sleep(0.005)
        assert await other.look_up(operation()) == Verdict("pending")
        assert await other.submit(operation()) == Verdict("pending")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


async def test_a_look_up_that_is_down_is_no_answer(service: StartService) -> None:
    running = service(faults={"lookupUnavailable": True})
    async with ledger_at(running.origin) as ledger:
        with pytest.raises(OutcomeUnknown):
            await ledger.look_up(operation())


async def test_pages_bring_every_row_once(service: StartService) -> None:
    stock = {f"SKU-{number:04}": number for number in range(1101)}
    running = service(stock=stock)
    async with ledger_at(running.origin) as ledger:
        found = [(row["sku"], row["quantity"]) async for row in ledger.pages("inventory")]
        assert found == sorted(stock.items())
        with pytest.raises(LedgerError):
            assert [row async for row in ledger.pages("nothing")]


async def test_a_wrong_token_is_told_as_such(service: StartService) -> None:
    running = service()
    async with Ledger(running.origin, "wrong") as ledger:
        with pytest.raises(UsageError) as refused:
            await ledger.identify()
        assert refused.value.code == "LEDGER_UNAUTHORIZED"
        with pytest.raises(CatalogError) as forbidden:
            await ledger.available("primary", "SKU-1")
        assert forbidden.value.code == "FORBIDDEN"
        for ask in (ledger.look_up, ledger.submit):
            with pytest.raises(OutcomeUnknown):
                await ask(operation())
    assert running.stock() == STOCK["SKU-1"]


# -- servers that misbehave --------------------------------------------------------------------

FOREIGN = "0" * 64
HTML = b"<html><body>Bad gateway</body></html>"
UNREADABLE = {
    "html": http(200, HTML),
    "empty": http(200),
    "a list": http(200, [1]),
    "text": http(200, "absent"),
    "no state": http(200, {}),
    "unknown state": http(200, state(operation(), "maybe")),
    "state of another type": http(200, state(operation(), "x") | {"state": ["absent"]}),
    "rejected without a code": http(200, state(operation(), "rejected")),
    "too long": http(200, state(operation(), "committed", more="x" * 65536)),
    "nested too deep": http(200, b"[" * 60_000),
    "a number too long": http(200, b'{"state": ' + b"9" * 5000 + b"}"),
    "not UTF-8": http(200, b'{"state": "\xff"}'),
    "not gzip": http(200, state(operation(), "absent"), "Content-Encoding: gzip"),
    "404": http(404, {"error": {"code": "NOT_FOUND"}}),
    "404 absent": http(404, {"state": "absent"}),
    "401": http(401, {"state": "absent"}),
    "403": http(403, {"state": "absent"}),
    "500": http(500, {"state": "absent"}),
    "503": http(503, {"error": {"code": "LOOKUP_UNAVAILABLE"}}),
    "204": b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    "redirect": http(302, b"", "Location: http://127.0.0.1:9/"),
    "half a body": http(200, state(operation(), "absent"))[:-3],
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "nothing": b"",
    "no HTTP": b"hello\r\n\r\n",
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_an_unreadable_look_up_is_unknown_and_never_absent(name: str) -> None:
    async with raw_server(UNREADABLE[name]) as server, ledger_at(server.origin) as ledger:
        with pytest.raises(OutcomeUnknown) as error:
            await ledger.look_up(operation())
        assert error.value.code == "OUTCOME_UNKNOWN"


@pytest.mark.parametrize("name", [*UNREADABLE, "202 committed", "422 committed", "200 pending"])
async def test_an_unreadable_answer_to_a_write_is_unknown(name: str) -> None:
    answers = UNREADABLE | {
        "202 committed": http(202, state(operation(), "committed")),
        "422 committed": http(422, state(operation(), "committed")),
        "200 pending": http(200, state(operation(), "pending")),
        "409": http(409, {"error": {"code": "OTHER"}}),
    }
    async with raw_server(answers[name]) as server, ledger_at(server.origin) as ledger:
        with pytest.raises(OutcomeUnknown):
            await ledger.submit(operation())
        assert len(server.requests) == 1  # never sent again by itself


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 500, 502, 503, 504])
async def test_a_refused_write_without_a_verdict_is_unknown(status: int) -> None:
    async with raw_server(http(status, HTML)) as server, ledger_at(server.origin) as ledger:
        with pytest.raises(OutcomeUnknown):
            await ledger.submit(operation())


@pytest.mark.parametrize("name", ["pending", "committed", "rejected"])
async def test_a_foreign_fingerprint_is_a_conflict_whatever_the_state(name: str) -> None:
    body = state(operation(), name, code="INSUFFICIENT_STOCK") | {"fingerprint": FOREIGN}
    status = {"pending": 202, "committed": 200, "rejected": 422}[name]
    async with raw_server(http(200, body)) as server, ledger_at(server.origin) as ledger:
        assert (await ledger.look_up(operation())).state == "conflict"
    async with raw_server(http(status, body)) as server, ledger_at(server.origin) as ledger:
        assert (await ledger.submit(operation())).state == "conflict"


async def test_a_verdict_without_a_fingerprint_is_a_conflict() -> None:
    body = {"state": "committed"}
    async with raw_server(http(200, body)) as server, ledger_at(server.origin) as ledger:
        assert (await ledger.look_up(operation())).state == "conflict"


async def test_a_redirect_is_not_followed() -> None:
    async with raw_server(http(200, {"state": "absent"})) as elsewhere:
        away = http(307, b"", f"Location: {elsewhere.origin}/")
        async with raw_server(away) as server, ledger_at(server.origin) as ledger:
            for ask in (ledger.look_up, ledger.submit):
                with pytest.raises(OutcomeUnknown):
                    await ask(operation())
        assert elsewhere.requests == []


async def test_no_connection_means_that_nothing_was_sent(closed_port: int) -> None:
    async with ledger_at(f"http://127.0.0.1:{closed_port}") as ledger:
        with pytest.raises(LedgerNotReached) as error:
            await ledger.submit(operation())
        assert error.value.code == "LEDGER_UNAVAILABLE"
        with pytest.raises(OutcomeUnknown):
            await ledger.look_up(operation())
        with pytest.raises(LedgerNotReached):
            await ledger.identify()
        with pytest.raises(CatalogUnavailable):
            await ledger.available("primary", "SKU-1")


async def drip(request: bytes, writer: asyncio.StreamWriter) -> None:
    """One byte at a time: each read is in time, the whole never ends."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silence(request: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def endless(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        writer.write(b" " * 65536)
        await writer.drain()


@pytest.mark.parametrize("answer", [drip, silence])
async def test_no_request_lasts_longer_than_the_cap(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Awaitable[None]]
) -> None:
    monkeypatch.setattr(client, "TRANSPORT_CAP_SECONDS", 0.1)
    async with raw_server(answer) as server, ledger_at(server.origin) as ledger:
        for ask in (ledger.look_up, ledger.submit):
            with pytest.raises(OutcomeUnknown):
                await ask(operation())
        with pytest.raises(CatalogUnavailable):
            await ledger.available("primary", "SKU-1")
        with pytest.raises(LedgerNotReached):
            await ledger.identify()


def test_the_cap_is_the_contracts() -> None:
    assert client.TRANSPORT_CAP_SECONDS == 10
    assert client.MAX_BODY_BYTES == 65536


async def test_an_answer_without_end_is_unreadable() -> None:
    async with raw_server(endless) as server, ledger_at(server.origin) as ledger:
        with pytest.raises(OutcomeUnknown):
            await ledger.look_up(operation())
        with pytest.raises(CatalogError) as error:
            await ledger.available("primary", "SKU-1")
        assert error.value.code == "INVALID_RESPONSE"


@pytest.mark.parametrize("length", [65536, 65537])
async def test_an_answer_may_be_64_kib_long(length: int) -> None:
    body = json.dumps(state(operation(), "absent")).encode().ljust(length)
    async with raw_server(http(200, body)) as server, ledger_at(server.origin) as ledger:
        if length == 65536:
            assert await ledger.look_up(operation()) == Verdict("absent")
        else:
            with pytest.raises(OutcomeUnknown):
                await ledger.look_up(operation())


async def test_cancellation_by_the_caller_stays_cancellation() -> None:
    async with raw_server(silence) as server, ledger_at(server.origin) as ledger:
        for call in (ledger.submit(operation()), ledger.available("primary", "SKU-1")):
            asking = asyncio.create_task(call)
            seen = len(server.requests)
            while len(server.requests) == seen:
                await asyncio.sleep(0.005)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_proxy_variables_are_not_for_this_traffic(
    service: StartService, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    running = service()
    async with raw_server(http(502, HTML)) as proxy:
        monkeypatch.setenv(name, proxy.origin)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with ledger_at(running.origin) as ledger:
            assert await ledger.identify() == running.ledger_id
            assert (await ledger.submit(operation())).state == "committed"
        assert proxy.requests == []


# -- catalog -----------------------------------------------------------------------------------

ENTRY = {"sku": "SKU-1", "available": 3, "source": "primary"}
CATALOG = {
    "503": (http(503, HTML), "UNAVAILABLE"),
    "503 with an entry": (http(503, ENTRY), "UNAVAILABLE"),
    "a connection that fails": (b"", "UNAVAILABLE"),
    "half an answer": (http(200, ENTRY)[:-3], "UNAVAILABLE"),
    "401": (http(401, ENTRY), "FORBIDDEN"),
    "403": (http(403, ENTRY), "FORBIDDEN"),
    "404": (http(404, {"error": {"code": "SKU_NOT_FOUND"}}), "SKU_NOT_FOUND"),
    "404 of something else": (http(404, HTML), "INVALID_RESPONSE"),
    "500": (http(500, ENTRY), "INVALID_RESPONSE"),
    "redirect": (http(302, ENTRY, "Location: /"), "INVALID_RESPONSE"),
    "html": (http(200, HTML), "INVALID_RESPONSE"),
    "another sku": (http(200, ENTRY | {"sku": "SKU-2"}), "INVALID_RESPONSE"),
    "another source": (http(200, ENTRY | {"source": "backup"}), "INVALID_RESPONSE"),
    "negative": (http(200, ENTRY | {"available": -1}), "INVALID_RESPONSE"),
    "a text": (http(200, ENTRY | {"available": "3"}), "INVALID_RESPONSE"),
    "a float": (http(200, ENTRY | {"available": 3.0}), "INVALID_RESPONSE"),
    "a boolean": (http(200, ENTRY | {"available": True}), "INVALID_RESPONSE"),
    "too long": (http(200, ENTRY | {"more": "x" * 65536}), "INVALID_RESPONSE"),
}


@pytest.mark.parametrize("name", CATALOG)
async def test_what_a_catalog_may_answer(name: str) -> None:
    answer, code = CATALOG[name]
    async with raw_server(answer) as server, ledger_at(server.origin) as ledger:
        with pytest.raises(CatalogError) as error:
            await ledger.available("primary", "SKU-1")
    assert error.value.code == code
    assert isinstance(error.value, CatalogUnavailable) == (code == "UNAVAILABLE")


@pytest.mark.parametrize("available", [0, 3])
async def test_a_catalog_entry_is_read(available: int) -> None:
    body = ENTRY | {"available": available}
    async with raw_server(http(200, body)) as server, ledger_at(server.origin) as ledger:
        assert await ledger.available("primary", "SKU-1") == available
        assert b"GET /catalog/primary?sku=SKU-1 " in server.requests[0]


async def test_the_token_is_in_no_error() -> None:
    async with raw_server(http(500, HTML)) as server, ledger_at(server.origin) as ledger:
        for call in (
            ledger.identify(),
            ledger.available("primary", "SKU-1"),
            ledger.look_up(operation()),
            ledger.submit(operation()),
        ):
            with pytest.raises(FulfilError) as error:
                await call
            assert TOKEN not in str(error.value)
        assert all(f"Bearer {TOKEN}".encode() in request for request in server.requests)
        assert len(server.requests) == 4
