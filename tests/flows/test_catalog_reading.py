"""The catalog: read before any write, by two flows only, and never a reason to write twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fulfillment_cli import FulfilError, run_checkpoint, run_fallback, run_timeout
from fulfillment_cli.adapters import ledger as client
from fulfillment_cli.adapters.ledger import Ledger
from tests.support import TEXT, TOKEN, Between, Service, Shop, http, origin_of, serving, until_async

StartService = Callable[..., Service]
ENTRY = {"sku": "SKU-1", "available": 10, "source": "primary"}


@pytest.fixture
async def between(service: StartService) -> AsyncIterator[Between]:
    async with Between(service()) as between:
        yield between


async def fallback(shop: Shop, between: Between, **arguments: Any) -> Any:
    async with shop.open(service=between) as runtime:
        return await run_fallback(runtime, request=TEXT, **arguments)


REFUSALS = {
    "401": (http(401), "FORBIDDEN"),
    "403": (http(403), "FORBIDDEN"),
    "404": (http(404, {"error": {"code": "SKU_NOT_FOUND"}}), "SKU_NOT_FOUND"),
    "0 available": (http(200, ENTRY | {"available": 0}), "INSUFFICIENT_STOCK"),
    "1 available": (http(200, ENTRY | {"available": 1}), "INSUFFICIENT_STOCK"),
    "negative": (http(200, ENTRY | {"available": -1}), "INVALID_RESPONSE"),
    "html": (http(200, b"<html>"), "INVALID_RESPONSE"),
    "500": (http(500), "INVALID_RESPONSE"),
    "redirect": (http(302, b"", "Location: /"), "INVALID_RESPONSE"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_fails_the_task_and_no_other_source_hides_it(
    shop: Shop, between: Between, name: str
) -> None:
    answer, code = REFUSALS[name]
    between.catch["GET /catalog/primary"] = answer
    result = await fallback(shop, between)
    assert (result.stage, result.error.code) == ("failed", code)
    assert result.checkpoint.selected_source is None
    assert between.service.requests() == []  # neither the backup nor a write
    again = await fallback(shop, between)
    assert again.checkpoint == result.checkpoint


UNAVAILABLE = {"503": http(503), "lost": b"", "half": http(200, ENTRY)[:-2]}


@pytest.mark.parametrize("name", UNAVAILABLE)
async def test_only_an_unavailable_source_goes_on_to_the_next(
    shop: Shop, between: Between, name: str
) -> None:
    between.catch["GET /catalog/primary"] = UNAVAILABLE[name]
    result = await fallback(shop, between)
    assert (result.stage, result.checkpoint.selected_source) == ("completed", "backup")
    assert between.seen.count("GET /catalog/primary") == 1


async def test_the_transport_cap_makes_a_source_unavailable(
    shop: Shop, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silence(request: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with shop.open(service=between) as runtime:
        await run_checkpoint(runtime, "other", request=TEXT)  # connected before the cap is short
    monkeypatch.setattr(client, "TRANSPORT_CAP_SECONDS", 0.5)
    between.catch["GET /catalog/primary"] = silence
    assert (await fallback(shop, between)).checkpoint.selected_source == "backup"


async def test_where_no_allowed_source_is_left_the_task_fails(shop: Shop, between: Between) -> None:
    between.catch["GET /catalog/primary"] = http(503)
    result = await fallback(shop, between, allowed_sources=["primary"])
    assert (result.stage, result.error.code) == ("failed", "UNAVAILABLE")
    assert result.checkpoint.selected_source is None
    assert between.service.requests() == []


@pytest.mark.parametrize(
    "sources", [["primary"], ["backup"], ["backup", "primary"], ["primary", "backup"]], ids=str
)
async def test_sources_are_asked_in_the_order_of_the_policy(
    shop: Shop, between: Between, sources: list[str]
) -> None:
    result = await fallback(shop, between, allowed_sources=sources)
    assert result.checkpoint.selected_source == sources[0]
    assert [each for each in between.seen if "catalog" in each] == [f"GET /catalog/{sources[0]}"]


async def test_once_a_source_is_selected_the_catalog_is_not_read_again(
    shop: Shop, between: Between
) -> None:
    between.catch["GET /operations"] = http(503)
    assert (await fallback(shop, between)).stage == "uncertain"
    between.catch.clear()
    between.catch["GET /catalog"] = http(500)
    async with shop.open(service=between) as runtime:
        result = await run_fallback(runtime)
    assert (result.stage, result.checkpoint.selected_source) == ("completed", "primary")
    assert between.seen.count("GET /catalog/primary") == 1


async def test_a_flow_without_sources_reads_no_catalog(shop: Shop, between: Between) -> None:
    async with shop.open(service=between) as runtime:
        await run_checkpoint(runtime, request=TEXT)
    assert not [each for each in between.seen if "catalog" in each]


# -- deadline ----------------------------------------------------------------------------------


async def test_a_read_past_its_deadline_stays_timed_out(shop: Shop, between: Between) -> None:
    async def late(request: bytes) -> bytes:
        await asyncio.sleep(3)  # nobody is there any more
        return http(200, ENTRY)

    between.catch["GET /catalog"] = late
    async with shop.open(service=between) as runtime:
        result = await run_timeout(runtime, request=TEXT, timeout_ms=50)
    assert (result.stage, result.checkpoint.error.code) == ("timed-out", "CATALOG_TIMEOUT")
    assert shop.document()["intent"] is None
    async with shop.open(service=between) as runtime:
        again = await run_timeout(runtime)
    assert again.checkpoint == result.checkpoint
    assert between.seen == ["GET /healthz", "GET /catalog/primary"]
    assert between.service.stock() == 10


async def test_a_drip_does_not_outlive_the_deadline(shop: Shop, between: Between) -> None:
    """Each byte is in time; the whole read is not."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with shop.open(service=between) as runtime:
        await run_checkpoint(runtime, "other", request=TEXT)
        async with serving(drip) as server, Ledger(origin_of(server), TOKEN) as dripping:
            dripping.ledger_id = between.service.ledger_id
            runtime._ledger = dripping
            result = await run_timeout(runtime, request=TEXT, timeout_ms=200)
    assert result.stage == "timed-out"


async def test_a_read_before_its_deadline_completes(shop: Shop) -> None:
    async with shop.open() as runtime:
        result = await run_timeout(runtime, request=TEXT, timeout_ms=60_000)
    assert (result.stage, result.checkpoint.selected_source) == ("completed", "primary")


async def test_only_checkpoint_goes_on_after_a_timeout_and_without_the_catalog(shop: Shop) -> None:
    async with shop.open(faults={"catalogDelayMs": 600_000}) as runtime:
        await run_timeout(runtime, request=TEXT, timeout_ms=50)
        before = await run_checkpoint(runtime, stop_after="prepared")
        assert before.stage == "timed-out"  # not a step beyond what was asked
        result = await run_checkpoint(runtime, stop_after="reserved")
    assert result.stage == "reserved"
    document = shop.document()
    assert (document["catalogWaived"], document["selectedSource"], document["error"]) == (
        True,
        None,
        None,
    )
    assert "catalog-waived" in shop.events()
    async with shop.open() as runtime:
        assert (await run_timeout(runtime)).stage == "completed"  # its own goal is the end
    assert shop.ledger.requests().count("GET /catalog/primary") == 1


async def test_cancellation_by_the_caller_is_no_timeout(shop: Shop) -> None:
    async with shop.open(faults={"catalogDelayMs": 600_000}) as runtime:
        running = asyncio.create_task(run_timeout(runtime, request=TEXT, timeout_ms=60_000))
        await until_async(
            lambda: shop.ledger.requests() == ["GET /catalog/primary"], "the catalog is asked"
        )
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert (shop.document()["stage"], shop.document()["error"]) == ("prepared", None)
    assert shop.events()[-1] == "left"
    assert shop.ledger.posts() == []


async def test_a_ledger_that_is_down_before_the_catalog_is_no_catalog_answer(
    shop: Shop, between: Between
) -> None:
    """The task is not failed for it: nothing was asked of any catalog."""
    between.catch["GET /catalog"] = http(503)
    async with shop.open(service=between) as runtime:
        await run_checkpoint(runtime, "other", request=TEXT)
    between.catch["GET /healthz"] = http(503)
    async with shop.open(service=between) as runtime:
        with pytest.raises(FulfilError) as error:
            await run_fallback(runtime, request=TEXT)
    assert error.value.code == "LEDGER_UNAVAILABLE"
