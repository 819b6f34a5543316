"""A session: prepares, answers from the checkpoint, and changes nothing but what was said."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fulfillment_cli import FulfilError, run_checkpoint, run_pause, run_retry, run_session
from fulfillment_cli.domain.errors import AnswerRefused, UsageError
from tests.scripted_model import Reply, ScriptedModel, completion
from tests.support import TEXT, Child, Shop, change_document, hold_lease

RIGHT = {"sku": "SKU-1", "quantity": 2, "stage": "prepared"}


async def prepare(shop: Shop) -> None:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")


async def ask(shop: Shop, **arguments: Any) -> Any:
    async with shop.open() as runtime:
        return await run_session(runtime, **arguments)


async def test_an_answer_changes_the_context_and_the_revision_and_nothing_else(shop: Shop) -> None:
    await prepare(shop)
    before = shop.document()
    result = await ask(shop, question="What is ordered?")
    assert result.answer is not None
    assert result.answer.to_json() == RIGHT
    assert result.questions == 1
    after = shop.document()
    assert after.pop("revision") == before.pop("revision") + 1
    assert after.pop("context") == [
        *before.pop("context"),
        {"kind": "question", "content": "What is ordered?"},
        {"kind": "answer", "content": RIGHT},
    ]
    for document in (before, after):
        del document["updatedAt"]
    assert after == before
    assert shop.ledger.requests() == []


async def test_the_context_is_restored_in_a_new_process(
    shop: Shop, scripted: ScriptedModel
) -> None:
    await prepare(shop)
    await ask(shop, question="First question?")
    await ask(shop, question="Second question?")
    last = scripted.requests[-1]["messages"][-1]["content"]
    assert "Second question?" in last
    assert json.dumps(RIGHT) in last
    assert [entry["kind"] for entry in shop.document()["context"]] == [
        *("request", "order"),
        *("question", "answer") * 2,
    ]


@pytest.mark.parametrize("stage", ["reserved", "completed", "paused", "failed"])
async def test_it_answers_at_any_stage_that_has_an_order(shop: Shop, stage: str) -> None:
    async with shop.open(stock={"SKU-1": 0 if stage == "failed" else 10}) as runtime:
        run: Callable[..., Any] = {"reserved": run_checkpoint, "paused": run_pause}.get(
            stage, run_retry
        )
        assert (await run(runtime, request=TEXT)).stage == stage
    posts = shop.ledger.posts()
    result = await ask(shop)
    assert result.answer.stage == result.stage == stage
    assert shop.ledger.posts() == posts


async def test_without_an_order_there_is_nothing_to_ask_about(
    shop: Shop, scripted: ScriptedModel
) -> None:
    async with shop.open() as runtime:
        await run_retry(runtime, request=TEXT, max_attempts=1)
    before = shop.document()
    with pytest.raises(UsageError) as error:
        await ask(shop)
    assert error.value.code == "NO_ORDER"
    assert shop.document() == before
    assert scripted.requests == []


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"sku": "SKU-2"}, "ANSWER_UNVERIFIED"),
        ({"quantity": 3}, "ANSWER_UNVERIFIED"),
        ({"stage": "completed"}, "ANSWER_UNVERIFIED"),
        ({"stage": "Prepared"}, "ANSWER_UNVERIFIED"),
        ({"quantity": "2"}, "ANSWER_INVALID"),
        ({"quantity": 2.0}, "ANSWER_INVALID"),
        ({"more": 1}, "ANSWER_INVALID"),
        ({"sku": None}, "ANSWER_INVALID"),
    ],
    ids=str,
)
async def test_a_wrong_answer_is_refused_and_nothing_is_saved_of_it(
    shop: Shop, scripted: ScriptedModel, wrong: dict[str, Any], code: str
) -> None:
    await prepare(shop)
    before = shop.document()
    scripted.script(*[Reply(completion(json.dumps(RIGHT | wrong)))] * 2)
    with pytest.raises(AnswerRefused) as error:
        await ask(shop)
    assert error.value.code == code
    assert shop.document() == before
    assert "answered" not in shop.events()


@pytest.mark.parametrize("question", ["", " \n", "x" * 1001, "what \udcff"], ids=ascii)
async def test_a_question_that_is_none_asks_nobody(
    shop: Shop, scripted: ScriptedModel, question: str
) -> None:
    await prepare(shop)
    asked = len(scripted.requests)
    with pytest.raises(UsageError) as error:
        await ask(shop, question=question)
    assert error.value.code == "USAGE"
    assert len(scripted.requests) == asked


async def test_a_question_may_have_1000_characters(shop: Shop) -> None:
    await prepare(shop)
    assert (await ask(shop, question="é" * 1000)).answer is not None


async def test_a_task_that_another_process_runs_is_busy(
    shop: Shop, child: Callable[..., Child], scripted: ScriptedModel
) -> None:
    await prepare(shop)
    other = child(hold_lease, shop.directory, "task", shop.clock.now())
    other.hear()
    before, asked = shop.document(), len(scripted.requests)
    with pytest.raises(FulfilError) as error:
        await ask(shop)
    assert error.value.code == "TASK_BUSY"
    assert shop.document() == before
    assert len(scripted.requests) == asked


async def test_a_changed_order_is_not_told_of(shop: Shop, scripted: ScriptedModel) -> None:
    await prepare(shop)
    change_document(shop.directory, lambda document: document["order"].update(quantity=9))
    asked = len(scripted.requests)
    with pytest.raises(FulfilError) as error:
        await ask(shop)
    assert error.value.code == "PLAN_MISMATCH"
    assert len(scripted.requests) == asked


async def test_a_session_of_a_queued_task_prepares_it_and_no_more(
    shop: Shop, scripted: ScriptedModel
) -> None:
    scripted.script(*[Reply(status=503)] * 3)
    async with shop.open() as runtime:
        with pytest.raises(FulfilError):
            await run_checkpoint(runtime, request=TEXT)
    scripted.script()
    result = await ask(shop)
    assert (result.stage, result.questions) == ("prepared", 2)
    assert shop.document()["goal"] == "reserved"
    assert shop.ledger.requests() == []
