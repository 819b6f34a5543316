"""A model's reply -> one JSON object -> a strict order or answer, or one coded refusal."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fulfillment_cli.domain.errors import AnswerRefused
from fulfillment_cli.domain.order import JsonObject, Order, SessionAnswer

MAX_REPLY_CHARACTERS = 65536
"""No order and no answer needs more."""

Parsed = TypeVar("Parsed", bound=BaseModel)

_THINKING = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def parse_order(content: str) -> Order:
    """Read an order, strictly (contract, section 6).

    Raises:
        AnswerRefused: ``MODEL_NOT_JSON``, ``ORDER_INVALID``, ``MODEL_EMPTY``.
    """
    return _validate(Order, content, "ORDER_INVALID")


def parse_answer(content: str) -> SessionAnswer:
    """Read a session answer, strictly.

    Raises:
        AnswerRefused: ``MODEL_NOT_JSON``, ``ANSWER_INVALID``, ``MODEL_EMPTY``.
    """
    return _validate(SessionAnswer, content, "ANSWER_INVALID")


def _validate(model: type[Parsed], content: str, code: str) -> Parsed:
    value = json_object(content)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the answer"
        raise AnswerRefused(f"Not accepted: {where}: {first['msg']}.", code=code) from None


def json_object(content: str) -> JsonObject:
    """The one JSON object that a reply is: plain, in one code fence, behind one <think> block.

    Raises:
        AnswerRefused: ``MODEL_EMPTY`` or ``MODEL_NOT_JSON``.
    """
    if len(content) > MAX_REPLY_CHARACTERS:
        raise AnswerRefused(code="MODEL_RESPONSE_TOO_LARGE")
    text = (
        _THINKING.sub("", content, count=1) if content.lstrip().startswith("<think>") else content
    )
    if not text.strip():
        raise AnswerRefused(code="MODEL_EMPTY")
    # The fence is greedy at its end: back-quotes inside a JSON string are not its end.
    if text.lstrip().startswith("```"):
        text = _unfenced(text)
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise AnswerRefused(code="MODEL_NOT_JSON") from None
    if not isinstance(value, dict):
        raise AnswerRefused(code="MODEL_NOT_JSON")
    return value


def _unfenced(text: str) -> str:
    match = re.fullmatch(
        r"\s*```[A-Za-z0-9_-]*[ \t]*\r?\n(?P<body>.*?)\r?\n[ \t]*```\s*", text, re.DOTALL
    ) or re.fullmatch(r"\s*```(?:json|JSON)?\s*(?P<body>\{.*\})\s*```\s*", text, re.DOTALL)
    if match is None:
        raise AnswerRefused(code="MODEL_NOT_JSON")
    return match.group("body")


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
