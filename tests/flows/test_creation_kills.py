"""Making a task: whatever instant it is killed at, the same directory does the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fulfillment_cli import FulfilError, run_checkpoint, run_fallback, run_pause, run_retry
from fulfillment_cli.domain.errors import UsageError
from tests.scripted_model import ScriptedModel
from tests.support import STOCK, TEXT, Child, Service, Shop, run_flow

StartChild = Callable[..., Child]
FILES = "fulfillment_cli.adapters.task_directory:TaskDirectory"
STORE = "fulfillment_cli.adapters.checkpoints"
POLICY = {"max_attempts": 2, "initial_max_bytes": 20}

NOTHING_BEGUN = [
    (f"{FILES}.make", "after"),
    (f"{FILES}.write_source", "before"),
    (f"{FILES}.write_source", "after"),
    (f"{FILES}.write_fixture", "before"),
]
BEGUN = [
    (f"{FILES}.write_fixture", "after"),
    ("fulfillment_cli.runtime:Runtime._service", "before"),
    ("fulfillment_cli.runtime:Runtime._service", "after"),
    ("fulfillment_cli.adapters.ledger:Ledger.identify", "after"),
    (f"{STORE}:create_database", "before"),
    ("fulfillment_cli.adapters.database:os.link", "before"),
    ("fulfillment_cli.adapters.database:os.link", "after"),
    (f"{STORE}:create_database", "after"),
    (f"{STORE}:RecoveryStore.create", "before"),
    (f"{STORE}:RecoveryStore._append", "before"),
    (f"{STORE}:RecoveryStore.create", "after"),
]


def kill_while_creating(
    shop: Shop, child: StartChild, target: str, when: str, service: Service | None = None
) -> None:
    options = {"service_url": service.origin} if service else {"stock": STOCK}
    process = child(
        run_flow,
        "run_retry",
        shop.directory,
        shop.config(*[service.origin] if service else []),
        {"request": TEXT, **POLICY},
        options,
        (target, when, "kill"),
    )
    assert process.wait() == -9


@pytest.mark.parametrize(("target", "when"), BEGUN)
async def test_what_was_begun_is_finished_by_the_same_directory(
    shop: Shop, child: StartChild, scripted: ScriptedModel, target: str, when: str
) -> None:
    await asyncio.to_thread(kill_while_creating, shop, child, target, when)
    async with shop.open(stock={}) as runtime:
        result = await run_retry(runtime)
    assert result.stage == "completed"
    policy = shop.document()["policy"]
    assert (policy["maxAttempts"], policy["initialMaxBytes"]) == (2, 20)
    assert shop.ledger.posts() == ["POST /reserve", "POST /ship"]
    assert shop.ledger.stock() == 8
    assert shop.events().count("created") == 1
    assert len(scripted.requests) == 1


@pytest.mark.parametrize(("target", "when"), NOTHING_BEGUN)
async def test_before_the_fixture_there_is_nothing_to_finish(
    shop: Shop, child: StartChild, target: str, when: str
) -> None:
    await asyncio.to_thread(kill_while_creating, shop, child, target, when)
    async with shop.open(stock={}) as runtime:
        with pytest.raises(FulfilError) as error:
            await run_retry(runtime)
    assert error.value.code == "TASK_NOT_FOUND"
    async with shop.open() as runtime:
        assert (await run_retry(runtime, request=TEXT)).stage == "completed"


async def test_what_was_begun_may_be_finished_by_checkpoint_with_its_goal(
    shop: Shop, child: StartChild
) -> None:
    await asyncio.to_thread(kill_while_creating, shop, child, f"{FILES}.write_fixture", "after")
    async with shop.open(stock={}) as runtime:
        result = await run_checkpoint(runtime)
    assert (result.stage, result.checkpoint.flow) == ("completed", "retry")


async def test_what_was_begun_is_entered_only_by_its_own_command(
    shop: Shop, child: StartChild
) -> None:
    await asyncio.to_thread(kill_while_creating, shop, child, f"{FILES}.write_fixture", "after")
    async with shop.open(stock={}) as runtime:
        with pytest.raises(FulfilError) as error:
            await run_fallback(runtime)
    assert error.value.code == "FLOW_MISMATCH"


async def test_what_was_begun_with_a_shared_ledger_needs_it_again(
    shop: Shop, child: StartChild, service: Callable[..., Service]
) -> None:
    running = service()
    await asyncio.to_thread(
        kill_while_creating, shop, child, f"{FILES}.write_fixture", "after", running
    )
    async with shop.open(stock={}) as runtime:
        with pytest.raises(UsageError) as error:
            await run_retry(runtime)
    assert error.value.code == "LEDGER_MISMATCH"
    assert running.origin in error.value.message
    assert not (shop.directory / "service.sqlite").exists()
    async with shop.open(service=running) as runtime:
        assert (await run_retry(runtime)).stage == "completed"


async def test_what_was_begun_with_a_ledger_of_its_own_takes_no_shared_one(
    shop: Shop, child: StartChild, service: Callable[..., Service]
) -> None:
    running = service()
    await asyncio.to_thread(kill_while_creating, shop, child, f"{FILES}.write_fixture", "after")
    async with shop.open(service=running) as runtime:
        with pytest.raises(UsageError) as error:
            await run_retry(runtime)
    assert error.value.code == "LEDGER_MISMATCH"
    assert running.requests(health=True) == []


async def test_a_new_ledger_needs_its_stock(shop: Shop) -> None:
    shop.directory.mkdir()
    async with shop.open() as runtime:
        runtime.stock = None
        with pytest.raises(UsageError) as error:
            await run_retry(runtime, request=TEXT)
    assert error.value.code == "INVENTORY_INVALID"
    assert not (shop.directory / "service.sqlite").exists()


OTHER = "Fulfillment request. SKU: SKU-1; quantity: 5; delivery address: Gate-South."


@pytest.mark.parametrize(
    ("target", "when"),
    [
        (f"{FILES}.remove_source", "before"),
        (f"{FILES}.remove_source", "after"),
        (f"{FILES}.write_fixture", "before"),
        (f"{FILES}.write_fixture", "after"),
        (f"{FILES}.write_source", "before"),
        (f"{FILES}.write_source", "after"),
        (f"{STORE}:RecoveryStore.create", "before"),
    ],
)
async def test_one_orders_text_is_never_left_with_anothers_policy(
    shop: Shop, child: StartChild, scripted: ScriptedModel, target: str, when: str
) -> None:
    """Begun without an approval, then begun again as one that needs it, and killed there."""
    await asyncio.to_thread(kill_while_creating, shop, child, *BEGUN[0])
    second = child(
        *(run_flow, "run_pause", shop.directory, shop.config(), {"request": OTHER}, {}),
        (target, when, "kill"),
    )
    assert await asyncio.to_thread(second.wait) == -9

    async with shop.open() as runtime:
        try:
            await run_checkpoint(runtime)
        except FulfilError as error:
            assert error.code == "SOURCE_NOT_FOUND"
    if shop.ledger.posts():  # then it is the first order, as it was begun
        assert shop.document()["flow"] == "retry"
        assert shop.document()["order"]["quantity"] == 2
        return

    async with shop.open() as runtime:
        again = await run_pause(runtime, request=OTHER)
    assert (again.stage, again.checkpoint.order and again.checkpoint.order.quantity) == (
        "paused",
        5,
    )
    assert shop.ledger.posts() == []
    assert '"pause"' in (shop.directory / "fixture.json").read_text()
