"""Real processes against each other: the database decides, and the ledger is written once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli import (
    FulfilError,
    run_checkpoint,
    run_pause,
    run_retry,
)
from fulfillment_cli.adapters import database
from fulfillment_cli.adapters.leases import LEASE_SECONDS
from fulfillment_cli.flows import task_run
from tests.support import (
    TEXT,
    Between,
    Child,
    Service,
    ShiftedClock,
    Shop,
    rows,
    run_flow,
    until_async,
)

StartChild = Callable[..., Child]
StartService = Callable[..., Service]
SUBMIT = "fulfillment_cli.adapters.ledger:Ledger.submit"
HOUR = 3600.0


@pytest.fixture
def real_shop(shop: Shop) -> Shop:
    """On the machine's time, as its children are."""
    shop.clock = ShiftedClock(0)  # type: ignore[assignment]
    return shop


def spawn(
    child: StartChild,
    shop: Shop,
    function: str,
    *,
    service: Service | Between | None = None,
    arguments: dict[str, Any] | None = None,
    at: tuple[str, str, str] | None = None,
    offset: float = 0.0,
    gate: bool = False,
    directory: Path | None = None,
) -> Child:
    config = shop.config(*[service.origin] if service else [])
    options = {"service_url": service.origin} if service else {}
    return child(
        run_flow,
        function,
        directory or shop.directory,
        config,
        arguments,
        options,
        at,
        offset,
        gate,
    )


async def prepare(shop: Shop, service: Service | Between | None = None, **options: Any) -> None:
    async with shop.open(service=service, **options) as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")


def check_written_once(ledger: Any, task_id: str = "task") -> None:
    assert ledger.stock() == 8
    assert ledger.reservations() == [(f"{task_id}-reserve", "SKU-1", 2, "shipped")]
    assert ledger.shipments() == [(f"{task_id}-ship", f"{task_id}-reserve", "Dock-North")]


def outcome(answer: dict[str, Any]) -> str:
    return str(answer.get("stage") or answer["code"])


async def test_a_second_process_on_a_task_is_busy_and_the_first_is_undisturbed(
    real_shop: Shop, child: StartChild
) -> None:
    await prepare(real_shop)
    first = spawn(child, real_shop, "run_checkpoint", at=(SUBMIT, "before", "meet"))
    assert await first.hear_async() == "met"
    before = real_shop.document()
    second = spawn(child, real_shop, "run_checkpoint")
    assert outcome(await second.hear_async()) == "TASK_BUSY"
    assert real_shop.document() == before
    first.say("go on")
    assert outcome(await first.hear_async()) == "completed"
    check_written_once(real_shop.ledger)


async def test_of_processes_that_continue_a_task_at_once_one_does_the_work(
    real_shop: Shop, child: StartChild, service: StartService
) -> None:
    running = service()
    await prepare(real_shop, running)
    children = [
        spawn(child, real_shop, "run_checkpoint", service=running, gate=True) for _ in range(3)
    ]
    assert [await each.hear_async() for each in children] == ["ready"] * 3
    for each in children:
        each.say("go")
    answers = {outcome(await each.hear_async()) for each in children}
    assert "completed" in answers
    assert answers <= {"TASK_BUSY", "completed"}  # one that came late finds all done
    assert running.posts() == ["POST /reserve", "POST /ship"]
    check_written_once(running)


@pytest.mark.parametrize("decisions", [("approve", "approve"), ("approve", "reject")], ids=str)
async def test_of_two_decisions_at_once_exactly_one_is_made(
    real_shop: Shop, child: StartChild, service: StartService, decisions: tuple[str, str]
) -> None:
    running = service()
    async with real_shop.open(service=running) as runtime:
        await run_pause(runtime, request=TEXT)
    children = [
        spawn(
            child,
            real_shop,
            "resume_paused",
            service=running,
            arguments={"decision": decision, "actor": f"actor-{number}"},
            gate=True,
        )
        for number, decision in enumerate(decisions)
    ]
    assert [await each.hear_async() for each in children] == ["ready"] * 2
    for each in children:
        each.say("go")
    answers = [outcome(await each.hear_async()) for each in children]
    lost = [answer for answer in answers if answer in ("TASK_BUSY", "ALREADY_DECIDED")]
    assert len(lost) == 1, answers
    events = rows(
        real_shop.directory / "tasks.sqlite", "SELECT data FROM events WHERE kind = 'decided'"
    )
    assert len(events) == 1
    winner = answers.index(next(answer for answer in answers if answer not in lost))
    assert json.loads(events[0][0])["actor"] == f"actor-{winner}"
    assert real_shop.document()["approval"]["actor"] == f"actor-{winner}"
    assert answers[winner] == ("completed" if decisions[winner] == "approve" else "rejected")
    assert running.stock() == (8 if decisions[winner] == "approve" else 10)


@pytest.mark.parametrize("kind", ["reserve", "ship"])
async def test_a_late_write_of_a_process_that_was_stopped_meets_its_own_key(
    real_shop: Shop, child: StartChild, service: StartService, kind: str
) -> None:
    """Stopped with its intent saved and nothing sent; woken when all is done."""
    running = service()
    async with real_shop.open(service=running) as runtime:
        stop_after: Any = "prepared" if kind == "reserve" else "reserved"
        await run_checkpoint(runtime, request=TEXT, stop_after=stop_after)
    first = spawn(
        child, real_shop, "run_checkpoint", service=running, at=(SUBMIT, "before", "stop")
    )
    await until_async(first.stopped, "the child stopped itself")
    assert real_shop.document()["intent"]["key"] == f"task-{kind}"

    async with real_shop.open(service=running) as runtime:
        with pytest.raises(FulfilError) as busy:
            await run_checkpoint(runtime)
        assert busy.value.code == "TASK_BUSY"
    real_shop.clock = ShiftedClock(LEASE_SECONDS + 1)  # type: ignore[assignment]
    async with real_shop.open(service=running) as runtime:
        assert (await run_checkpoint(runtime)).stage == "completed"
    document, business, events = real_shop.document(), running.business(), real_shop.events()

    first.wake()
    assert outcome(await first.hear_async()) == "LEASE_LOST"
    assert running.posts().count(f"POST /{kind}") == 2
    assert running.business() == business
    assert real_shop.document() == document
    assert real_shop.events() == events
    projected = (real_shop.directory / "results" / "task.json").read_text()
    assert json.loads(projected) == document
    check_written_once(running)


async def test_a_process_stopped_with_a_write_in_flight_writes_nothing_when_it_wakes(
    real_shop: Shop, child: StartChild, service: StartService
) -> None:
    running = service()
    async with Between(running) as between:
        answered, first_may_hear = asyncio.Event(), asyncio.Event()

        async def withhold(request: bytes) -> bytes:
            answer = await between.forward(request)
            answered.set()
            await first_may_hear.wait()
            return answer

        await prepare(real_shop, between)
        between.catch["POST /reserve"] = withhold
        first = spawn(child, real_shop, "run_checkpoint", service=between)
        await answered.wait()
        await asyncio.to_thread(first.stop)
        real_shop.clock = ShiftedClock(LEASE_SECONDS + 1)  # type: ignore[assignment]
        async with real_shop.open(service=between) as runtime:
            assert (await run_checkpoint(runtime)).stage == "completed"
        document, business = real_shop.document(), running.business()
        first_may_hear.set()
        first.wake()
        assert outcome(await first.hear_async()) == "LEASE_LOST"
    assert (real_shop.document(), running.business()) == (document, business)
    assert running.posts() == ["POST /reserve", "POST /ship"]


async def test_clocks_an_hour_apart_let_no_old_holder_write(
    real_shop: Shop, child: StartChild, service: StartService
) -> None:
    running = service()
    await prepare(real_shop, running)
    present = spawn(
        child, real_shop, "run_checkpoint", service=running, at=(SUBMIT, "before", "meet")
    )
    assert await present.hear_async() == "met"
    past = spawn(child, real_shop, "run_checkpoint", service=running, offset=-HOUR)
    assert outcome(await past.hear_async()) == "TASK_BUSY"
    future = spawn(child, real_shop, "run_checkpoint", service=running, offset=HOUR)
    assert outcome(await future.hear_async()) == "completed"
    document, business = real_shop.document(), running.business()
    present.say("go on")
    assert outcome(await present.hear_async()) == "LEASE_LOST"
    assert (real_shop.document(), running.business()) == (document, business)
    check_written_once(running)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["reserve", "ship"])
@pytest.mark.parametrize("own", [True, False], ids=["own ledger", "shared ledger"])
async def test_a_process_killed_at_a_write_is_continued_by_another(
    real_shop: Shop, child: StartChild, service: StartService, own: bool, kind: str, when: str
) -> None:
    running = None if own else service()
    ledger = real_shop.ledger if running is None else running
    stop_after: Any = "prepared" if kind == "reserve" else "reserved"
    async with real_shop.open(service=running) as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after=stop_after)
    first = spawn(child, real_shop, "run_checkpoint", service=running, at=(SUBMIT, when, "kill"))
    assert await asyncio.to_thread(first.wait) == -9
    async with real_shop.open(service=running) as runtime:
        assert (await run_checkpoint(runtime)).stage == "completed"
    check_written_once(ledger)
    assert ledger.posts() == ["POST /reserve", "POST /ship"]
    assert list((real_shop.directory / ".holders").iterdir()) == []


async def test_many_runners_share_a_ledger_and_its_stock_is_never_oversold(
    real_shop: Shop, child: StartChild, service: StartService, tmp_path: Path
) -> None:
    running = service(stock={"SKU-1": 5})
    children = [
        spawn(
            child,
            real_shop,
            "run_retry",
            service=running,
            directory=tmp_path / f"runner-{number}",
            arguments={"task_id": f"task-{number}", "request": TEXT},
            gate=True,
        )
        for number in range(4)
    ]
    assert [await each.hear_async() for each in children] == ["ready"] * 4
    for each in children:
        each.say("go")
    answers = sorted([outcome(await each.hear_async()) for each in children])
    assert answers == ["completed", "completed", "failed", "failed"]
    assert running.stock() == 1
    assert len(running.shipments()) == 2
    assert len(running.posts()) == 4 + 2


async def test_one_id_in_two_directories_is_one_operation_at_their_ledger(
    real_shop: Shop, child: StartChild, service: StartService, tmp_path: Path
) -> None:
    running = service()
    children = [
        spawn(
            child,
            real_shop,
            "run_retry",
            service=running,
            directory=tmp_path / f"runner-{number}",
            arguments={"request": TEXT},
            gate=True,
        )
        for number in range(2)
    ]
    assert [await each.hear_async() for each in children] == ["ready"] * 2
    for each in children:
        each.say("go")
    answers = sorted([outcome(await each.hear_async()) for each in children])
    assert answers == ["completed", "needs-review"]
    check_written_once(running)


async def test_of_processes_that_make_a_task_at_once_the_task_is_one(
    real_shop: Shop, child: StartChild
) -> None:
    real_shop.directory.mkdir()
    arguments = {"request": TEXT}
    children = []
    for _ in range(2):
        children.append(
            child(
                run_flow,
                "run_checkpoint",
                real_shop.directory,
                real_shop.config(),
                arguments,
                {"stock": {"SKU-1": 10}},
                None,
                0.0,
                True,
            )
        )
    assert [await each.hear_async() for each in children] == ["ready"] * 2
    for each in children:
        each.say("go")
    answers = [outcome(await each.hear_async()) for each in children]
    assert set(answers) <= {"reserved", "completed", "TASK_BUSY"}
    assert set(answers) & {"reserved", "completed"}
    assert real_shop.events().count("created") == 1
    assert len(real_shop.ledger.reservations()) == 1


async def test_many_orders_run_in_one_process(shop: Shop) -> None:
    async with shop.open(stock={"SKU-1": 100}) as runtime:
        ids = [f"task-{number}" for number in range(6)]
        results = await asyncio.gather(
            *(run_retry(runtime, task_id, request=TEXT) for task_id in ids)
        )
    assert [result.stage for result in results] == ["completed"] * 6
    assert shop.ledger.stock() == 100 - 12
    assert sorted(key for key, *_ in shop.ledger.shipments()) == [f"{each}-ship" for each in ids]


async def test_one_task_entered_twice_in_one_process_is_busy(
    shop: Shop, service: StartService
) -> None:
    async with Between(service()) as between:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def wait(request: bytes) -> bytes:
            asked.set()
            await go_on.wait()
            return await between.forward(request)

        between.catch["POST /reserve"] = wait
        async with shop.open(service=between) as first, shop.open(service=between) as second:
            running = asyncio.create_task(run_retry(first, request=TEXT))
            await asked.wait()
            with pytest.raises(FulfilError) as error:
                await run_retry(second)
            assert error.value.code == "TASK_BUSY"
            go_on.set()
            assert (await running).stage == "completed"


# -- renewal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [False, True], ids=["", "a locked database"])
async def test_a_lease_is_renewed_while_an_answer_is_awaited(
    shop: Shop, service: StartService, monkeypatch: pytest.MonkeyPatch, trouble: bool
) -> None:
    monkeypatch.setattr(task_run, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 10)

    def expires() -> float:
        ((at,),) = rows(shop.directory / "tasks.sqlite", "SELECT lease_expires_at FROM tasks")
        assert isinstance(at, float)
        return at

    async with Between(service()) as between:

        async def slow(request: bytes) -> bytes:
            if trouble:
                path = shop.directory / "tasks.sqlite"
                with closing(sqlite3.connect(path, isolation_level=None)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    await asyncio.sleep(0.1)
            for _ in range(3):
                shop.clock.advance(20)
                target = shop.clock.now() + LEASE_SECONDS
                await until_async(lambda at=target: expires() == at, "renewed")  # type: ignore[misc]
            return await between.forward(request)

        between.catch["POST /reserve"] = slow
        async with shop.open(service=between) as runtime:
            assert (await run_retry(runtime, request=TEXT)).stage == "completed"
    assert rows(shop.directory / "tasks.sqlite", "SELECT lease_holder FROM tasks") == [(None,)]


# -- the caller changes its mind ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reserve", "ship"])
async def test_a_cancel_that_races_a_completion_reports_the_winner(
    shop: Shop, service: StartService, kind: str
) -> None:
    """Cancelled with the verdict on its way: either it was saved, or the next entry finds it."""
    running = service()
    async with Between(running) as between:

        async def cancel_then_answer(request: bytes) -> bytes:
            answer = await between.forward(request)
            task.cancel()
            return answer

        between.catch[f"POST /{kind}"] = cancel_then_answer
        async with shop.open(service=between) as runtime:
            task = asyncio.create_task(run_retry(runtime, request=TEXT))
            with pytest.raises(asyncio.CancelledError):
                await task
            document = shop.document()
            assert document["stage"] == ("prepared" if kind == "reserve" else "reserved")
            assert json.loads((shop.directory / "results" / "task.json").read_text()) == document
            assert (await run_retry(runtime)).stage == "completed"
    assert running.posts() == ["POST /reserve", "POST /ship"]
    check_written_once(running)
