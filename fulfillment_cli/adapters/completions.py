"""What a chat completion is read for: its text, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fulfillment_cli.domain.errors import AnswerRefused, ModelError
from fulfillment_cli.domain.order import JsonObject

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion


def facts_of(completion: ChatCompletion) -> JsonObject:
    """Token usage and finish reason, where the provider tells them."""
    usage = getattr(completion, "usage", None)
    choices = getattr(completion, "choices", None) or [None]
    counts = (
        {
            name: count
            for name in ("prompt_tokens", "completion_tokens", "total_tokens")
            if type(count := getattr(usage, name, None)) is int
        }
        if usage is not None
        else None
    )
    return {"usage": counts, "finishReason": getattr(choices[0], "finish_reason", None)}


def content_of(completion: Any) -> str:
    """The text of the only answer that counts: the first choice's content, whole."""
    choices = getattr(completion, "choices", None)
    if getattr(completion, "error", None) is not None and not choices:
        raise ModelError(code="MODEL_INVALID_RESPONSE")
    if not isinstance(choices, list):
        raise ModelError(code="MODEL_INVALID_RESPONSE")
    if not choices:
        raise AnswerRefused(code="MODEL_NO_CHOICES")
    choice = choices[0]
    message = getattr(choice, "message", None)
    if message is None:
        raise ModelError(code="MODEL_INVALID_RESPONSE")
    if choice.finish_reason == "length":
        raise AnswerRefused(code="MODEL_TRUNCATED")
    if getattr(message, "refusal", None) or choice.finish_reason == "content_filter":
        raise AnswerRefused(code="MODEL_REFUSED")
    if getattr(message, "tool_calls", None) or getattr(message, "function_call", None):
        raise AnswerRefused(code="MODEL_TOOL_CALL")
    content = getattr(message, "content", None)
    if not isinstance(content, str) or not content.strip():
        raise AnswerRefused(code="MODEL_EMPTY")
    return content
