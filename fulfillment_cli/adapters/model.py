"""Text -> chat completion -> a strict, grounded order, or a session answer.

Every request goes out once, is counted, and is recorded before it is sent. Nothing is retried
by the client library: whether to ask again is decided here, from what the answer was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fulfillment_cli.adapters.completions import content_of, facts_of
from fulfillment_cli.adapters.grounding import ground
from fulfillment_cli.adapters.model_transport import guarded_client
from fulfillment_cli.adapters.prompts import (
    Message,
    SessionState,
    answer_schema,
    correction,
    extraction_messages,
    order_schema,
    session_messages,
)
from fulfillment_cli.adapters.replies import parse_answer, parse_order
from fulfillment_cli.domain.errors import AnswerRefused, ModelError, ModelUnavailable
from fulfillment_cli.domain.order import JsonObject, Order, SessionAnswer
from fulfillment_cli.settings import LocalProvider, Settings, origin_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

Observe = Callable[[str, dict[str, Any]], None]
"""Told of each request before it is sent and of each answer: event kind and data.

Never told the order text, a key or anything else that a stranger should not read.
"""

Answer = TypeVar("Answer")

FORMATS = ("json_schema", "json_object", "text")
"""How an answer is asked for; a provider that does not know one is asked with the next."""


class Model:
    """One provider, for the time of one run.

    Attributes:
        provider, model: Their names in the configuration.
        origin: Where requests go.
        weights_sha256: Of a local model's weights; none for a remote one.
        questions: Questions asked so far, each of one or more requests.
    """

    def __init__(
        self,
        client: AsyncOpenAI,
        settings: Settings,
        *,
        provider: str,
        model: str,
        origin: str,
        weights_sha256: str | None = None,
    ) -> None:
        self.provider = provider
        self.model = model
        self.origin = origin
        self.weights_sha256 = weights_sha256
        self.questions = 0
        self._client = client
        self._limits = settings.model
        self._format = 0

    async def extract(self, text: str, observe: Observe) -> Order:
        """Ask for the order in a request text.

        Raises:
            AnswerRefused: No answer was acceptable; the code of the last one.
            ModelError: The endpoint refused; :class:`ModelUnavailable`: it did not answer.
        """

        def accept(content: str) -> Order:
            return ground(parse_order(content), text)

        return await self._ask(
            "extraction", extraction_messages(text), order_schema(text), accept, observe
        )

    async def answer(self, state: SessionState, question: str, observe: Observe) -> SessionAnswer:
        """Ask a question about the order and its stage.

        Raises:
            AnswerRefused: ``ANSWER_UNVERIFIED`` where the facts are not those of ``state``, and
                the other codes of :meth:`extract`.
            ModelError: See :meth:`extract`.
        """

        def accept(content: str) -> SessionAnswer:
            answer = parse_answer(content)
            for name in ("sku", "quantity", "stage"):
                if getattr(answer, name) != getattr(state, name):
                    raise AnswerRefused(
                        f"The answer's {name} is not the checkpoint's; nothing was saved.",
                        code="ANSWER_UNVERIFIED",
                    )
            return answer

        return await self._ask(
            "session", session_messages(state, question), answer_schema(), accept, observe
        )

    async def _ask(
        self,
        question: str,
        messages: list[Message],
        schema: JsonObject,
        accept: Callable[[str], Answer],
        observe: Observe,
    ) -> Answer:
        """One question: at most ``model.max_attempts`` answers, each refusal named to the next."""
        self.questions += 1
        requests = 0
        for attempt in range(1, self._limits.max_attempts + 1):
            content = ""
            while True:
                requests += 1
                data = {"question": question, "request": requests, "attempt": attempt}
                try:
                    content = await self._request(data, messages, schema, observe)
                    return accept(content)
                except FormatUnknown:
                    self._format += 1  # remembered for the run; comes on top of the attempts
                except AnswerRefused as error:
                    refused = error
                    break
            observe(
                "answer-refused", {"question": question, "attempt": attempt, "code": refused.code}
            )
            messages = [
                *messages,
                *([{"role": "assistant", "content": content[:2000]}] if content else []),
                correction(refused.message),
            ]
        raise refused

    async def _request(
        self, data: JsonObject, messages: list[Message], schema: JsonObject, observe: Observe
    ) -> str:
        """Send one request; the text of its answer."""
        asked = data | {"format": FORMATS[self._format], "model": self.model}
        observe("model-request", asked)
        started = time.monotonic()
        facts: JsonObject = {"usage": None, "finishReason": None}
        code = None
        try:
            async with asyncio.timeout(self._limits.timeout_seconds):
                completion = await self._complete(messages, schema)
            facts = facts_of(completion)
            return content_of(completion)
        except TimeoutError:
            code = "MODEL_UNAVAILABLE"
            raise ModelUnavailable(
                f"{self.origin} did not answer in {self._limits.timeout_seconds:g} s."
            ) from None
        except ModelError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = "INTERRUPTED"
            raise
        finally:
            seconds = round(time.monotonic() - started, 3)
            observe("model-answer", data | facts | {"code": code, "seconds": seconds})

    async def _complete(self, messages: list[Message], schema: JsonObject) -> ChatCompletion:
        import openai

        options: JsonObject = {}
        if FORMATS[self._format] == "json_schema":
            named = {"name": "answer", "schema": schema, "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": named}
        elif FORMATS[self._format] == "json_object":
            options["response_format"] = {"type": "json_object"}
        try:
            return await self._client.chat.completions.create(
                model=self.model,
                messages=messages,  # type: ignore[arg-type]
                temperature=0,
                max_tokens=self._limits.max_tokens,
                **options,
            )
        except openai.APIStatusError as error:
            raise self._refusal(error) from None
        except openai.APIResponseValidationError:
            raise ModelError(code="MODEL_INVALID_RESPONSE") from None
        except openai.APIConnectionError as error:
            # What our transport raised passes through the library as a cause.
            if isinstance(error.__cause__, ModelError):
                raise error.__cause__ from None
            raise ModelUnavailable(f"{self.origin} does not answer.") from None
        except (openai.OpenAIError, ValueError):
            raise ModelError(code="MODEL_INVALID_RESPONSE") from None

    def _refusal(self, error: Any) -> Exception:
        """What an HTTP error status means."""
        status: int = error.status_code
        if status in (401, 403):
            return ModelError(code="MODEL_UNAUTHORIZED")
        if status == 429:
            return ModelUnavailable(code="MODEL_RATE_LIMITED")
        if 300 <= status < 400:
            return ModelError(code="MODEL_REDIRECTED")
        # Providers say in many ways that they do not know a response format; asking with the
        # next one tells whether it was that.
        if status in (400, 422, 500, 501) and self._format < len(FORMATS) - 1:
            return FormatUnknown()
        if status >= 500 or status == 408:
            return ModelUnavailable(f"{self.origin} answered {status}.")
        return ModelError(f"{self.origin} refused the request ({status}).")


class FormatUnknown(Exception):
    """The provider may not know the response format that it was asked with."""


@asynccontextmanager
async def open_model(
    settings: Settings, provider: str | None, progress: Callable[[str], None]
) -> AsyncIterator[Model]:
    """Open a provider; a local one is started, and ends with the context.

    Args:
        provider: Its name; the configured one for none.
        progress: Told in short lines what is being done.

    Raises:
        UsageError: The provider is not usable as it is configured; nothing was sent.
        ModelUnavailable: ``LOCAL_MODEL_FAILED``.
    """
    name = provider or settings.provider
    chosen = settings.select(name)
    async with AsyncExitStack() as stack:
        sha256 = None
        if isinstance(chosen, LocalProvider):
            from fulfillment_cli.adapters.local_model import running_model

            running = await stack.enter_async_context(running_model(chosen, progress))
            base_url, key, sha256 = f"{running.origin}/v1", running.key, running.sha256
            allowed: tuple[str, ...] = (origin_of(running.origin),)
        else:
            base_url, key = chosen.base_url, settings.api_key(chosen) or "none"
            allowed = settings.sandbox.network
        http = await stack.enter_async_context(
            guarded_client(allowed, settings.model.timeout_seconds)
        )
        import openai

        client = openai.AsyncOpenAI(
            api_key=key, base_url=base_url, max_retries=0, http_client=cast("Any", http)
        )
        yield Model(
            client,
            settings,
            provider=name,
            model=chosen.model,
            origin=origin_of(base_url),
            weights_sha256=sha256,
        )
