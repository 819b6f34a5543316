"""A task's plan and its ledger: what changed behind its back is found before anything is sent."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import pytest

from fulfillment_cli import (
    FulfilError,
    resume_paused,
    run_checkpoint,
    run_fallback,
    run_pause,
    run_session,
    run_timeout,
)
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import RevisionConflict
from fulfillment_cli.domain.order import Order
from fulfillment_cli.settings import Settings
from tests.scripted_model import ScriptedModel
from tests.support import (
    TEXT,
    Between,
    Child,
    Service,
    Shop,
    change_document,
    hold_lease,
    http,
    plan_facts,
)

StartService = Callable[..., Service]
Change = Callable[[dict[str, Any]], object]

CHANGES: dict[str, Change] = {
    "sku": lambda d: d["order"].update(sku="SKU-2"),
    "quantity": lambda d: d["order"].update(quantity=9),
    "address": lambda d: d["order"].update(address="Elsewhere"),
    "policy": lambda d: d["policy"].update(compensates=True),
    "approval rule of the policy": lambda d: d["policy"].update(requiresApproval=True),
    "approval rule": lambda d: d.update(requiresApproval=True),
    "both approval rules": lambda d: (
        d.update(requiresApproval=True),
        d["policy"].update(requiresApproval=True),
    ),
    "flow": lambda d: d.update(flow="retry"),
    "sourceHash": lambda d: d.update(sourceHash="0" * 64),
    "taskUid": lambda d: d.update(taskUid="0" * 32),
    "ledgerId": lambda d: d.update(ledgerId="0" * 32),
    "planFingerprint": lambda d: d.update(planFingerprint="0" * 64),
    "no plan": lambda d: d.update(planFingerprint=None),
    "no order": lambda d: d.update(order=None),
}


async def fails_with(code: str, shop: Shop, run: Any, service: Any = None, **arguments: Any) -> Any:
    async with shop.open(service=service) as runtime:
        with pytest.raises(FulfilError) as error:
            await run(runtime, **arguments)
    assert error.value.code == code
    return error.value


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("stage", ["prepared", "reserved"])
async def test_a_changed_plan_is_found_before_any_request(
    shop: Shop, scripted: ScriptedModel, stage: Literal["prepared", "reserved"], name: str
) -> None:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after=stage)
    requests, asked = shop.ledger.requests(health=True), len(scripted.requests)
    change_document(shop.directory, CHANGES[name])
    await fails_with("PLAN_MISMATCH", shop, run_checkpoint)
    assert shop.document()["stage"] == stage
    assert shop.ledger.requests(health=True) == requests
    assert len(scripted.requests) == asked


@pytest.mark.parametrize("name", ["quantity", "ledgerId", "approval rule of the policy"])
async def test_also_where_the_outcome_of_a_write_is_unknown(shop: Shop, name: str) -> None:
    async with shop.open(faults={"lookupUnavailable": True}) as runtime:
        assert (await run_checkpoint(runtime, request=TEXT)).stage == "uncertain"
    requests = shop.ledger.requests(health=True)
    change_document(shop.directory, CHANGES[name])
    await fails_with("PLAN_MISMATCH", shop, run_checkpoint)
    assert shop.ledger.requests(health=True) == requests


@pytest.mark.parametrize("name", ["quantity", "policy"])
async def test_also_before_a_catalog_is_read(shop: Shop, name: str) -> None:
    async with shop.open(faults={"catalogDelayMs": 600_000}) as runtime:
        await run_timeout(runtime, request=TEXT, timeout_ms=50)
    change_document(shop.directory, CHANGES[name])
    requests = shop.ledger.requests(health=True)
    await fails_with("PLAN_MISMATCH", shop, run_timeout)
    await fails_with("PLAN_MISMATCH", shop, run_checkpoint)
    assert shop.ledger.requests(health=True) == requests


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "flow"])
async def test_also_at_a_decision(shop: Shop, name: str) -> None:
    async with shop.open() as runtime:
        await run_pause(runtime, request=TEXT)
    change = CHANGES[name]
    if "approval" in name:
        # A pausing task requires it; what is forged is that it does not.
        def change(d: dict[str, Any]) -> object:
            return (
                name != "approval rule" and d["policy"].update(requiresApproval=False),
                name != "approval rule of the policy" and d.update(requiresApproval=False),
            )

    change_document(shop.directory, change)
    before = shop.document()
    await fails_with("PLAN_MISMATCH", shop, resume_paused, decision="approve", actor="ann")
    assert shop.document() == before
    assert shop.ledger.requests() == []


async def test_a_plan_of_a_task_is_no_plan_of_another(shop: Shop) -> None:
    async with shop.open() as runtime:
        for task_id in ("one", "two"):
            await run_checkpoint(runtime, task_id, request=TEXT, stop_after="prepared")
    stolen = shop.document("one")
    change_document(shop.directory, lambda d: d.update({**stolen, "id": "two"}), "two")
    async with shop.open() as runtime:
        with pytest.raises(FulfilError) as error:
            await run_checkpoint(runtime, "two")
    assert error.value.code == "PLAN_MISMATCH"
    assert shop.ledger.posts() == []


# -- the ledger --------------------------------------------------------------------------------


@pytest.fixture
async def reserved(shop: Shop) -> Shop:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT)
    return shop


@pytest.mark.parametrize("emptied", [False, True], ids=["deleted", "emptied"])
async def test_a_ledger_that_went_missing_is_not_made_again(reserved: Shop, emptied: bool) -> None:
    database = reserved.directory / "service.sqlite"
    for path in reserved.directory.glob("service.sqlite*"):
        path.unlink()
    if emptied:
        database.touch()
    await fails_with("LEDGER_MISMATCH", reserved, run_checkpoint)
    assert database.exists() == emptied
    assert not emptied or database.read_bytes() == b""
    assert reserved.document()["stage"] == "reserved"


async def test_another_ledger_in_its_place_is_refused(reserved: Shop) -> None:
    other = Shop(reserved.directory.with_name("other"), reserved.config)
    async with other.open() as runtime:
        await run_checkpoint(runtime, request=TEXT)
    for path in reserved.directory.glob("service.sqlite*"):
        path.unlink()
    shutil.copy(other.directory / "service.sqlite", reserved.directory / "service.sqlite")
    requests = reserved.ledger.requests()
    error = await fails_with("LEDGER_MISMATCH", reserved, run_checkpoint)
    assert reserved.document()["ledgerId"] in error.message
    assert reserved.ledger.requests() == requests
    assert reserved.document()["stage"] == "reserved"


async def test_another_service_is_refused_and_nothing_is_sent_to_it(
    reserved: Shop, service: StartService
) -> None:
    running = service()
    await fails_with("LEDGER_MISMATCH", reserved, run_checkpoint, running)
    assert running.requests() == []
    assert running.requests(health=True) == ["GET /healthz"]


async def test_a_task_of_a_shared_ledger_does_not_get_one_of_its_own(
    shop: Shop, service: StartService
) -> None:
    running = service()
    async with shop.open(service=running) as runtime:
        await run_checkpoint(runtime, request=TEXT)
    error = await fails_with("LEDGER_MISMATCH", shop, run_checkpoint)
    assert running.origin in error.message
    assert not (shop.directory / "service.sqlite").exists()
    async with shop.open(service=running) as runtime:
        assert (await run_checkpoint(runtime)).stage == "completed"


async def test_what_needs_no_ledger_asks_none(reserved: Shop) -> None:
    (reserved.directory / "service.sqlite").rename(reserved.directory / "elsewhere")
    async with reserved.open() as runtime:
        assert (await run_session(runtime)).answer is not None
        assert (await run_checkpoint(runtime, stop_after="reserved")).stage == "reserved"
    (reserved.directory / "elsewhere").rename(reserved.directory / "service.sqlite")
    async with reserved.open() as runtime:
        assert (await run_checkpoint(runtime)).stage == "completed"


async def test_a_wrong_token_sends_nothing(shop: Shop, service: StartService) -> None:
    running = service()
    for token, code in (("wrong", "LEDGER_UNAUTHORIZED"), (None, "LEDGER_UNAUTHORIZED")):
        settings = Settings.model_validate(shop.config(running.origin, token=token))
        async with shop.open(service=running, settings=settings) as runtime:
            with pytest.raises(FulfilError) as error:
                await run_checkpoint(runtime, request=TEXT)
        assert error.value.code == code
    assert running.stock() == 10
    assert running.posts() == []


# -- a revision that was lost ------------------------------------------------------------------


@pytest.fixture
async def between(service: StartService) -> AsyncIterator[Between]:
    async with Between(service()) as between:
        yield between


def meddle(shop: Shop, between: Between, times: int, change: Change = lambda d: None) -> None:
    """Whenever an operation is looked up, the saved task moves on by one revision."""
    left = [None] * times

    async def answer(request: bytes) -> bytes:
        if left:
            left.pop()
            change_document(
                shop.directory, lambda d: (d.update(revision=d["revision"] + 1), change(d))
            )
        return await between.forward(request)

    between.catch["GET /operations"] = answer


async def test_a_lost_revision_with_the_same_plan_goes_on_from_the_newest(
    shop: Shop, between: Between, scripted: ScriptedModel
) -> None:
    async with shop.open(service=between) as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")
        before = shop.document()["revision"]
        meddle(shop, between, 2)
        result = await run_checkpoint(runtime)
    assert result.stage == "completed"
    assert result.checkpoint.to_json() == shop.document()
    # goal, intent, reserved, intent, completed, and what was meddled with: nothing overwritten
    assert shop.document()["revision"] == before + 5 + 2
    assert between.service.posts() == ["POST /reserve", "POST /ship"]
    assert len(scripted.requests) == 1


def another_plan(document: dict[str, Any]) -> None:
    """One that agrees with itself, as another process could have made it."""
    checkpoint = Checkpoint.model_validate(document)
    facts = plan_facts(checkpoint, Order(sku="SKU-1", quantity=9, address="Elsewhere"))
    document["order"] = facts["order"].to_json()
    document["planFingerprint"] = facts["plan_fingerprint"]


@pytest.mark.parametrize("change", [CHANGES["planFingerprint"], another_plan])
async def test_a_lost_revision_with_another_plan_sends_nothing(
    shop: Shop, between: Between, change: Change
) -> None:
    meddle(shop, between, 1, change)
    await fails_with("PLAN_MISMATCH", shop, run_checkpoint, between, request=TEXT)
    assert between.service.posts() == []


async def test_a_revision_that_is_lost_again_and_again_is_told(
    shop: Shop, between: Between
) -> None:
    meddle(shop, between, 100)
    async with shop.open(service=between) as runtime:
        with pytest.raises(RevisionConflict):
            await run_checkpoint(runtime, request=TEXT)
    assert between.service.posts() == []
    assert between.seen.count("GET /operations/task-reserve") == 4


async def test_a_lost_lease_sends_nothing(
    shop: Shop, between: Between, child: Callable[..., Child]
) -> None:
    async def answer(request: bytes) -> bytes:
        other = child(hold_lease, shop.directory, "task", 10_000_000_000.0)
        assert (await other.hear_async())["token"] == 2
        return await between.forward(request)

    between.catch["GET /operations"] = answer
    await fails_with("LEASE_LOST", shop, run_checkpoint, between, request=TEXT)
    assert between.service.posts() == []
    assert shop.events()[-1] == "entered"  # the other's; nothing of ours came after it


async def test_a_source_is_selected_on_the_newest_revision(shop: Shop, between: Between) -> None:
    async def answer(request: bytes) -> bytes:
        between.catch.clear()
        change_document(shop.directory, lambda d: d.update(revision=d["revision"] + 1))
        return http(503)

    between.catch["GET /catalog/primary"] = answer
    async with shop.open(service=between) as runtime:
        result = await run_fallback(runtime, request=TEXT)
    assert result.stage == "completed"
    assert result.checkpoint.to_json() == shop.document()
