"""What the model is asked and what is taken of its answers; see also test_model_endpoint."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from fulfillment_cli.adapters.model import SessionState, open_model
from fulfillment_cli.domain.errors import (
    AnswerRefused,
)
from fulfillment_cli.domain.order import Order
from fulfillment_cli.settings import Settings
from tests.scripted_model import Reply, Request, ScriptedModel, completion

TEXT = "Fulfillment request. SKU: SKU-731; quantity: 2; delivery address: Dock-North."
ORDER = Order(sku="SKU-731", quantity=2, address="Dock-North")
WRONG = completion(json.dumps({"sku": "731", "quantity": 2, "address": "Dock-North"}))
STATE = SessionState(sku="SKU-731", quantity=2, stage="reserved")

Events = list[tuple[str, dict[str, Any]]]


def settings_of(scripted: ScriptedModel, *, key: str | None = None, **model: Any) -> Settings:
    values = json.loads(scripted.config(**model))
    if key is not None:
        values["providers"]["scripted"]["api_key_env"] = "SCRIPTED_KEY"
        values["env"] = {"SCRIPTED_KEY": key}
    return Settings.model_validate(values)


async def extract(settings: Settings, events: Events | None = None) -> Order:
    kept: Events = [] if events is None else events
    async with open_model(settings, None, lambda line: None) as model:
        return await model.extract(TEXT, lambda kind, data: kept.append((kind, data)))


def last_user(request: Request) -> str:
    return str(request["messages"][-1]["content"])


async def test_the_schema_holds_what_stands_in_the_text(scripted: ScriptedModel) -> None:
    await extract(settings_of(scripted))
    schema = scripted.requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["quantity"]["enum"] == [2]
    assert "SKU-731" in schema["properties"]["sku"]["enum"]
    assert "731" not in schema["properties"]["sku"]["enum"]
    assert schema["additionalProperties"] is False


async def test_a_text_without_candidates_is_asked_without_an_enum(scripted: ScriptedModel) -> None:
    scripted.script(*[Reply(WRONG)] * 2)
    async with open_model(settings_of(scripted), None, lambda line: None) as model:
        with pytest.raises(AnswerRefused) as caught:
            await model.extract("こんにちは。", lambda kind, data: None)
    assert caught.value.code == "ORDER_NOT_GROUNDED"
    properties = scripted.requests[0]["response_format"]["json_schema"]["schema"]["properties"]
    assert not any("enum" in schema for schema in properties.values())


async def test_the_code_is_that_of_the_last_answer(scripted: ScriptedModel) -> None:
    scripted.script(Reply(WRONG), Reply(completion("No.\ud800")), Reply(completion("{}")))
    with pytest.raises(AnswerRefused) as caught:
        await extract(settings_of(scripted, max_attempts=3))
    assert caught.value.code == "ORDER_INVALID"


async def test_an_answer_that_cannot_be_sent_back_does_not_stop_the_next(
    scripted: ScriptedModel,
) -> None:
    scripted.script(Reply(completion("\ud800 \x00 no JSON")))
    assert await extract(settings_of(scripted)) == ORDER


def test_importing_it_loads_no_client() -> None:
    loaded = "sys.modules.keys() & {'openai', 'httpx', 'httpx2', 'xllamacpp'}"
    program = f"import sys, fulfillment_cli.adapters.model; print({loaded})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


async def test_a_wrong_session_answer_may_be_followed_by_a_right_one(
    scripted: ScriptedModel,
) -> None:
    scripted.script(Reply(completion(json.dumps(STATE.facts | {"stage": "paused"}))))
    async with open_model(settings_of(scripted), None, lambda line: None) as model:
        answer = await model.answer(STATE, "Where\nis it?", lambda kind, data: None)
    assert answer.stage == "reserved"
    assert "Question: Where is it?" in scripted.requests[0]["messages"][-1]["content"]


async def test_many_questions_at_once(scripted: ScriptedModel) -> None:
    async with open_model(settings_of(scripted), None, lambda line: None) as model:
        asked = (model.extract(TEXT, lambda kind, data: None) for _ in range(10))
        orders = await asyncio.gather(*asked)
        assert model.questions == 10
    assert orders == [ORDER] * 10
