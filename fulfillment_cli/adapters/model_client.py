"""One question -> HTTP requests of the chat-completions protocol -> one completion.

The SDK's own retries are off: each request is made here, counted and observed. Imports openai,
so it is itself imported only by the command that asks a model.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import openai

from fulfillment_cli.adapters.model_record import Record
from fulfillment_cli.adapters.model_transport import http_client
from fulfillment_cli.adapters.prompts import Question
from fulfillment_cli.adapters.replies import Completion, error_status, read_completion
from fulfillment_cli.domain.errors import FulfilError, ModelError, ModelUnavailable
from fulfillment_cli.domain.order import printable
from fulfillment_cli.settings import ModelSettings

_FORMATS = ("json_schema", "json_object", "text")
_FORMAT_REFUSALS = (400, 422, 500, 501)
"""What servers were seen to answer to a ``response_format`` that they do not know."""


class ChatClient:
    """Asks one model at one address."""

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        key: str | None,
        origins: frozenset[str],
        limits: ModelSettings,
    ) -> None:
        self._model = model
        self._key = key
        self._limits = limits
        self._format = 0
        self._http = http_client(origins, key, limits.timeout_seconds)
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key="set-by-the-transport",
            http_client=cast("Any", self._http),  # takes an httpx client too, untyped
            max_retries=0,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(self, question: Question, record: Record) -> Completion:
        """Get one completion, with the strictest response format that the server knows.

        Args:
            record: Is told of every request and answer, and counts them.

        Raises:
            ModelUnavailable, ModelError, UsageError: No completion came; the code says why.
        """
        index = self._format
        while True:
            status, body = await self._recorded(question, _FORMATS[index], record)
            if status in _FORMAT_REFUSALS and index + 1 < len(_FORMATS):
                index += 1
                continue
            if status != 200:
                raise self._error(status, body)
            self._format = index
            return read_completion(body)

    async def _recorded(
        self, question: Question, format_: str, record: Record
    ) -> tuple[int, bytes]:
        record.asked(format=format_, model=self._model)
        started = time.monotonic()
        answered: dict[str, Any] = {"code": None, "usage": None, "finishReason": None}
        try:
            status, body = await self._send(question, format_)
            answered |= self._told(status, body)
            return status, body
        except FulfilError as error:
            answered["code"] = error.code
            raise
        except asyncio.CancelledError:
            answered["code"] = "INTERRUPTED"
            raise
        finally:
            record.answered(seconds=round(time.monotonic() - started, 3), **answered)

    def _told(self, status: int, body: bytes) -> dict[str, Any]:
        """What the answer says about itself, for the record."""
        if status != 200:
            return {"code": self._error(status, body).code}
        try:
            completion = read_completion(body)
        except ModelError as error:
            return {"code": error.code}
        code = completion.refusal.code if completion.refusal else None
        return {"code": code, "usage": completion.usage, "finishReason": completion.finish_reason}

    async def _send(self, question: Question, format_: str) -> tuple[int, bytes]:
        """One request; the whole of it, connecting and reading included, within the deadline."""
        try:
            async with asyncio.timeout(self._limits.timeout_seconds):
                raw = await self._client.chat.completions.with_raw_response.create(
                    **self._body(question, format_)
                )
        except openai.APIStatusError as error:
            return error.status_code, error.response.content
        except (TimeoutError, openai.APITimeoutError):
            seconds = f"{self._limits.timeout_seconds:g}"
            raise ModelUnavailable(f"The model did not answer within {seconds} s.") from None
        except openai.OpenAIError as error:
            raise _ours(error) or ModelUnavailable() from None
        body = raw.http_response.content
        status = error_status(body)
        return (raw.status_code if status is None else status), body

    def _body(self, question: Question, format_: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(question.messages),
            "temperature": 0,
            "max_tokens": self._limits.max_tokens,
        }
        if format_ == "json_schema":
            schema = {"name": question.kind, "strict": True, "schema": question.schema}
            body["response_format"] = {"type": format_, "json_schema": schema}
        elif format_ == "json_object":
            body["response_format"] = {"type": format_}
        return body

    def _error(self, status: int, body: bytes) -> ModelError:
        if status in (401, 403):
            return ModelError(code="MODEL_UNAUTHORIZED")
        if status == 429:
            return ModelUnavailable(code="MODEL_RATE_LIMITED")
        if status >= 500 or status == 408:
            return ModelUnavailable(f"The model endpoint answered {status}.")
        if 300 <= status < 400:
            return ModelError(code="MODEL_REDIRECTED")
        if status < 400:
            return ModelError(code="MODEL_INVALID_RESPONSE")
        return ModelError(
            f"The model endpoint refused the request ({status}{self._reason(body)}).",
            code="MODEL_REQUEST_REJECTED",
        )

    def _reason(self, body: bytes) -> str:
        """The server's own words in one short line, without the key."""
        text = body[:2000].decode("utf-8", "replace")
        if self._key:
            text = text.replace(self._key, "***")
        return f": {printable(' '.join(text.split())[:200])}" if text.strip() else ""


def _ours(error: BaseException | None) -> FulfilError | None:
    """The error that our transport raised, out of the SDK's wrapping."""
    while error is not None and not isinstance(error, FulfilError):
        error = error.__cause__ or error.__context__
    return error
