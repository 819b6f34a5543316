"""What is not known is looked up, said, and never guessed: no blind write, no early end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import chain
from typing import Any

import pytest

from fulfillment_cli import (
    FulfilError,
    run_checkpoint,
    run_compensation,
    run_retry,
    run_side_effect,
)
from fulfillment_cli.domain.errors import LedgerNotReached
from fulfillment_cli.domain.operations import Kind, Operation
from fulfillment_cli.domain.order import Order
from tests.support import TEXT, Between, LedgerFiles, Service, Shop, http, rows, until_async

StartService = Callable[..., Service]
OPERATIONS = {"reserve": "prepared", "ship": "reserved"}


@pytest.fixture
async def between(service: StartService) -> AsyncIterator[Between]:
    async with Between(service()) as between:
        yield between


async def run(shop: Shop, between: Between, flow: Any = run_retry, **arguments: Any) -> Any:
    async with shop.open(service=between) as runtime:
        return await flow(runtime, request=TEXT, **arguments)


def dropped(between: Between) -> Callable[[bytes], Awaitable[bytes]]:
    """The service does it, and its answer is lost."""

    async def answer(request: bytes) -> bytes:
        await between.forward(request)
        return b""

    return answer


def check_uncertain(shop: Shop, code: str, key: str) -> None:
    document = shop.document()
    assert document["stage"] == "uncertain"
    assert document["uncertainty"]["code"] == code
    assert document["uncertainty"]["key"] == key
    assert document["uncertainty"]["operation"] == key.rsplit("-", 1)[1]
    assert document["error"] is None


def check_completed(result: Any, ledger: LedgerFiles) -> None:
    assert result.stage == "completed"
    assert result.checkpoint.uncertainty is None
    assert result.checkpoint.intent is None
    assert ledger.stock() == 8
    assert ledger.reservations() == [("task-reserve", "SKU-1", 2, "shipped")]
    assert ledger.shipments() == [("task-ship", "task-reserve", "Dock-North")]


# -- the look-up -------------------------------------------------------------------------------

NO_ANSWERS = {
    "404": http(404, {"state": "absent"}),
    "401": http(401, {"state": "absent"}),
    "503": http(503, {"error": {"code": "LOOKUP_UNAVAILABLE"}}),
    "html": http(200, b"<html>"),
    "unknown": http(200, {"state": "gone"}),
    "lost": b"",
}


@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_without_a_look_up_nothing_is_sent(shop: Shop, between: Between, name: str) -> None:
    between.catch["GET /operations"] = NO_ANSWERS[name]
    result = await run(shop, between)
    assert result.stage == "uncertain"
    assert result.error.code == "OUTCOME_UNKNOWN"
    check_uncertain(shop, "OUTCOME_UNKNOWN", "task-reserve")
    assert shop.document()["intent"] is None
    await run(shop, between)
    assert between.service.posts() == []
    between.catch.clear()
    check_completed(await run(shop, between), between.service)


async def test_with_the_look_up_down_at_the_spawned_service_too(shop: Shop) -> None:
    async with shop.open(faults={"lookupUnavailable": True}) as runtime:
        result = await run_side_effect(runtime, request=TEXT)
    assert result.stage == "uncertain"
    assert shop.ledger.requests() == ["GET /operations/task-reserve"]
    assert shop.ledger.stock() == 10


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_every_write_follows_its_own_look_up_and_intent(
    shop: Shop, between: Between, operation: str
) -> None:
    found: list[Any] = []

    async def look(request: bytes) -> bytes:
        found.append((between.seen[-2], shop.document()["intent"], shop.events()[-1]))
        return await between.forward(request)

    between.catch[f"POST /{operation}"] = look
    await run(shop, between)
    intent = {"operation": operation, "key": f"task-{operation}", "attempt": 1}
    assert found == [(f"GET /operations/task-{operation}", intent, "intent")]


# -- lost answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("answer", ["lost", "500", "html", "long"])
async def test_an_unclear_answer_is_looked_up_once_more(
    shop: Shop, between: Between, operation: str, answer: str
) -> None:
    instead = {
        "lost": b"",
        "500": http(500),
        "html": http(200, b"<html>"),
        "long": http(200, {"state": "committed", "x": "x" * 65536}),
    }[answer]

    async def unclear(request: bytes) -> bytes:
        await between.forward(request)
        return instead

    between.catch[f"POST /{operation}"] = unclear
    check_completed(await run(shop, between), between.service)
    assert between.seen.count(f"POST /{operation}") == 1
    assert between.seen.count(f"GET /operations/task-{operation}") == 2
    assert shop.events().count("unclear") == 1


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_what_is_absent_after_an_unclear_write_is_unknown_and_no_failure(
    shop: Shop, between: Between, operation: str
) -> None:
    between.catch[f"POST /{operation}"] = b""  # it may be on its way for as long as it likes
    result = await run(shop, between)
    assert result.stage == "uncertain"
    check_uncertain(shop, "OUTCOME_UNKNOWN", f"task-{operation}")
    assert shop.document()["intent"]["key"] == f"task-{operation}"
    assert f"POST /{operation}" not in between.service.posts()
    between.catch.clear()
    check_completed(await run(shop, between), between.service)
    attempts = [
        intent["attempt"]
        for intent in map(json.loads, chain(*events_of(shop, "intent")))
        if intent["key"] == f"task-{operation}"
    ]
    assert attempts == [1, 2]


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_write_that_arrives_late_meets_its_own_key(
    shop: Shop, between: Between, operation: str
) -> None:
    late: list[bytes] = []

    async def hold_back(request: bytes) -> bytes:
        late.append(request)
        return b""

    between.catch[f"POST /{operation}"] = hold_back
    await run(shop, between)
    between.catch.clear()
    check_completed(await run(shop, between), between.service)
    before = between.service.business()
    answer = await between.forward(late[0])
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"committed"' in answer
    assert between.service.business() == before


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_write_that_arrived_while_nobody_looked_is_not_repeated(
    shop: Shop, between: Between, operation: str
) -> None:
    late: list[bytes] = []

    async def hold_back(request: bytes) -> bytes:
        late.append(request)
        return b""

    between.catch[f"POST /{operation}"] = hold_back
    assert (await run(shop, between)).stage == "uncertain"
    await between.forward(late[0])
    posts = between.seen.count(f"POST /{operation}")
    check_completed(await run(shop, between), between.service)
    assert between.seen.count(f"POST /{operation}") == posts == 1


async def test_a_look_up_that_fails_after_the_write_leaves_it_unknown(shop: Shop) -> None:
    faults = {"dropReservationResponse": True, "lookupUnavailableAfterWrite": True}
    async with shop.open(faults=faults) as runtime:
        result = await run_side_effect(runtime, request=TEXT)
        assert result.stage == "uncertain"
        check_uncertain(shop, "OUTCOME_UNKNOWN", "task-reserve")
        assert (await run_side_effect(runtime)).stage == "uncertain"
    assert shop.ledger.posts() == ["POST /reserve"]
    fixture = shop.directory / "fixture.json"
    fixture.write_text(fixture.read_text().replace("true", "false"))
    async with shop.open() as runtime:
        check_completed(await run_side_effect(runtime), shop.ledger)
    assert shop.ledger.posts() == ["POST /reserve", "POST /ship"]


# -- not sent, pending -------------------------------------------------------------------------


async def test_a_write_that_was_never_sent_leaves_only_its_intent(
    shop: Shop, service: StartService
) -> None:
    running = service()
    async with Between(running) as between:

        async def die_then_answer(request: bytes) -> bytes:
            between.refuse_connections()
            return await between.forward(request)

        between.catch["GET /operations"] = die_then_answer
        with pytest.raises(LedgerNotReached):
            await run(shop, between, run_checkpoint)
    document = shop.document()
    assert (document["stage"], document["uncertainty"]) == ("prepared", None)
    assert document["intent"] == {"operation": "reserve", "key": "task-reserve", "attempt": 1}
    assert running.posts() == []
    async with Between(running) as between, shop.open(service=between) as runtime:
        check_completed(await run_checkpoint(runtime), running)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_pending_operation_is_waited_for_by_looking(
    shop: Shop, between: Between, operation: str
) -> None:
    pending: list[bytes] = []

    async def claimed(request: bytes) -> bytes:
        """As a service answers that has claimed the key and is not done."""
        fingerprint = fingerprint_of(request, operation)
        pending[:] = [http(202, {"state": "pending", "fingerprint": fingerprint})]
        between.catch[f"GET /operations/task-{operation}"] = pending[0].replace(b"202", b"200", 1)
        return pending[0]

    between.catch[f"POST /{operation}"] = claimed
    for _ in range(3):
        result = await run(shop, between)
        check_uncertain(shop, "OPERATION_PENDING", f"task-{operation}")
        assert result.error.code == "OPERATION_PENDING"
    assert between.seen.count(f"POST /{operation}") == 1
    between.catch.clear()
    check_completed(await run(shop, between), between.service)


async def test_a_caller_that_cancels_a_write_leaves_it_to_the_next_entry(
    shop: Shop, service: StartService
) -> None:
    running = service(faults={"reservationDelayMs": 600_000})
    async with shop.open(service=running) as runtime:
        task = asyncio.create_task(run_retry(runtime, request=TEXT))
        await until_async(lambda: running.posts() == ["POST /reserve"], "the write is in flight")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        document = shop.document()
        assert (document["stage"], document["intent"]["key"]) == ("prepared", "task-reserve")
        assert shop.events()[-1] == "left"
        await until_async(
            lambda: running.business()["operations"] != [], "the service has claimed it"
        )
        assert (await run_retry(runtime)).stage == "uncertain"
        check_uncertain(shop, "OPERATION_PENDING", "task-reserve")
    running.close()
    running = service()  # a service that comes up finishes what a dead one had claimed
    async with shop.open(service=running) as runtime:
        check_completed(await run_retry(runtime), running)
    assert running.posts() == ["POST /reserve", "POST /ship"]


async def test_a_caller_that_cancels_before_any_work_leaves_the_task_queued(
    shop: Shop, between: Between
) -> None:
    async with shop.open(service=between) as runtime:
        with pytest.raises(FulfilError):
            runtime.provider = "missing"
            await run_retry(runtime, request=TEXT)
    async with shop.open(service=between) as runtime:
        task = asyncio.create_task(run_retry(runtime))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert shop.document()["stage"] == "queued"
    assert between.service.requests() == []


# -- verdicts ----------------------------------------------------------------------------------


async def test_a_rejected_reservation_fails_the_task_with_the_ledgers_code(shop: Shop) -> None:
    async with shop.open(stock={"SKU-1": 1}) as runtime:
        result = await run_retry(runtime, request=TEXT)
    assert (result.stage, result.error.code) == ("failed", "INSUFFICIENT_STOCK")
    assert shop.document()["intent"] is None
    assert shop.ledger.posts() == ["POST /reserve"]
    assert shop.ledger.stock() == 1


@pytest.mark.parametrize("how", ["409", "look-up"])
async def test_a_key_that_stands_for_something_else_needs_a_person(
    shop: Shop, service: StartService, how: str
) -> None:
    """Another task of the same id was in this ledger first."""
    running = service()
    other = Shop(shop.directory.with_name("other"), shop.config)
    async with other.open(service=running) as runtime:
        await run_retry(runtime, request=TEXT)
    before = running.business()
    async with Between(running) as between:
        if how == "409":
            between.catch["GET /operations"] = http(200, {"state": "absent"})
        result = await run(shop, between)
    assert (result.stage, result.error.code) == ("needs-review", "IDEMPOTENCY_CONFLICT")
    assert shop.document()["intent"] is None
    assert running.business() == before
    async with shop.open(service=running) as runtime:
        assert (await run_retry(runtime)).checkpoint == result.checkpoint


async def test_a_rejected_shipment_that_is_not_compensated_needs_a_person(shop: Shop) -> None:
    async with shop.open(faults={"rejectShipping": True}) as runtime:
        result = await run_retry(runtime, request=TEXT)
    assert (result.stage, result.error.code) == ("needs-review", "ADDRESS_REJECTED")
    assert shop.ledger.posts() == ["POST /reserve", "POST /ship"]
    assert shop.ledger.reservations() == [("task-reserve", "SKU-1", 2, "active")]


# -- compensation ------------------------------------------------------------------------------


async def test_a_release_that_is_refused_needs_a_person_and_keeps_both_errors(shop: Shop) -> None:
    async with shop.open(faults={"rejectShipping": True, "rejectRelease": True}) as runtime:
        result = await run_compensation(runtime, request=TEXT)
    assert result.stage == "needs-review"
    document = shop.document()
    assert document["error"]["code"] == "ADDRESS_REJECTED"
    assert document["compensationError"]["code"] == "COMPENSATION_RELEASE_REJECTED"
    assert document["reservation"]["status"] == "active"
    assert shop.ledger.reservations() == [("task-reserve", "SKU-1", 2, "active")]
    requests = shop.ledger.requests(health=True)
    async with shop.open() as runtime:
        assert (await run_compensation(runtime)).checkpoint == result.checkpoint
    assert shop.ledger.requests(health=True) == requests


async def test_a_rejected_shipment_is_saved_before_the_release_starts(
    shop: Shop, service: StartService
) -> None:
    seen: list[tuple[str, str, str]] = []
    async with Between(service(faults={"rejectShipping": True})) as between:

        async def look(request: bytes) -> bytes:
            document = shop.document()
            seen.append((document["stage"], document["error"]["code"], shop.events()[-1]))
            return await between.forward(request)

        between.catch["GET /operations/task-release"] = look
        assert (await run(shop, between, run_compensation)).stage == "compensated"
    assert seen == [("reserved", "ADDRESS_REJECTED", "ship-rejected")]


async def test_a_shipment_of_unknown_outcome_is_never_compensated(
    shop: Shop, between: Between
) -> None:
    between.catch["POST /ship"] = b""
    for _ in range(2):
        assert (await run(shop, between, run_compensation)).stage == "uncertain"
    between.catch["GET /operations/task-ship"] = http(503)
    assert (await run(shop, between, run_compensation)).stage == "uncertain"
    assert not [each for each in between.seen if "release" in each]
    between.catch.clear()
    check_completed(await run(shop, between, run_compensation), between.service)


@pytest.mark.parametrize("lost", [True, False], ids=["answer lost", "never arrived"])
async def test_a_release_of_unknown_outcome_is_found_out(
    shop: Shop, service: StartService, lost: bool
) -> None:
    async with Between(service(faults={"rejectShipping": True})) as between:
        between.catch["POST /release"] = dropped(between) if lost else b""
        result = await run(shop, between, run_compensation)
        if not lost:
            assert result.stage == "uncertain"
            # What is uncertain is the release; why it was begun stays the error.
            assert shop.document()["error"]["code"] == "ADDRESS_REJECTED"
            assert shop.document()["uncertainty"]["operation"] == "release"
            between.catch.clear()
            result = await run(shop, between, run_compensation)
        assert result.stage == "compensated"
        assert result.error.code == "ADDRESS_REJECTED"
        assert result.checkpoint.uncertainty is None
        assert between.service.stock() == 10
        assert between.service.posts().count("POST /release") == 1


async def test_goals_do_not_stop_a_release(shop: Shop, service: StartService) -> None:
    """A rejected shipment is not a place to stop at."""
    async with Between(service(faults={"rejectShipping": True})) as between:
        between.catch["GET /operations/task-release"] = http(503)
        assert (await run(shop, between, run_compensation)).stage == "uncertain"
        between.catch.clear()
        async with shop.open(service=between) as runtime:
            assert (await run_checkpoint(runtime, stop_after="reserved")).stage == "compensated"


def fingerprint_of(request: bytes, kind: str) -> str:
    body = json.loads(request.partition(b"\r\n\r\n")[2])
    order = Order.model_validate(body["order"])
    operation = Operation(Kind(kind), body["key"], body["taskUid"], order, body["reservationKey"])
    return operation.fingerprint


def events_of(shop: Shop, kind: str) -> list[tuple[str]]:
    return rows(
        shop.directory / "tasks.sqlite",
        "SELECT data FROM events WHERE kind = ? ORDER BY seq",
        kind,
    )
