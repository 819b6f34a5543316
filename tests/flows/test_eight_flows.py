"""Each of the eight from an order text to its end: the stage, the requests, the ledger's rows."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fulfillment_cli import (
    FlowResult,
    run_checkpoint,
    run_compensation,
    run_fallback,
    run_pause,
    run_retry,
    run_session,
    run_side_effect,
    run_timeout,
)
from fulfillment_cli.domain.faults import DEMO_FAULTS
from fulfillment_cli.domain.stages import Flow
from tests.scripted_model import ScriptedModel
from tests.support import ORDER, TEXT, Between, Service, Shop, http

RESERVE = ["GET /operations/task-reserve", "POST /reserve"]
SHIP = ["GET /operations/task-ship", "POST /ship"]
RELEASE = ["GET /operations/task-release", "POST /release"]


@dataclass
class Case:
    """What the contract says of one flow."""

    run: Callable[..., Awaitable[FlowResult]]
    stage: str
    requests: list[str]
    stock: int
    reservation: str | None = None
    error: str | None = None
    questions: int = 1
    shipments: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


CASES: dict[Flow, Case] = {
    Flow.RETRY: Case(run_retry, "completed", RESERVE + SHIP, 8, "shipped", shipments=1),
    Flow.FALLBACK: Case(
        run_fallback,
        "completed",
        ["GET /catalog/primary", "GET /catalog/backup", *RESERVE, *SHIP],
        8,
        "shipped",
        shipments=1,
        extra={"selectedSource": "backup"},
    ),
    Flow.TIMEOUT: Case(
        run_timeout, "timed-out", ["GET /catalog/primary"], 10, error="CATALOG_TIMEOUT"
    ),
    Flow.CHECKPOINT: Case(run_checkpoint, "reserved", RESERVE, 8, "active"),
    Flow.PAUSE: Case(run_pause, "paused", [], 10, extra={"requiresApproval": True}),
    Flow.SESSION: Case(run_session, "prepared", [], 10, questions=2),
    Flow.COMPENSATION: Case(
        run_compensation,
        "compensated",
        RESERVE + SHIP + RELEASE,
        10,
        "released",
        error="ADDRESS_REJECTED",
    ),
    Flow.SIDE_EFFECT: Case(
        run_side_effect,
        "completed",
        [*RESERVE, "GET /operations/task-reserve", *SHIP],
        8,
        "shipped",
        shipments=1,
    ),
}


def check(shop: Shop, case: Case, flow: Flow) -> None:
    """The saved checkpoint, its projection and the ledger are as the contract says."""
    document = shop.document()
    expected = {"stage": case.stage, "flow": str(flow), "order": ORDER.to_json(), **case.extra}
    assert {name: document[name] for name in expected} == expected
    assert (document["error"] or {"code": None})["code"] == case.error
    assert document["uncertainty"] is document["intent"] is document["compensationError"] is None
    assert json.loads((shop.directory / "results" / "task.json").read_text()) == document
    assert shop.ledger.requests() == case.requests
    assert shop.ledger.stock() == case.stock
    reserved = [("task-reserve", "SKU-1", 2, case.reservation)] if case.reservation else []
    assert shop.ledger.reservations() == reserved
    assert (document["reservation"] or {}).get("status") == case.reservation
    shipped = [("task-ship", "task-reserve", "Dock-North")] * case.shipments
    assert shop.ledger.shipments() == shipped
    assert bool(document["shipment"]) == bool(shipped)


@pytest.mark.parametrize("flow", Flow)
async def test_a_flow_ends_as_the_contract_says(
    shop: Shop, scripted: ScriptedModel, flow: Flow
) -> None:
    case = CASES[flow]
    async with shop.open(faults=DEMO_FAULTS.get(flow)) as runtime:
        result = await case.run(runtime, request=TEXT)
        assert str(result.stage) == case.stage
        assert result.questions == case.questions == len(scripted.requests)
        assert result.checkpoint.to_json() == shop.document()
    check(shop, case, flow)


@pytest.mark.parametrize("flow", Flow)
async def test_entering_again_changes_nothing_and_asks_nobody(
    shop: Shop, scripted: ScriptedModel, flow: Flow
) -> None:
    """All but `checkpoint` and `session`, whose second entry is an order to do more."""
    case = CASES[flow]
    arguments: dict[str, Any] = {}
    if flow is Flow.CHECKPOINT:
        arguments = {"stop_after": "reserved"}
    async with shop.open(faults=DEMO_FAULTS.get(flow)) as runtime:
        first = await case.run(runtime, request=TEXT, **arguments)
    asked, requests = len(scripted.requests), shop.ledger.requests(health=True)
    for _ in range(2):  # in a new process's runtime each time
        async with shop.open() as runtime:
            again = await case.run(runtime, **arguments)
            assert again.stage is first.stage
            if flow is not Flow.SESSION:
                assert again.checkpoint == first.checkpoint
                assert again.questions == 0
    if flow is Flow.SESSION:
        assert len(scripted.requests) == asked + 2
    else:
        assert len(scripted.requests) == asked
    assert shop.ledger.requests(health=True) == requests
    check(shop, case, flow)


@pytest.mark.parametrize("flow", Flow)
async def test_every_flow_can_be_carried_to_its_end_by_checkpoint(shop: Shop, flow: Flow) -> None:
    """But `pause`, which nothing carries past its decision."""
    async with shop.open(faults=DEMO_FAULTS.get(flow)) as runtime:
        await CASES[flow].run(runtime, request=TEXT)
    async with shop.open() as runtime:
        result = await run_checkpoint(runtime)
    expected = {Flow.COMPENSATION: "compensated", Flow.PAUSE: "paused"}.get(flow, "completed")
    assert str(result.stage) == expected
    posts = {
        "completed": ["POST /reserve", "POST /ship"],
        "compensated": ["POST /reserve", "POST /ship", "POST /release"],
        "paused": [],
    }
    assert shop.ledger.posts() == posts[expected]


async def test_a_third_checkpoint_returns_the_same_without_any_request(
    shop: Shop, scripted: ScriptedModel
) -> None:
    async with shop.open() as runtime:
        assert (await run_checkpoint(runtime, request=TEXT)).stage == "reserved"
    async with shop.open() as runtime:
        second = await run_checkpoint(runtime)
    requests, events = shop.ledger.requests(health=True), shop.events()
    async with shop.open() as runtime:
        third = await run_checkpoint(runtime)
    assert second.stage == third.stage == "completed"
    assert second.checkpoint == third.checkpoint
    assert shop.ledger.requests(health=True) == requests
    assert shop.events() == events
    assert len(scripted.requests) == 1


async def test_a_result_that_was_deleted_or_changed_is_made_again(shop: Shop) -> None:
    path = shop.directory / "results" / "task.json"
    async with shop.open() as runtime:
        await run_retry(runtime, request=TEXT)
    content = path.read_bytes()
    for spoil in (path.unlink, lambda: path.write_bytes(b"{}")):
        spoil()
        async with shop.open() as runtime:
            await run_retry(runtime)
        assert path.read_bytes() == content
    assert len(shop.ledger.posts()) == 2


async def test_a_result_that_is_older_than_the_checkpoint_is_made_again_at_entry(
    shop: Shop, service: Callable[..., Service]
) -> None:
    """A process that was killed between the two had no time to project."""
    path = shop.directory / "results" / "task.json"
    async with Between(service()) as between:
        between.catch["GET /operations"] = http(503)
        async with shop.open(service=between) as runtime:
            assert (await run_checkpoint(runtime, request=TEXT)).stage == "uncertain"
        path.write_bytes(b"{}")
        seen: list[bool] = []

        async def look(request: bytes) -> bytes:
            seen.append(json.loads(path.read_text()) == shop.document())
            return http(503)

        between.catch["GET /operations"] = look
        async with shop.open(service=between) as runtime:
            await run_checkpoint(runtime, stop_after="reserved")
    assert seen == [True]
    assert json.loads(path.read_text()) == shop.document()


async def test_many_tasks_of_one_directory_share_its_ledger(shop: Shop) -> None:
    async with shop.open(stock={"SKU-1": 5}) as runtime:
        for task_id in ("one", "two"):
            await run_retry(runtime, task_id, request=TEXT)
        third = await run_retry(runtime, "three", request=TEXT)
    assert third.stage == "failed"
    assert third.error is not None
    assert third.error.code == "INSUFFICIENT_STOCK"
    assert shop.ledger.stock() == 1
    assert [row[0] for row in shop.ledger.shipments()] == ["one-ship", "two-ship"]
