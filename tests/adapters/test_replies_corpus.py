"""Recorded replies of models, good and bad: each gives the right order or its own code.

``fixtures/replies/corpus.json`` holds one row per reply: what the server sends (``content`` or
``message`` of a completion, a whole ``body``, or ``raw`` text; ``first``: answers before it), and
what has to come of it (``order`` or ``code``; ``formats`` and ``usage`` where they matter).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.adapters.model import open_model
from fulfillment_cli.domain.errors import ModelError
from fulfillment_cli.domain.order import Order
from fulfillment_cli.settings import Settings
from tests.scripted_model import Reply, ScriptedModel, completion

CORPUS = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "replies" / "corpus.json").read_text("utf-8")
)
ORDER = {"sku": "SKU-731", "quantity": 2, "address": "Dock-North"}
ANSWER = json.dumps(ORDER)
MEGABYTE = 1_000_000
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

Config = Callable[..., dict[str, Any]]
Events = list[tuple[str, dict[str, Any]]]


def last_reply(row: dict[str, Any]) -> list[Reply]:
    """What the server sends at the end of the row."""
    if "raw" in row:
        return [Reply(row["raw"].encode())]
    if "body" in row:
        return [Reply(row["body"])]
    if "message" in row:
        body = completion(None, finish_reason=row.get("finish_reason", "stop"))
        body["choices"][0]["message"] = row["message"]
        return [Reply(body)]
    return [Reply(completion(row["content"]))] if "content" in row else []


async def outcome(config: Config, text: str) -> tuple[dict[str, Any], Events]:
    """The order or the code that comes of the scripted replies, in a run of one attempt."""
    events: Events = []
    settings = Settings.model_validate(config(max_attempts=1))
    async with open_model(settings, None, lambda _: None) as model:
        try:
            order = await model.extract(text, lambda kind, data: events.append((kind, data)))
        except ModelError as error:
            return {"code": error.code}, events
    assert Order.model_validate(order.to_json()) == order
    return {"order": order.to_json()}, events


@pytest.mark.parametrize("row", CORPUS["replies"], ids=lambda row: row["name"])
async def test_a_recorded_reply_gives_its_order_or_its_code(
    row: dict[str, Any], scripted: ScriptedModel, config: Config
) -> None:
    first = [Reply(reply["body"], status=reply["status"]) for reply in row.get("first", [])]
    sent = first + last_reply(row)
    scripted.script(*sent)

    result, events = await outcome(config, row.get("text", CORPUS["text"]))

    assert result == {name: row[name] for name in ("order", "code") if name in row}
    if "formats" in row:
        asked = [request.get("response_format", {}).get("type") for request in scripted.requests]
        assert asked == row["formats"]
    elif row.get("code") != "MODEL_UNAVAILABLE":  # 5xx: asked again without the format
        assert len(scripted.requests) == len(sent)
    answers = [data for kind, data in events if kind == "model-answer"]
    assert len(answers) == len(scripted.requests)
    if "usage" in row:
        assert answers[-1]["usage"] == row["usage"]
    elif "order" in row and "body" not in row:
        assert answers[-1]["usage"] == USAGE


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (" " * MEGABYTE + ANSWER, {"order": ORDER}),
        ("<think>" + "so " * (MEGABYTE // 3) + "</think>" + ANSWER, {"order": ORDER}),
        ("<think>" * (MEGABYTE // 7) + ANSWER, {"code": "MODEL_NOT_JSON"}),
        ("word " * (MEGABYTE // 5), {"code": "MODEL_NOT_JSON"}),
        ("```json\n" + " " * MEGABYTE + "x", {"code": "MODEL_NOT_JSON"}),
        ("```json\n" + "`" * MEGABYTE, {"code": "MODEL_NOT_JSON"}),
        ("```json" + "\n" * (MEGABYTE // 2) + ANSWER, {"code": "MODEL_NOT_JSON"}),
        ("```" + "a" * MEGABYTE, {"code": "MODEL_NOT_JSON"}),
        ("```json\n" + " " * (MEGABYTE // 2) + ANSWER + "\n```", {"order": ORDER}),
        ("[" * MEGABYTE, {"code": "MODEL_NOT_JSON"}),
        ('{"a":' * (MEGABYTE // 7), {"code": "MODEL_NOT_JSON"}),
        (ANSWER.replace("2", "2" * MEGABYTE), {"code": "MODEL_NOT_JSON"}),
        (json.dumps(ORDER | {"address": "x" * MEGABYTE}), {"code": "ORDER_INVALID"}),
        (json.dumps(ORDER | {"sku": "x" * MEGABYTE}), {"code": "ORDER_INVALID"}),
        (json.dumps(ORDER | {"x" * MEGABYTE: 1}), {"code": "ORDER_INVALID"}),
        ("x" * 1_100_000, {"code": "MODEL_RESPONSE_TOO_LARGE"}),
    ],
    ids=lambda value: f"{value[:12].strip()}…{value[-12:].strip()}" if type(value) is str else None,
)
async def test_an_answer_of_a_megabyte_is_read_or_refused(
    content: str, expected: dict[str, Any], scripted: ScriptedModel, config: Config
) -> None:
    # Shares a test's own time limit: a reader that is quadratic in the length does not end.
    scripted.script(Reply(completion(content)))
    result, _ = await outcome(config, CORPUS["text"])
    assert result == expected
    assert len(scripted.requests) == 1


async def test_a_refusal_of_a_megabyte_is_cut_before_it_is_sent_back(
    scripted: ScriptedModel, config: Config
) -> None:
    scripted.script(Reply(completion("word " * (MEGABYTE // 5))))
    settings = Settings.model_validate(config(max_attempts=2))
    async with open_model(settings, None, lambda _: None) as model:
        order = await model.extract(CORPUS["text"], lambda _, __: None)
    assert order.to_json() == ORDER
    assert len(json.dumps(scripted.requests[1])) < 20_000


def test_the_corpus_has_every_kind_and_no_row_twice() -> None:
    names = [row["name"] for row in CORPUS["replies"]]
    assert len(set(names)) == len(names)
    for row in CORPUS["replies"]:
        assert ("order" in row) != ("code" in row)
    listed = {
        *("fence", "backticks", "think", "prose", "several", "trailing", "string", "2.0", "true"),
        *("fullwidth", "Arabic-Indic", "superscript", "reasoning", "choices", "refusal", "length"),
        *("tool calls", "error object", "usage missing", "NUL", "bidi", "json_schema"),
    }
    assert [word for word in listed if not any(word in name for name in names)] == []
