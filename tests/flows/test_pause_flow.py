"""A decision: one, by somebody, about this very plan, whatever else is going on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import pytest

from fulfillment_cli import FulfilError, resume_paused, run_checkpoint, run_pause, run_session
from fulfillment_cli.adapters import service_process
from fulfillment_cli.domain.errors import TaskBusy
from tests.scripted_model import Reply, ScriptedModel
from tests.support import TEXT, Child, Shop, change_document, hold_lease, hold_ledger, rows

StartChild = Callable[..., Child]


@pytest.fixture
async def paused(shop: Shop) -> Shop:
    """A directory whose task waits for a decision."""
    async with shop.open() as runtime:
        result = await run_pause(runtime, request=TEXT)
    assert result.stage == "paused"
    return shop


async def decide(
    shop: Shop, decision: Literal["approve", "reject"] = "approve", actor: str = "ann", **more: Any
) -> Any:
    async with shop.open() as runtime:
        return await resume_paused(runtime, decision, actor, **more)


async def refused(shop: Shop, code: str, **arguments: Any) -> None:
    before = shop.document()
    with pytest.raises(FulfilError) as error:
        await decide(shop, **arguments)
    assert error.value.code == code
    assert shop.document() == before
    assert "decided" not in shop.events() or before["approval"] is not None


def decisions(shop: Shop) -> list[dict[str, Any]]:
    found = rows(shop.directory / "tasks.sqlite", "SELECT data FROM events WHERE kind = 'decided'")
    return [json.loads(data) for (data,) in found]


async def test_nothing_was_written_outside_before_the_decision(paused: Shop) -> None:
    assert paused.ledger.requests() == []
    assert paused.document()["requiresApproval"] is True


async def test_an_approved_task_is_completed(paused: Shop, scripted: ScriptedModel) -> None:
    result = await decide(paused, actor="example-operator")
    assert (result.stage, result.questions, result.note) == ("completed", 0, None)
    approval = paused.document()["approval"]
    assert (approval["decision"], approval["actor"]) == ("approve", "example-operator")
    assert approval["planFingerprint"] == paused.document()["planFingerprint"]
    assert len(scripted.requests) == 1
    assert paused.ledger.posts() == ["POST /reserve", "POST /ship"]


async def test_a_rejected_task_is_final_and_nothing_is_sent(paused: Shop) -> None:
    assert (await decide(paused, "reject")).stage == "rejected"
    async with paused.open() as runtime:
        assert (await run_pause(runtime)).stage == "rejected"
        assert (await run_checkpoint(runtime)).stage == "rejected"
    assert paused.ledger.requests() == []
    assert paused.ledger.stock() == 10


@pytest.mark.parametrize("first", ["approve", "reject"])
@pytest.mark.parametrize("second", ["approve", "reject"])
async def test_a_second_decision_is_refused(paused: Shop, first: Any, second: Any) -> None:
    await decide(paused, first)
    posts = paused.ledger.posts()
    await refused(paused, "ALREADY_DECIDED", decision=second, actor="bob")
    assert decisions(paused) == [
        {
            "from": "paused",
            "to": "approved" if first == "approve" else "rejected",
            "decision": first,
            "actor": "ann",
        }
    ]
    assert paused.ledger.posts() == posts


async def test_a_task_of_another_flow_takes_no_decision(shop: Shop) -> None:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")
    await refused(shop, "FLOW_MISMATCH")
    await refused(shop, "TASK_NOT_FOUND", task_id="other")


async def test_a_task_of_its_flow_that_is_not_paused_yet_takes_none(
    shop: Shop, scripted: ScriptedModel
) -> None:
    scripted.script(*[Reply(status=503)] * 3)
    async with shop.open() as runtime:
        with pytest.raises(FulfilError):
            await run_pause(runtime, request=TEXT)
    await refused(shop, "NOT_PAUSED")


@pytest.mark.parametrize("actor", ["", " ", "x" * 101, "ann\n", "\u202eann", "ann\x1b[2J"])
async def test_an_actor_that_is_none_decides_nothing(paused: Shop, actor: str) -> None:
    await refused(paused, "ACTOR_INVALID", actor=actor)


async def test_a_decision_may_name_the_revision_that_was_shown(paused: Shop) -> None:
    revision = paused.document()["revision"]
    async with paused.open() as runtime:
        await run_session(runtime)  # moves the task: an answer is a revision
    assert paused.document()["revision"] == revision + 1
    await refused(paused, "REVISION_CONFLICT", revision=revision)
    assert (await decide(paused, revision=revision + 1)).stage == "completed"


async def test_no_command_reserves_without_an_approval(paused: Shop) -> None:
    for enter in (run_checkpoint, run_pause, run_session):
        async with paused.open() as runtime:
            assert (await enter(runtime)).stage == "paused"
    assert paused.ledger.requests() == []


@pytest.mark.parametrize(
    "forged",
    [
        {"stage": "approved"},
        {"stage": "approved", "approval": ("approve", "0" * 64)},
        {"stage": "approved", "approval": ("reject", None)},
        {"stage": "prepared"},
        {"stage": "reserved"},
        {"stage": "uncertain"},
    ],
    ids=str,
)
async def test_a_stage_that_was_forged_is_no_approval(paused: Shop, forged: dict[str, Any]) -> None:
    def forge(document: dict[str, Any]) -> None:
        changes = dict(forged)
        if "approval" in changes:
            decision, plan = changes["approval"]
            changes["approval"] = {
                "decision": decision,
                "actor": "mallory",
                "planFingerprint": plan or document["planFingerprint"],
                "at": document["createdAt"],
            }
        document.update(changes)

    change_document(paused.directory, forge)
    for enter in (run_checkpoint, run_pause):
        async with paused.open() as runtime:
            if forged == {"stage": "prepared"}:
                assert (await enter(runtime)).stage == "paused"
            else:
                with pytest.raises(FulfilError) as error:
                    await enter(runtime)
                assert error.value.code == "PLAN_MISMATCH"
    assert paused.ledger.requests() == []


async def test_an_order_that_was_changed_while_it_waited_is_not_approved(paused: Shop) -> None:
    change_document(paused.directory, lambda document: document["order"].update(quantity=9))
    with pytest.raises(FulfilError) as error:
        await decide(paused)
    assert error.value.code == "PLAN_MISMATCH"
    assert paused.document()["approval"] is None
    assert paused.ledger.requests() == []


async def test_an_order_that_was_changed_after_the_approval_is_not_sent(
    paused: Shop, child: StartChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_process, "LOCK_TIMEOUT_SECONDS", 0.1)
    other = child(hold_ledger, paused.directory)
    other.hear()
    assert (await decide(paused)).stage == "approved"
    other.kill()
    change_document(paused.directory, lambda document: document["order"].update(quantity=9))
    for enter in (run_pause, run_checkpoint):
        async with paused.open() as runtime:
            with pytest.raises(FulfilError) as error:
                await enter(runtime)
        assert error.value.code == "PLAN_MISMATCH"
    assert paused.ledger.requests() == []


async def test_a_decision_is_saved_while_another_process_holds_the_ledger(
    paused: Shop, child: StartChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_process, "LOCK_TIMEOUT_SECONDS", 0.1)
    other = child(hold_ledger, paused.directory)
    other.hear()
    result = await decide(paused)
    assert result.stage == "approved"
    assert "decision is saved" in result.note
    assert paused.document()["approval"]["actor"] == "ann"
    async with paused.open() as runtime:
        with pytest.raises(TaskBusy):
            await run_pause(runtime)
    other.say("leave")
    assert other.hear() == "left"
    async with paused.open() as runtime:
        assert (await run_pause(runtime)).stage == "completed"


async def test_a_decision_needs_the_lease(paused: Shop, child: StartChild) -> None:
    other = child(hold_lease, paused.directory, "task", paused.clock.now())
    other.hear()
    await refused(paused, "TASK_BUSY")
    other.kill()
    assert (await decide(paused)).stage == "completed"
