"""What waits for a person, and each repair: once, under its revision, as one event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.flows.checkpoint import run_checkpoint
from fulfillment_cli.flows.compensation import run_compensation
from fulfillment_cli.flows.fallback import run_fallback
from fulfillment_cli.flows.pause import run_pause
from fulfillment_cli.flows.retry import run_retry
from fulfillment_cli.recovery.review import Action, Decision, act
from fulfillment_cli.recovery.waiting import waiting_in
from tests.scripted_model import Reply, ScriptedModel
from tests.support import TEXT, Child, Shop, rows, run_review

NO_RELEASE = {"rejectShipping": True, "rejectRelease": True}


def decide(action: str, **more: Any) -> Decision:
    return Decision(Action(action), "anna", "because", **more)


def set_faults(shop: Shop, **faults: bool) -> None:
    fixture = shop.directory / "fixture.json"
    fixture.write_text(json.dumps(json.loads(fixture.read_text()) | {"faults": faults}))


async def review(shop: Shop, action: str, task: str = "task", **more: Any) -> Any:
    async with shop.open() as runtime:
        return await act(runtime, task, decide(action, **more))


async def refused(shop: Shop, action: str, task: str = "task", **more: Any) -> str:
    before = shop.document(task)
    with pytest.raises(FulfilError) as caught:
        await review(shop, action, task, **more)
    assert shop.document(task) == before
    return caught.value.code


async def needs_review(shop: Shop) -> None:
    async with shop.open(faults=NO_RELEASE) as runtime:
        result = await run_compensation(runtime, request=TEXT)
    assert result.stage is Stage.NEEDS_REVIEW


async def test_the_list_tells_kind_reason_and_age(
    shop: Shop, sweep: Any, queue: Any, scripted: ScriptedModel
) -> None:
    await needs_review(shop)
    shop.clock.advance(60)
    async with shop.open() as runtime:
        await run_pause(runtime, "paused", request=TEXT, expires_in=30)
        await queue(runtime, "dead")
    scripted.script(Reply({}, 503))
    await sweep(max_attempts=1)
    shop.clock.advance(100)
    found = waiting_in(shop.directory, shop.clock)
    assert [(item.task, item.kind, item.issue.code) for item in found] == [
        ("task", "needs-review", "COMPENSATION_RELEASE_REJECTED"),
        ("paused", "paused", "APPROVAL_EXPIRED"),
        ("dead", "dead-letter", "MODEL_UNAVAILABLE"),
    ]
    assert [item.age for item in found] == pytest.approx([161, 101, 100])
    assert [item.expired for item in found] == [False, True, False]


async def test_requeue_clears_a_dead_letter_once(
    shop: Shop, sweep: Any, queue: Any, scripted: ScriptedModel
) -> None:
    async with shop.open() as runtime:
        await queue(runtime)
    assert await refused(shop, "requeue") == "REVIEW_REFUSED"
    scripted.script(Reply({}, 503))
    await sweep(max_attempts=1)
    await review(shop, "requeue")
    saved = shop.document()
    assert (saved["deadLetter"], saved["attempts"], saved["nextAttemptAt"]) == (None, 0, None)
    assert await refused(shop, "requeue") == "REVIEW_REFUSED"
    ((data,),) = rows(
        shop.directory / "tasks.sqlite", "SELECT data FROM events WHERE kind = 'review-requeue'"
    )
    assert {"actor": "anna", "reason": "because"}.items() <= json.loads(data).items()
    await sweep()
    assert shop.document()["stage"] == "completed"


async def test_close_records_a_decision_and_changes_nothing_outside(shop: Shop, sweep: Any) -> None:
    await needs_review(shop)
    outside = shop.ledger.business()
    assert (await sweep()).exit_status == 3
    await review(shop, "close")
    assert (shop.document()["closed"], shop.document()["stage"]) == (True, "needs-review")
    assert shop.ledger.business() == outside
    assert (await sweep()).exit_status == 0
    for action in ("close", "release", "requeue"):
        assert await refused(shop, action) == "REVIEW_REFUSED"


async def test_release_uses_a_new_key_each_time(shop: Shop) -> None:
    await needs_review(shop)
    result = await review(shop, "release")
    assert result.stage is Stage.NEEDS_REVIEW
    assert shop.document()["releaseAttempt"] == 2
    set_faults(shop)
    result = await review(shop, "release")
    assert result.stage is Stage.COMPENSATED
    assert result.error is not None and result.error.code == "ADDRESS_REJECTED"
    keys = rows(
        shop.ledger.database,
        "SELECT key, state FROM operations WHERE kind = 'release' ORDER BY seq",
    )
    assert keys == [
        ("task-release", "rejected"),
        ("task-release-2", "rejected"),
        ("task-release-3", "committed"),
    ]
    assert shop.ledger.stock() == 10
    assert await refused(shop, "release") == "REVIEW_REFUSED"


async def test_a_first_release_of_a_flow_that_does_not_compensate(shop: Shop) -> None:
    async with shop.open(faults={"rejectShipping": True}) as runtime:
        await run_checkpoint(runtime, request=TEXT)
        await run_checkpoint(runtime)
    assert shop.document()["stage"] == "needs-review"
    assert (await review(shop, "release")).stage is Stage.COMPENSATED
    assert shop.ledger.posts()[-1] == "POST /release"
    assert shop.document()["releaseAttempt"] == 1


@pytest.mark.parametrize("method", ["submit", "look_up"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_release_that_was_killed_is_brought_to_its_verdict_by_a_sweep(
    shop: Shop, sweep: Any, child: Any, method: str, when: str
) -> None:
    await needs_review(shop)
    set_faults(shop)
    killed: Child = child(
        run_review,
        *(shop.directory, shop.config(), "release"),
        f"fulfillment_cli.adapters.ledger:Ledger.{method}",
        when,
        shop.clock.now(),
    )
    assert killed.wait() == -9
    assert (shop.document()["stage"], shop.document()["releaseAttempt"]) == ("uncertain", 2)
    await sweep()
    assert shop.document()["stage"] == "compensated"
    released = rows(shop.ledger.database, "SELECT key FROM operations WHERE state = 'committed'")
    assert released == [("task-reserve",), ("task-release-2",)]
    assert shop.ledger.stock() == 10


async def test_resubmit_makes_a_linked_task_without_a_model_request(
    shop: Shop, scripted: ScriptedModel
) -> None:
    async with shop.open(stock={"SKU-1": 1}) as runtime:
        result = await run_fallback(runtime, request=TEXT)
    assert result.stage is Stage.FAILED
    scripted.requests.clear()
    (shop.directory / "task.txt").unlink()  # the order is saved; the text is not needed
    await review(shop, "resubmit", new_id="again")
    old, new = shop.document(), shop.document("again")
    assert (old["resubmittedAs"], new["resubmittedFrom"]) == ("again", "task")
    assert (new["stage"], new["order"], new["flow"]) == ("prepared", old["order"], "fallback")
    assert new["taskUid"] != old["taskUid"]
    assert new["planFingerprint"] != old["planFingerprint"]
    assert await refused(shop, "resubmit", new_id="again") == "REVIEW_REFUSED"
    assert await refused(shop, "resubmit", new_id="other") == "REVIEW_REFUSED"
    async with shop.open() as runtime:
        result = await run_fallback(runtime, "again")
    assert result.error is not None and result.error.code == "INSUFFICIENT_STOCK"
    assert scripted.requests == []


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_resubmit_that_was_killed_is_completed_by_the_same_command(
    shop: Shop, child: Any, when: str
) -> None:
    async with shop.open(stock={"SKU-1": 1}) as runtime:
        await run_fallback(runtime, request=TEXT)
    killed: Child = child(
        run_review,
        *(shop.directory, shop.config(), "resubmit"),
        "fulfillment_cli.adapters.checkpoints:RecoveryStore.create",
        when,
        shop.clock.now(),
        "again",
    )
    assert killed.wait() == -9
    assert shop.document()["resubmittedAs"] is None
    if when == "after":
        assert await refused(shop, "resubmit", new_id="other") == "REVIEW_REFUSED"
    await review(shop, "resubmit", new_id="again")
    assert shop.document()["resubmittedAs"] == "again"
    made = rows(shop.directory / "tasks.sqlite", "SELECT id FROM tasks ORDER BY id")
    assert made == [("again",), ("task",)]


async def test_what_cannot_be_resubmitted(shop: Shop) -> None:
    async with shop.open() as runtime:
        await run_retry(runtime, "unread", request=TEXT, max_attempts=1)
        await run_checkpoint(runtime, "going", request=TEXT)
    assert await refused(shop, "resubmit", "unread", new_id="new") == "NO_ORDER"
    assert await refused(shop, "resubmit", "going", new_id="new") == "REVIEW_REFUSED"


async def test_an_id_that_is_taken_is_not_resubmitted_as(shop: Shop) -> None:
    async with shop.open(stock={"SKU-1": 1}) as runtime:
        await run_fallback(runtime, request=TEXT)
        await run_fallback(runtime, "taken", request=TEXT)
    assert await refused(shop, "resubmit", new_id="taken") == "TASK_EXISTS"


async def test_an_action_is_bound_to_its_revision(shop: Shop) -> None:
    await needs_review(shop)
    revision = shop.document()["revision"]
    assert await refused(shop, "close", revision=revision - 1) == "REVISION_CONFLICT"
    await review(shop, "close", revision=revision)


@pytest.mark.parametrize(
    "decision",
    [
        Decision(Action.CLOSE, "", "because"),
        Decision(Action.CLOSE, "a\u202eb", "because"),
        Decision(Action.CLOSE, "anna", ""),
        Decision(Action.CLOSE, "anna", " "),
        Decision(Action.CLOSE, "anna", "x" * 501),
        Decision(Action.CLOSE, "anna", "a\nb"),
        Decision(Action.CLOSE, "anna", "because", new_id="new"),
        Decision(Action.RESUBMIT, "anna", "because"),
        Decision(Action.RESUBMIT, "anna", "because", new_id="../x"),
    ],
)
async def test_words_that_are_refused(shop: Shop, decision: Decision) -> None:
    await needs_review(shop)
    before = shop.events()
    async with shop.open() as runtime:
        with pytest.raises(FulfilError) as caught:
            await act(runtime, "task", decision)
    assert caught.value.exit_status == 2
    assert shop.events() == before


async def test_a_damaged_directory_is_listed(tmp_path: Path, shop: Shop) -> None:
    (tmp_path / "tasks.sqlite").write_bytes(b"junk")
    (found,) = waiting_in(tmp_path, shop.clock)
    assert (found.kind, found.issue.code) == ("damaged", "DATABASE_INVALID")
