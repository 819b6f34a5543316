"""Text -> chat completion -> strict, grounded order; question and state -> session answer.

The only way to a model. Importing it loads neither openai nor httpx: a task that is past
extraction is continued without them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from fulfillment_cli.adapters.grounding import ground
from fulfillment_cli.adapters.model_record import Observe, Record
from fulfillment_cli.adapters.prompts import Question, SessionState, extraction, session
from fulfillment_cli.adapters.replies import read_object
from fulfillment_cli.domain.errors import AnswerRefused
from fulfillment_cli.domain.order import Order, SessionAnswer
from fulfillment_cli.domain.origin import origin_of
from fulfillment_cli.settings import LocalProvider, Settings

if TYPE_CHECKING:
    from fulfillment_cli.adapters.model_client import ChatClient

__all__ = ["Model", "Observe", "SessionState", "open_model", "read_answer", "read_order"]

T = TypeVar("T")


class Model:
    """One model, asked by one process.

    Attributes:
        provider: Its name in ``ditto.yaml``.
        model: The model's name as it is sent.
        origin: Where the requests go.
        weights_sha256: Hash of the local model's weights; none for a remote one.
        questions: Extractions and session answers asked so far.
    """

    def __init__(
        self,
        client: ChatClient,
        *,
        provider: str,
        model: str,
        origin: str,
        max_attempts: int,
        weights_sha256: str | None = None,
    ) -> None:
        self.provider = provider
        self.model = model
        self.origin = origin
        self.weights_sha256 = weights_sha256
        self.questions = 0
        self._client = client
        self._max_attempts = max_attempts

    async def extract(self, text: str, observe: Observe) -> Order:
        """The order that the request text states.

        Raises:
            AnswerRefused: No answer within ``model.max_attempts`` was valid and grounded.
            ModelUnavailable: No answer came (connection, timeout, 429, 5xx).
            ModelError: The endpoint refused the request, or is no chat-completions endpoint.
        """
        return await self._ask(extraction(text), lambda content: read_order(content, text), observe)

    async def answer(self, state: SessionState, question: str, observe: Observe) -> SessionAnswer:
        """Answer a question about a saved order; the facts are those of ``state``.

        Raises:
            AnswerRefused: ``ANSWER_INVALID`` or ``ANSWER_UNVERIFIED``, and as :meth:`extract`.
            ModelUnavailable, ModelError: As :meth:`extract`.
        """
        return await self._ask(
            session(state, question), lambda content: read_answer(content, state), observe
        )

    async def aclose(self) -> None:
        """Close the connections; the local model's process ends with :func:`open_model`."""
        await self._client.aclose()

    async def _ask(self, question: Question, read: Callable[[str], T], observe: Observe) -> T:
        """At most ``model.max_attempts`` answers; each refusal is named to the next."""
        self.questions += 1
        record = Record(question.kind, observe)
        while True:
            completion = await self._client.ask(question, record)
            try:
                if completion.refusal is not None:
                    raise completion.refusal
                return read(completion.content)
            except AnswerRefused as refusal:
                record.refused(refusal.code)
                if record.attempt >= self._max_attempts:
                    raise
                question = question.again(completion.content, refusal.message, refusal.address)
                record.attempt += 1


def read_order(content: str, text: str) -> Order:
    """A model's answer as an order that is valid and grounded in ``text``.

    Raises:
        AnswerRefused: ``ORDER_INVALID``, ``ORDER_NOT_GROUNDED``, ``MODEL_NOT_JSON`` or
            ``MODEL_EMPTY``; its message names what is wrong.
    """
    value = read_object(content)
    try:
        order = Order.model_validate(value)
    except ValidationError as error:
        raise AnswerRefused(_first(error, "order"), code="ORDER_INVALID") from None
    grounded = ground(text, sku=order.sku, quantity=order.quantity, address=order.address)
    if grounded.missing is not None:
        refused = AnswerRefused(
            f"The order is not in the text: {grounded.missing}.", code="ORDER_NOT_GROUNDED"
        )
        refused.address = grounded.address or None
        raise refused
    try:
        return Order(sku=order.sku, quantity=order.quantity, address=grounded.address)
    except ValidationError as error:  # the text's own run is longer than an address may be
        raise AnswerRefused(_first(error, "order"), code="ORDER_INVALID") from None


def read_answer(content: str, state: SessionState) -> SessionAnswer:
    """A model's answer as a session answer whose facts are those of ``state``.

    Raises:
        AnswerRefused: ``ANSWER_INVALID``, ``ANSWER_UNVERIFIED``, ``MODEL_NOT_JSON`` or
            ``MODEL_EMPTY``.
    """
    value = read_object(content)
    try:
        answer = SessionAnswer.model_validate(value)
    except ValidationError as error:
        raise AnswerRefused(_first(error, "session answer"), code="ANSWER_INVALID") from None
    wrong = [name for name, fact in state.facts.items() if getattr(answer, name) != fact]
    if wrong:
        raise AnswerRefused(
            f"The answer's {', '.join(wrong)} is not that of the saved state.",
            code="ANSWER_UNVERIFIED",
        )
    return answer


def _first(error: ValidationError, what: str) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"The {what} is not valid: {where or 'it'}: {first['msg']}."[:300]


@asynccontextmanager
async def open_model(
    settings: Settings, provider: str | None, progress: Callable[[str], None]
) -> AsyncIterator[Model]:
    """Open the named provider, or the configured one; a local model runs until the end of it.

    Raises:
        UsageError: The provider is unknown, has no key, is not allowed or not installed.
        ModelUnavailable: ``LOCAL_MODEL_FAILED``: the local model did not start.
    """
    chosen = settings.select(provider)
    async with AsyncExitStack() as stack:
        key: str | None
        weights = None
        if isinstance(chosen, LocalProvider):
            from fulfillment_cli.adapters.local_model import running_model

            local = await stack.enter_async_context(running_model(chosen, progress))
            base_url, key, weights = f"{local.origin}/v1", local.key, local.sha256
        else:
            base_url, key = chosen.base_url, settings.api_key(chosen)
        origin = origin_of(base_url)
        from fulfillment_cli.adapters.model_client import ChatClient

        client = ChatClient(
            base_url=base_url,
            model=chosen.model,
            key=key,
            origins=frozenset({origin}),
            limits=settings.model,
        )
        stack.push_async_callback(client.aclose)
        yield Model(
            client,
            provider=provider or settings.provider,
            model=chosen.model,
            origin=origin,
            max_attempts=settings.model.max_attempts,
            weights_sha256=weights,
        )
