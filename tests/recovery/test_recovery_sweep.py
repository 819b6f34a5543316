"""What one pass of a sweep continues, leaves, tries again and gives up."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.adapters.clock import from_timestamp
from fulfillment_cli.domain.stages import Goal
from fulfillment_cli.flows.checkpoint import run_checkpoint
from fulfillment_cli.flows.compensation import run_compensation
from fulfillment_cli.flows.pause import run_pause
from fulfillment_cli.flows.side_effect import run_side_effect
from fulfillment_cli.flows.task_run import TaskRun
from fulfillment_cli.flows.timeout import run_timeout
from fulfillment_cli.recovery import attempt as attempt_module
from fulfillment_cli.recovery.directories import find_directories
from tests.scripted_model import Reply, ScriptedModel, completion
from tests.support import TEXT, Service, Shop, change_document, hold_lease, hold_ledger, rows


def failure(status: int) -> Reply:
    return Reply({"error": {"message": "no"}}, status)


def answer(facts: dict[str, Any]) -> Reply:
    return Reply(completion(json.dumps(facts)))


def results(done: Any) -> dict[str, str]:
    return {outcome.task: outcome.result for outcome in done.outcomes}


async def test_each_task_goes_to_its_goal_and_not_past_it(
    shop: Shop, sweep: Any, queue: Any, scripted: ScriptedModel
) -> None:
    async with shop.open() as runtime:
        await queue(runtime, "all", goal=Goal.COMPLETED)
        await queue(runtime, "half", goal=Goal.RESERVED)
        await queue(runtime, "plan", goal=Goal.PREPARED)
    done = await sweep()
    assert results(done) == {"all": "finished", "half": "finished", "plan": "finished"}
    stages = {task: shop.document(task)["stage"] for task in ("all", "half", "plan")}
    assert stages == {"all": "completed", "half": "reserved", "plan": "prepared"}
    assert len(scripted.requests) == 3
    assert done.exit_status == 0
    events = {task: shop.events(task) for task in stages}
    again = await sweep()
    assert (again.found, again.outcomes, again.exit_status) == ({}, [], 0)
    assert {task: shop.events(task) for task in stages} == events


async def test_a_saved_order_is_never_asked_for_again(
    shop: Shop, sweep: Any, scripted: ScriptedModel
) -> None:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")
    change_document(shop.directory, lambda saved: saved.update(goal="completed"))
    scripted.requests.clear()
    done = await sweep()
    assert shop.document()["stage"] == "completed"
    assert scripted.requests == []
    assert done.to_json()["questions"] == 0


async def test_what_only_a_person_continues_is_left_alone(shop: Shop, sweep: Any) -> None:
    faults = {"rejectShipping": True, "rejectRelease": True, "catalogDelayMs": 300}
    async with shop.open(faults=faults) as runtime:
        await run_pause(runtime, "paused", request=TEXT)
        await run_timeout(runtime, "late", request=TEXT, timeout_ms=1)
        await run_compensation(runtime, "review", request=TEXT)
    before = rows(shop.directory / "tasks.sqlite", "SELECT document FROM tasks ORDER BY id")
    done = await sweep()
    assert done.outcomes == []
    assert done.left.by_stage == {"needs-review": 1, "paused": 1, "timed-out": 1}
    assert done.exit_status == 3
    assert rows(shop.directory / "tasks.sqlite", "SELECT document FROM tasks ORDER BY id") == before


async def test_the_oldest_update_is_first_and_the_limit_holds(
    shop: Shop, sweep: Any, queue: Any, tmp_path: Path
) -> None:
    other = Shop(tmp_path / "other", shop.config)
    other.clock = shop.clock
    async with shop.open() as runtime, other.open() as second:
        for number in range(4):
            await queue((runtime, second)[number % 2], f"task-{number}", goal=Goal.PREPARED)
    first = await sweep(tmp_path, limit=3)
    assert [one.task for one in first.planned] == ["task-0", "task-1", "task-2"]
    assert results(first).keys() == {"task-0", "task-1", "task-2"}
    assert (first.unfinished, first.exit_status) == (1, 4)
    assert results(await sweep(tmp_path)) == {"task-3": "finished"}


async def test_a_dry_run_does_nothing(shop: Shop, sweep: Any, queue: Any) -> None:
    async with shop.open() as runtime:
        await queue(runtime)
    before = shop.events()
    done = await sweep(dry_run=True)
    assert [one.task for one in done.planned] == ["task"]
    assert (done.outcomes, done.exit_status, shop.events()) == ([], 4, before)


async def test_a_model_that_is_away_is_tried_again_and_given_up(
    shop: Shop, sweep: Any, queue: Any, scripted: ScriptedModel
) -> None:
    async with shop.open() as runtime:
        await queue(runtime)
    for number in (1, 2):
        scripted.script(failure(503))
        done = await sweep()
        saved = shop.document()
        assert (results(done), done.exit_status) == ({"task": "later"}, 4)
        assert (saved["stage"], saved["attempts"]) == ("queued", number)
        assert saved["lastError"]["code"] == "MODEL_UNAVAILABLE"
        assert saved["lastErrorAt"] == saved["updatedAt"] == shop.clock.timestamp()
        waits = from_timestamp(saved["nextAttemptAt"]) - shop.clock.now()
        assert 0 < waits <= 2 ** (number - 1)
        early = await sweep()
        assert (early.outcomes, early.exit_status) == ([], 4)
        assert early.left.next_attempt_at == saved["nextAttemptAt"]
        shop.clock.advance(waits)
    scripted.script(failure(503))
    last = await sweep()
    assert (results(last), last.exit_status) == ({"task": "dead-letter"}, 3)
    saved = shop.document()
    assert (saved["stage"], saved["attempts"], saved["nextAttemptAt"]) == ("queued", 3, None)
    assert saved["deadLetter"]["code"] == "MODEL_UNAVAILABLE"
    shop.clock.advance(100_000)
    after = await sweep()
    assert (after.outcomes, after.exit_status) == ([], 3)


async def test_a_success_ends_the_count(
    shop: Shop, sweep: Any, queue: Any, scripted: ScriptedModel
) -> None:
    async with shop.open() as runtime:
        await queue(runtime)
    scripted.script(failure(429))
    await sweep()
    shop.clock.advance(10)
    assert results(await sweep()) == {"task": "finished"}
    saved = shop.document()
    assert saved["stage"] == "completed"
    kept = ("attempts", "nextAttemptAt", "lastError", "lastErrorAt", "deadLetter")
    assert [saved[name] for name in kept] == [0, None, None, None, None]


async def test_a_refused_answer_is_a_dead_letter_at_once(
    shop: Shop, sweep: Any, queue: Any, scripted: ScriptedModel
) -> None:
    async with shop.open() as runtime:
        await queue(runtime, "bad")
        await queue(runtime, "good")
    invented = answer({"sku": "SKU-1", "quantity": 9, "address": "Dock-North"})
    scripted.script(invented, invented)
    done = await sweep()
    assert results(done) == {"bad": "dead-letter", "good": "finished"}
    assert shop.document("bad")["deadLetter"]["code"] == "ORDER_NOT_GROUNDED"
    assert shop.document("bad")["stage"] == "queued"


async def test_a_changed_plan_is_a_dead_letter_at_once_and_nothing_is_sent(
    shop: Shop, sweep: Any
) -> None:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")

    def change(saved: dict[str, Any]) -> None:
        saved.update(goal="completed")
        saved["order"]["quantity"] = 3

    change_document(shop.directory, change)
    done = await sweep()
    assert (results(done), done.exit_status) == ({"task": "dead-letter"}, 3)
    assert shop.document()["deadLetter"]["code"] == "PLAN_MISMATCH"
    assert shop.ledger.requests() == []


async def test_refused_credentials_are_told_once_and_use_no_attempt(
    shop: Shop, sweep: Any, queue: Any, scripted: ScriptedModel, caplog: Any
) -> None:
    async with shop.open() as runtime:
        for name in ("a", "b"):
            await queue(runtime, name)
        await run_checkpoint(runtime, "reserved", request=TEXT, stop_after="reserved")
    change_document(shop.directory, lambda saved: saved.update(goal="completed"), "reserved")
    scripted.requests.clear()
    scripted.script(failure(401), failure(401))
    done = await sweep()
    assert results(done) == {"a": "blocked", "b": "blocked", "reserved": "finished"}
    assert (done.exit_status, len(scripted.requests)) == (4, 1)
    assert shop.document("a")["attempts"] == 0
    told = [record for record in caplog.records if record.code == "MODEL_UNAUTHORIZED"]
    assert len(told) == 1
    assert done.problems["model"].code == "MODEL_UNAUTHORIZED"


@pytest.fixture(autouse=True)
def coded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every log record have a code, so that tests can ask for it."""
    import logging

    monkeypatch.setattr(logging.LogRecord, "code", None, raising=False)


async def test_an_unknown_outcome_uses_an_attempt(shop: Shop, sweep: Any) -> None:
    async with shop.open(faults={"lookupUnavailable": True}) as runtime:
        await run_side_effect(runtime, request=TEXT)
    done = await sweep(max_attempts=2)
    assert results(done) == {"task": "later"}
    shop.clock.advance(10)
    assert results(await sweep(max_attempts=2)) == {"task": "dead-letter"}
    saved = shop.document()
    assert (saved["stage"], saved["deadLetter"]["code"]) == ("uncertain", "OUTCOME_UNKNOWN")
    assert shop.ledger.posts() == []


async def test_bad_tasks_and_directories_do_not_stop_a_sweep(
    shop: Shop, sweep: Any, queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shop.open() as runtime:
        for name in ("damaged", "poison", "good"):
            await queue(runtime, name)
    change_document(shop.directory, lambda saved: saved.pop("taskUid"), "damaged")
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "tasks.sqlite").write_bytes(b"junk")
    drive = attempt_module.drive

    async def poisoned(run: TaskRun, *arguments: Any) -> None:
        if run.checkpoint.id == "poison":
            raise ZeroDivisionError("poison")
        await drive(run, *arguments)

    monkeypatch.setattr(attempt_module, "drive", poisoned)
    done = await sweep(tmp_path)
    assert results(done) == {"damaged": "broken", "poison": "dead-letter", "good": "finished"}
    assert done.exit_status == 3
    assert shop.document("poison")["deadLetter"]["code"] == "INTERNAL"
    assert done.problems[str(tmp_path / "junk")].code == "DATABASE_INVALID"


async def test_a_task_that_was_begun_is_made(shop: Shop, sweep: Any) -> None:
    """Killed before its row: there are a text and a fixture, and nothing else."""
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")
    for path in shop.directory.iterdir():
        if path.name.startswith(("tasks.sqlite", "service.sqlite")):
            path.unlink()
    fixture = shop.directory / "fixture.json"
    fixture.write_text(json.dumps(json.loads(fixture.read_text()) | {"goal": "completed"}))
    seen = await sweep(dry_run=True)
    assert (seen.found, seen.exit_status) == ({"queued": 1}, 4)
    done = await sweep()
    assert (results(done), done.exit_status) == ({"task": "finished"}, 0)
    assert shop.document()["stage"] == "completed"


async def test_a_ledger_that_went_missing_is_skipped_and_counted(
    shop: Shop, sweep: Any, queue: Any
) -> None:
    async with shop.open() as runtime:
        await queue(runtime)
    shop.ledger.database.unlink()
    done = await sweep()
    assert (done.outcomes, done.skipped, done.exit_status) == ([], 1, 4)
    assert not shop.ledger.database.exists()
    assert shop.document()["attempts"] == 0


async def test_tasks_of_another_ledger_are_skipped(
    shop: Shop, sweep: Any, queue: Any, service: Any, tmp_path: Path
) -> None:
    given, other = service("given"), service("other")
    foreign = Shop(tmp_path / "foreign", shop.config)
    foreign.clock = shop.clock
    async with shop.open(service=given) as runtime, foreign.open(service=other) as second:
        await queue(runtime, "mine")
        await queue(second, "theirs")
    done = await sweep(tmp_path, service_url=given.origin, origins=(given.origin,))
    assert results(done) == {"mine": "finished"}
    assert (done.skipped, done.exit_status) == (1, 0)
    assert other.posts() == []
    unnamed = await sweep(tmp_path)
    assert (unnamed.outcomes, unnamed.skipped, unnamed.exit_status) == ([], 1, 4)


async def test_a_ledger_that_is_away_is_tried_again(
    shop: Shop, sweep: Any, queue: Any, service: Any
) -> None:
    given: Service = service()
    async with shop.open(service=given) as runtime:
        await queue(runtime)
    given.close()
    done = await sweep(service_url=given.origin, origins=(given.origin,))
    assert results(done) == {"task": "later"}
    saved = shop.document()
    assert (saved["stage"], saved["attempts"]) == ("prepared", 1)
    assert saved["lastError"]["code"] == "LEDGER_UNAVAILABLE"


async def test_a_directory_whose_ledger_is_held_is_left(
    shop: Shop, sweep: Any, queue: Any, child: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fulfillment_cli.adapters.service_process.LOCK_TIMEOUT_SECONDS", 0)
    async with shop.open() as runtime:
        await queue(runtime)
    holder = child(hold_ledger, shop.directory)
    holder.hear()
    before = shop.events()
    done = await sweep()
    assert (results(done), done.exit_status) == ({"task": "busy"}, 4)
    assert shop.events() == before  # not even its lease was taken
    holder.say("end")
    holder.wait()
    assert results(await sweep()) == {"task": "finished"}


async def test_a_task_that_a_living_process_holds_is_left_and_a_dead_ones_taken(
    shop: Shop, sweep: Any, queue: Any, child: Any
) -> None:
    async with shop.open() as runtime:
        await queue(runtime, "held")
        await queue(runtime, "free")
    offset = shop.clock.now() - time.time()
    holder = child(hold_lease, shop.directory, "held", offset)
    holder.hear()
    done = await sweep()
    assert results(done) == {"held": "busy", "free": "finished"}
    assert (done.exit_status, shop.document("held")["attempts"]) == (4, 0)
    holder.kill()
    assert results(await sweep()) == {"held": "finished"}


async def test_a_sweep_that_is_stopped_finishes_its_step_and_lets_go(
    shop: Shop, sweep: Any, queue: Any
) -> None:
    async with shop.open() as runtime:
        await queue(runtime, "a")
        await queue(runtime, "b")
    done = await sweep(stopping=lambda: "prepared" in shop.events("a"))
    assert results(done) == {"a": "stopped"}
    assert shop.document("a")["stage"] == "prepared"
    assert shop.events("a")[-1] == "left"
    assert "entered" not in shop.events("b")
    assert results(await sweep()) == {"a": "finished", "b": "finished"}


async def test_a_revision_that_is_lost_to_another_plan_sends_nothing_more(
    shop: Shop, sweep: Any
) -> None:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="reserved")
    change_document(shop.directory, lambda saved: saved.update(goal="completed"))
    seen = shop.ledger.posts()

    def tamper(saved: dict[str, Any]) -> None:
        saved["revision"] += 1
        saved["planFingerprint"] = "0" * 64

    once = [tamper]

    def between() -> bool:
        if once and shop.events()[-1] == "entered":
            change_document(shop.directory, once.pop())
        return False

    done = await sweep(stopping=between)
    assert (results(done), done.exit_status) == ({"task": "dead-letter"}, 3)
    assert shop.document()["deadLetter"]["code"] == "PLAN_MISMATCH"
    assert shop.ledger.posts() == seen
    assert shop.document()["planFingerprint"] == "0" * 64


def test_where_directories_are_looked_for(tmp_path: Path) -> None:
    for name in ("one", "two/deep", "a/b/c/d", "a/b/c/d/e"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "tasks.sqlite").touch()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "fixture.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "two")
    found = [str(path.relative_to(tmp_path)) for path in find_directories(tmp_path)]
    assert sorted(found) == ["a/b/c/d", "one", "two/deep"]
    assert find_directories(tmp_path / "one") == [tmp_path / "one"]
