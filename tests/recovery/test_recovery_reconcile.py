"""Reconcile: what is told, what is not, and that nothing is written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.experiments.planted import execute
from fulfillment_cli.flows.checkpoint import run_checkpoint
from fulfillment_cli.flows.compensation import run_compensation
from fulfillment_cli.flows.side_effect import run_side_effect
from fulfillment_cli.recovery.reconcile import Reconciliation, reconcile
from fulfillment_cli.recovery.review import Action, Decision, act
from fulfillment_cli.settings import Settings
from tests.support import TEXT, Service, Shop, change_document, rows


async def audit(shop: Shop, *more: Path, service: Service | None = None) -> Reconciliation:
    origins = [service.origin] if service else []
    settings = Settings.model_validate(shop.config(*origins))
    url = service.origin if service else None
    return await reconcile([shop.directory, *more], settings, service_url=url)


def kinds(result: Reconciliation) -> list[tuple[str, str]]:
    return [(one.kind, one.key) for one in result.differences]


async def test_tasks_at_every_stage_do_not_differ(shop: Shop, queue: Any) -> None:
    async with shop.open() as runtime:
        await queue(runtime, "queued")
        await run_checkpoint(runtime, "prepared", request=TEXT, stop_after="prepared")
        await run_checkpoint(runtime, "reserved", request=TEXT, stop_after="reserved")
        await run_side_effect(runtime, "completed", request=TEXT)
    (shop.directory / "results" / "prepared.json").unlink()  # made again when it is needed
    before = rows(shop.directory / "tasks.sqlite", "SELECT * FROM tasks ORDER BY id")
    business = shop.ledger.business()
    result = await audit(shop)
    assert (kinds(result), result.tasks, result.not_compared) == ([], 4, {})
    assert rows(shop.directory / "tasks.sqlite", "SELECT * FROM tasks ORDER BY id") == before
    assert shop.ledger.business() == business


async def test_an_operation_in_hand_is_no_difference(shop: Shop) -> None:
    """Committed, and its answer was lost: the task knows its intent and finds out by itself."""
    faults = {"dropReservationResponse": True, "lookupUnavailableAfterWrite": True}
    async with shop.open(faults=faults) as runtime:
        await run_side_effect(runtime, request=TEXT)
    assert shop.document()["stage"] == "uncertain"
    assert kinds(await audit(shop)) == []


async def test_a_checkpoint_from_before_the_write_is_told(shop: Shop) -> None:
    """An old copy of tasks.sqlite was put back: the ledger has gone on without it."""
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")
        old = shop.document()
        await run_checkpoint(runtime, stop_after="reserved")
    change_document(shop.directory, lambda saved: (saved.clear(), saved.update(old)))
    result = await audit(shop)
    assert kinds(result) == [
        ("RESULT_MISMATCH", "results/task.json"),
        ("UNKNOWN_OPERATION", "task-reserve"),
    ]
    assert result.differences[1].task is not None
    async with shop.open() as runtime:
        await run_checkpoint(runtime, stop_after="reserved")
    assert kinds(await audit(shop)) == []
    assert shop.ledger.posts() == ["POST /reserve"]


async def test_a_closed_task_is_no_longer_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fulfillment_cli.adapters.service_process.LOCK_TIMEOUT_SECONDS", 0)
    async with shop.open(faults={"rejectShipping": True, "rejectRelease": True}) as runtime:
        await run_compensation(runtime, request=TEXT)
        assert kinds(await _while_open(shop, runtime)) == []
        await act(runtime, "task", Decision(Action.CLOSE, "anna", "sold at the counter"))
    assert kinds(await audit(shop)) == []


async def _while_open(shop: Shop, runtime: Any) -> Reconciliation:
    """A directory whose ledger another process holds cannot be compared, and that is said."""
    result = await audit(shop)
    assert result.not_compared[shop.directory].code == "TASK_BUSY"
    return result


async def test_claimed_operations_that_the_start_finished_are_told(shop: Shop) -> None:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="reserved")
    database = shop.ledger.database
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "INSERT INTO operations (key, kind, fingerprint, task_uid, sku, quantity, address,"
            " reservation_key, claimed_at) SELECT 'task-ship', 'ship', 'f', task_uid, sku,"
            " quantity, address, reservation_key, claimed_at FROM operations"
        )
    result = await audit(shop)
    assert (result.started, result.finished) == (1, 1)


async def test_several_directories_share_one_ledger(
    shop: Shop, service: Any, tmp_path: Path
) -> None:
    given: Service = service()
    other = Shop(tmp_path / "other", shop.config)
    async with shop.open(service=given) as runtime, other.open(service=given) as second:
        await run_checkpoint(runtime, "one", request=TEXT, stop_after="reserved")
        await run_checkpoint(second, "two", request=TEXT)
    result = await audit(shop, other.directory, service=given)
    assert (kinds(result), result.tasks, result.started) == ([], 2, 0)
    alone = await audit(shop, service=given)
    assert [kind for kind, _ in kinds(alone)] == ["UNKNOWN_OPERATION"]  # whose, it cannot know


async def test_a_result_of_no_task_and_one_that_is_not_json(shop: Shop) -> None:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")
    results = shop.directory / "results"
    (results / "task.json").write_text("{")
    (results / "ghost.json").write_text("{}")
    told = kinds(await audit(shop))
    assert told == [
        ("RESULT_MISMATCH", "results/ghost.json"),
        ("RESULT_MISMATCH", "results/task.json"),
    ]


async def test_a_directory_that_cannot_be_read_does_not_stop_it(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "tasks.sqlite").write_bytes(b"junk")
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="reserved")
    execute(shop.directory, "UPDATE inventory SET quantity = quantity + 1")
    result = await audit(shop, tmp_path / "junk")
    assert kinds(result) == [("STOCK_MISMATCH", "SKU-1")]
    assert result.not_compared[tmp_path / "junk"].code == "DATABASE_INVALID"
