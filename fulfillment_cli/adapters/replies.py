"""The body of a chat completion -> the JSON object that the model answered, or one coded error.

Accepted: a JSON object alone, in one code fence, or after a leading ``<think>`` block. Everything
else has a code of its own (contract, section 6); nothing is repaired.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from fulfillment_cli.domain.errors import AnswerRefused, ModelError
from fulfillment_cli.domain.order import JsonObject

_THINK = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_FENCE_OPENS = re.compile(r"```[A-Za-z]*[ \t]*\r?\n")


@dataclass(frozen=True, slots=True)
class Completion:
    """What a chat completion says, before its content is looked into.

    Attributes:
        usage: ``prompt_tokens``, ``completion_tokens``, ``total_tokens``; none where it is missing.
        refusal: Why there is no content to read; none where there is.
    """

    content: str = ""
    finish_reason: str | None = None
    usage: dict[str, int] | None = None
    refusal: AnswerRefused | None = None


def read_completion(body: bytes) -> Completion:
    """Take a response body apart.

    Raises:
        ModelError: ``MODEL_INVALID_RESPONSE``: it is not a chat completion.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise _invalid_response() from None
    if not isinstance(value, dict) or not isinstance(value.get("choices"), list):
        raise _invalid_response()
    usage = _usage(value.get("usage"))
    if not value["choices"]:
        return Completion(usage=usage, refusal=AnswerRefused(code="MODEL_NO_CHOICES"))
    choice = value["choices"][0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise _invalid_response()
    reason = choice.get("finish_reason")
    content = message.get("content")
    return Completion(
        content=content if isinstance(content, str) else "",
        finish_reason=reason if isinstance(reason, str) else None,
        usage=usage,
        refusal=_refusal(reason, message),
    )


def error_status(body: bytes) -> int | None:
    """The HTTP status that an error object in a 200 stands for, or none where it is not one.

    Gateways answer so; an error without a status of its own counts as 0.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = value.get("error") if isinstance(value, dict) else None
    if not error or value.get("choices"):
        return None
    code = error.get("code") if isinstance(error, dict) else None
    known = isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599
    return code if known else 0


def read_object(content: str) -> JsonObject:
    """The one JSON object that the content is.

    Raises:
        AnswerRefused: ``MODEL_EMPTY``, or ``MODEL_NOT_JSON`` for everything that is not exactly
            one object: prose around it, a second one, keys that are there twice, NaN.
    """
    text = _THINK.sub("", content, count=1) if _THINK.match(content) else content
    text = text.strip()
    if not text:
        raise AnswerRefused(code="MODEL_EMPTY")
    # The closing fence is the last thing there is, so backticks inside a string do not end it.
    if (fence := _FENCE_OPENS.match(text)) and text[fence.end() :].endswith("```"):
        text = text[fence.end() : -3]
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise AnswerRefused(code="MODEL_NOT_JSON") from None
    if not isinstance(value, dict):
        raise AnswerRefused(code="MODEL_NOT_JSON")
    return value


def _refusal(reason: Any, message: JsonObject) -> AnswerRefused | None:
    content = message.get("content")
    if reason == "length":
        return AnswerRefused(code="MODEL_TRUNCATED")
    if message.get("refusal") or reason == "content_filter":
        return AnswerRefused(code="MODEL_REFUSED")
    if message.get("tool_calls") or message.get("function_call"):
        return AnswerRefused(code="MODEL_TOOL_CALL")
    # Text in a reasoning field beside a null content is thinking aloud, not an answer.
    if not isinstance(content, str) or not content.strip():
        return AnswerRefused(code="MODEL_EMPTY")
    return None


def _usage(value: Any) -> dict[str, int] | None:
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    if not isinstance(value, dict) or any(type(value.get(name)) is not int for name in names):
        return None
    return {name: value[name] for name in names}


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is there twice")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _invalid_response() -> ModelError:
    return ModelError(code="MODEL_INVALID_RESPONSE")
