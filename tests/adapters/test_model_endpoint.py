"""A model's endpoint that misbehaves, and what leaves for it: over real HTTP, all of it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fulfillment_cli.adapters.model import Model, SessionState, open_model
from fulfillment_cli.domain.errors import (
    AnswerRefused,
    FulfilError,
    ModelError,
    ModelUnavailable,
    UsageError,
)
from fulfillment_cli.settings import Settings
from tests.scripted_model import Reply, ScriptedModel, completion
from tests.support import ORDER, TEXT, origin_of, read_message, serving, until_async

KEY = "sk-never-to-be-seen-41c7"
SHORT = 0.2
"""A deadline in seconds for servers that never answer; settings take no less than 1."""

GOOD = json.dumps(ORDER.to_json())
STATE = SessionState(sku="SKU-1", quantity=2, stage="prepared")

Config = Callable[..., dict[str, Any]]


class Asker:
    """A model that is asked, with all that was observed."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.events: list[tuple[str, dict[str, Any]]] = []

    def observe(self, kind: str, data: dict[str, Any]) -> None:
        self.events.append((kind, data))

    async def ask(self) -> str:
        """``ok``, or the code of the error."""
        try:
            assert await self.model.extract(TEXT, self.observe) == ORDER
        except FulfilError as error:
            assert KEY not in error.message + error.hint + str(error) + repr(error)
            assert error.__cause__ is None
            return error.code
        return "ok"

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [data for name, data in self.events if name == kind]


@asynccontextmanager
async def asking(values: dict[str, Any], seconds: float | None = None) -> AsyncIterator[Asker]:
    settings = Settings.model_validate(values)
    if seconds is not None:
        limits = settings.model.model_copy(update={"timeout_seconds": seconds})
        settings = settings.model_copy(update={"model": limits})
    async with open_model(settings, None, lambda _: None) as model:
        asker = Asker(model)
        yield asker
        assert KEY not in json.dumps(asker.events)
        assert "Dock-North" not in json.dumps(asker.events)


def at(origin: str, *, key: bool = False, allowed: tuple[str, ...] | None = None) -> dict[str, Any]:
    """A configuration whose only provider is there."""
    provider = {"kind": "openai-compatible", "base_url": f"{origin}/v1", "model": "scripted"}
    return {
        "provider": "there",
        "providers": {"there": provider | ({"api_key_env": "THE_KEY"} if key else {})},
        "model": {"max_attempts": 1},
        "sandbox": {"network": (origin,) if allowed is None else allowed},
        "env": {"THE_KEY": KEY},
    }


# -- no answer, or not one of ours ---------------------------------------------------------------


async def test_an_endpoint_that_is_down_is_unavailable() -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else can be there
        taken.bind(("127.0.0.1", 0))
        async with asking(at(f"http://127.0.0.1:{taken.getsockname()[1]}")) as asker:
            with pytest.raises(ModelUnavailable) as error:
                await asker.model.extract(TEXT, asker.observe)
    assert error.value.code == "MODEL_UNAVAILABLE"
    assert error.value.exit_status == 4
    assert [kind for kind, _ in asker.events] == ["model-request", "model-answer"]
    assert asker.of_kind("model-answer")[0]["code"] == "MODEL_UNAVAILABLE"


async def test_a_name_that_does_not_resolve_is_unavailable() -> None:
    async with asking(at("http://fulfil.invalid:81")) as asker:
        assert await asker.ask() == "MODEL_UNAVAILABLE"


async def test_a_slow_endpoint_is_left_at_the_deadline(
    scripted: ScriptedModel, config: Config
) -> None:
    scripted.script(Reply(completion(GOOD), delay=10))
    async with asking(config(max_attempts=3), SHORT) as asker:
        with pytest.raises(ModelUnavailable, match=r"within 0\.2 s"):
            await asker.model.extract(TEXT, asker.observe)
    assert len(scripted.requests) == 1  # no answer is no reason to ask again


async def test_an_endpoint_that_drips_is_left_at_the_deadline() -> None:
    """A byte now and then keeps each read short of its timeout, not the whole request."""
    dripped = 0

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dripped
        await read_message(reader)
        body = b" " * 250 + json.dumps(completion(GOOD)).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for byte in body:  # a right answer, for a client that waits for its end
            writer.write(bytes([byte]))
            await writer.drain()
            dripped += 1
            await asyncio.sleep(SHORT / 10)

    async with serving(drip) as server, asking(at(origin_of(server)), SHORT) as asker:
        assert await asker.ask() == "MODEL_UNAVAILABLE"
    assert dripped > 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00\xff" * 50,
    ],
    ids=["closed", "half a head", "half a body", "a bad chunk", "not HTTP", "noise"],
)
async def test_a_broken_answer_is_unavailable(answer: bytes) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_message(reader)
        writer.write(answer)

    async with serving(broken) as server, asking(at(origin_of(server))) as asker:
        assert await asker.ask() == "MODEL_UNAVAILABLE"


@pytest.mark.parametrize(
    ("status", "code", "exit_status", "requests"),
    [
        (401, "MODEL_UNAUTHORIZED", 1, 1),
        (403, "MODEL_UNAUTHORIZED", 1, 1),
        (404, "MODEL_REQUEST_REJECTED", 1, 1),
        (408, "MODEL_UNAVAILABLE", 4, 1),
        (409, "MODEL_REQUEST_REJECTED", 1, 1),
        (413, "MODEL_REQUEST_REJECTED", 1, 1),
        (429, "MODEL_RATE_LIMITED", 4, 1),
        (502, "MODEL_UNAVAILABLE", 4, 1),
        (503, "MODEL_UNAVAILABLE", 4, 1),
        (504, "MODEL_UNAVAILABLE", 4, 1),
        (400, "MODEL_REQUEST_REJECTED", 1, 3),  # may mean the format: asked without it
        (422, "MODEL_REQUEST_REJECTED", 1, 3),
        (500, "MODEL_UNAVAILABLE", 4, 3),
        (501, "MODEL_UNAVAILABLE", 4, 3),
    ],
)
async def test_each_status_has_its_code(
    status: int,
    code: str,
    exit_status: int,
    requests: int,
    scripted: ScriptedModel,
    config: Config,
) -> None:
    # Retry-After and the like are for clients that retry; this one does not.
    headers = {"Retry-After": "0", "x-should-retry": "true"}
    reply = Reply({"error": {"message": "no"}}, status=status, headers=headers)
    scripted.script(then=lambda _: reply)
    async with asking(config(max_attempts=3)) as asker:
        with pytest.raises(ModelError) as error:
            await asker.model.extract(TEXT, asker.observe)
    assert (error.value.code, error.value.exit_status) == (code, exit_status)
    assert len(scripted.requests) == requests
    assert [data["code"] for data in asker.of_kind("model-answer")] == [code] * requests


async def test_a_page_of_html_is_no_completion(scripted: ScriptedModel, config: Config) -> None:
    page = b"<!doctype html><title>Sign in</title>"
    scripted.script(Reply(page, headers={"X-Served": "hotel"}))
    async with asking(config(max_attempts=3)) as asker:
        assert await asker.ask() == "MODEL_INVALID_RESPONSE"
    assert len(scripted.requests) == 1


async def test_a_compressed_body_is_not_unpacked(scripted: ScriptedModel, config: Config) -> None:
    scripted.script(Reply(completion(GOOD), headers={"Content-Encoding": "gzip"}))
    async with asking(config()) as asker:
        assert await asker.ask() == "MODEL_INVALID_RESPONSE"


@pytest.mark.parametrize("status", [200, 401])
async def test_a_body_without_end_is_cut_off(
    status: int, scripted: ScriptedModel, config: Config
) -> None:
    scripted.script(Reply(b" " * 65536, status=status, endless=True))
    async with asking(config()) as asker:
        assert await asker.ask() == "MODEL_RESPONSE_TOO_LARGE"
        assert await asker.ask() == "ok"  # and the client is still good


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(
    status: int, scripted: ScriptedModel, config: Config
) -> None:
    with ScriptedModel() as elsewhere:
        target = {"Location": f"{elsewhere.base_url}/chat/completions"}
        scripted.script(Reply({}, status=status, headers=target))
        # Not even to an origin that is allowed.
        async with asking(config(elsewhere.origin)) as asker:
            assert await asker.ask() == "MODEL_REDIRECTED"
        assert elsewhere.requests == []
    assert len(scripted.requests) == 1


# -- what leaves, and where to -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_a_proxy_variable_is_not_used(
    name: str, scripted: ScriptedModel, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(other, raising=False)
    with ScriptedModel() as proxy:
        monkeypatch.setenv(name, proxy.origin)
        async with asking(config()) as asker:
            assert await asker.ask() == "ok"
        assert proxy.requests == []
    assert len(scripted.requests) == 1


async def test_an_origin_outside_the_sandbox_gets_nothing(scripted: ScriptedModel) -> None:
    values = at(scripted.origin, allowed=("http://127.0.0.1:1", "https://api.openai.com"))
    with pytest.raises(UsageError) as error:
        async with asking(values):
            pytest.fail("it was opened")
    assert error.value.code == "NETWORK_NOT_ALLOWED"
    assert scripted.origin in error.value.message
    assert scripted.requests == []


async def test_the_transport_refuses_a_foreign_origin_by_itself(scripted: ScriptedModel) -> None:
    """The last word stands at the socket, whatever the layers above it were told."""
    from fulfillment_cli.adapters.model_transport import http_client

    async with http_client(frozenset({"http://127.0.0.1:1"}), KEY, 5) as client:
        with pytest.raises(UsageError) as error:
            await client.post(f"{scripted.base_url}/chat/completions", json={})
    assert error.value.code == "NETWORK_NOT_ALLOWED"
    assert KEY not in error.value.message
    assert scripted.requests == []


async def test_the_key_leaves_in_its_header_only(
    scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the server throws it back at us."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-another")
    said = {"error": {"message": f"Incorrect API key provided: {KEY}."}}
    codes = {404: "MODEL_REQUEST_REJECTED", 401: "MODEL_UNAUTHORIZED", 503: "MODEL_UNAVAILABLE"}
    scripted.script(*(Reply(said, status=status) for status in codes))
    async with asking(at(scripted.origin, key=True)) as asker:
        for code in codes.values():
            assert await asker.ask() == code  # and looks for the key in the error
        scripted.script(Reply(completion(KEY)))
        assert await asker.ask() == "MODEL_NOT_JSON"
    assert set(scripted.authorizations) == {f"Bearer {KEY}"}
    assert KEY not in json.dumps(scripted.requests)


async def test_without_a_key_no_authorization_is_sent(
    scripted: ScriptedModel, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another")
    async with asking(config()) as asker:
        assert await asker.ask() == "ok"
    assert scripted.authorizations == [""]


async def test_the_head_of_a_request_holds_nothing_but_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-another")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-another")
    heads: list[bytes] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_message(reader))
        body = json.dumps(completion(GOOD)).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with serving(keep) as server, asking(at(origin_of(server), key=True)) as asker:
        assert await asker.ask() == "ok"
    (message,) = heads
    lines = message.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert lines[0] == b"POST /v1/chat/completions HTTP/1.1"
    names = {line.partition(b":")[0].lower() for line in lines[1:]}
    assert names == {
        *(b"host", b"content-type", b"content-length", b"authorization"),
        *(b"accept", b"accept-encoding", b"user-agent"),
    }
    assert b"another" not in message


# -- attempts and formats ------------------------------------------------------------------------


async def test_the_second_request_names_what_was_wrong(
    scripted: ScriptedModel, config: Config
) -> None:
    wrong = json.dumps(ORDER.to_json() | {"quantity": 7})
    scripted.script(Reply(completion(wrong)))
    async with asking(config(max_attempts=2)) as asker:
        assert await asker.ask() == "ok"
    first, second = (request["messages"] for request in scripted.requests)
    assert second[: len(first)] == first
    said, correction = second[len(first) :]
    assert said == {"role": "assistant", "content": wrong}
    assert correction["role"] == "user"
    assert "quantity 7 does not stand in the text" in correction["content"]
    assert [(kind, data["attempt"]) for kind, data in asker.events] == [
        ("model-request", 1),
        ("model-answer", 1),
        ("answer-refused", 1),
        ("model-request", 2),
        ("model-answer", 2),
    ]
    assert asker.of_kind("answer-refused")[0]["code"] == "ORDER_NOT_GROUNDED"
    assert asker.model.questions == 1


async def test_the_second_request_offers_only_what_stands_apart_from_a_known_address(
    scripted: ScriptedModel, config: Config
) -> None:
    text = "Please send 4 units of LAMP-2040 to 12 Harbour Road, Leeds LS10 1AB by Friday."
    order = {"sku": "LAMP-2040", "quantity": 4, "address": "12 Harbour Road, Leeds LS10 1AB"}
    scripted.script(
        Reply(completion(json.dumps(order | {"sku": "LS10"}))), Reply(completion(json.dumps(order)))
    )
    async with asking(config(max_attempts=2)) as asker:
        assert (await asker.model.extract(text, asker.observe)).to_json() == order
    first, second = (
        request["response_format"]["json_schema"]["schema"]["properties"]
        for request in scripted.requests
    )
    assert first["sku"]["enum"] == ["LAMP-2040", "LS10", "1AB"]
    assert second["sku"]["enum"] == ["LAMP-2040"]
    assert second["address"]["enum"] == [order["address"]]


@pytest.mark.parametrize("attempts", [1, 2, 3, 5])
async def test_no_more_answers_are_taken_than_configured(
    attempts: int, scripted: ScriptedModel, config: Config
) -> None:
    scripted.script(then=lambda _: Reply(completion("I do not know.")))
    async with asking(config(max_attempts=attempts)) as asker:
        with pytest.raises(AnswerRefused) as error:
            await asker.model.extract(TEXT, asker.observe)
    assert (error.value.code, error.value.exit_status) == ("MODEL_NOT_JSON", 1)
    assert len(scripted.requests) == attempts
    assert [data["attempt"] for data in asker.of_kind("answer-refused")] == [
        *range(1, attempts + 1)
    ]


@pytest.mark.parametrize(
    "refused",
    [
        completion(None, refusal="no"),
        completion(GOOD, finish_reason="length"),
        completion("\ud800"),
        {"choices": []},
    ],
    ids=["refusal", "truncated", "surrogate", "no choices"],
)
async def test_every_refused_answer_may_be_asked_once_more(
    refused: Any, scripted: ScriptedModel, config: Config
) -> None:
    scripted.script(Reply(refused))
    async with asking(config(max_attempts=2)) as asker:
        assert await asker.ask() == "ok"
    assert len(scripted.requests) == 2


@pytest.mark.parametrize(
    ("refusals", "remembered"), [(0, "json_schema"), (1, "json_object"), (2, None)]
)
async def test_the_format_that_the_server_knows_is_remembered_for_the_run(
    refusals: int, remembered: str | None, scripted: ScriptedModel, config: Config
) -> None:
    scripted.script(*[Reply({"error": {"message": "no"}}, status=400)] * refusals)
    async with asking(config(max_attempts=1)) as asker:
        assert await asker.ask() == "ok"
        assert await asker.ask() == "ok"
        await asker.model.answer(STATE, "Where is it?", asker.observe)
        assert asker.model.questions == 3
    asked = [request.get("response_format", {}).get("type") for request in scripted.requests]
    steps = ["json_schema", "json_object", None]
    assert asked == [*steps[: refusals + 1], remembered, remembered]
    told = [data["format"] for data in asker.of_kind("model-request")]
    assert told == [format_ or "text" for format_ in asked]
    # Stepping down is no attempt, but every request is counted.
    assert {data["attempt"] for data in asker.of_kind("model-request")} == {1}
    assert [data["request"] for data in asker.of_kind("model-request")] == [
        *range(1, refusals + 2),
        1,
        1,
    ]


async def test_a_format_is_not_given_up_for_an_outage(
    scripted: ScriptedModel, config: Config
) -> None:
    scripted.script(*[Reply({}, status=500)] * 3)
    async with asking(config(max_attempts=1)) as asker:
        assert await asker.ask() == "MODEL_UNAVAILABLE"
        assert await asker.ask() == "ok"
    assert scripted.requests[3]["response_format"]["type"] == "json_schema"


async def test_a_request_asks_for_one_short_certain_answer(
    scripted: ScriptedModel, config: Config
) -> None:
    async with asking(config(max_tokens=99)) as asker:
        assert await asker.ask() == "ok"
    (request,) = scripted.requests
    assert request["temperature"] == 0
    assert request["max_tokens"] == 99
    assert "tools" not in request
    assert not request.get("stream", False)
    assert request["messages"][-1] == {"role": "user", "content": TEXT.strip()}
    schema = request["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["sku"]["enum"] == ["SKU-1"]
    assert schema["properties"]["quantity"]["enum"] == [2]
    assert schema["additionalProperties"] is False


# -- session answers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sku": "SKU-2"}, "ANSWER_UNVERIFIED"),
        ({"quantity": 3}, "ANSWER_UNVERIFIED"),
        ({"stage": "completed"}, "ANSWER_UNVERIFIED"),
        ({"quantity": "2"}, "ANSWER_INVALID"),
        ({"quantity": 2.0}, "ANSWER_INVALID"),
        ({"quantity": True}, "ANSWER_INVALID"),
        ({"stage": None}, "ANSWER_INVALID"),
        ({"note": "x"}, "ANSWER_INVALID"),
    ],
)
async def test_a_session_answer_says_the_saved_facts_or_is_refused(
    changes: dict[str, Any], code: str, scripted: ScriptedModel, config: Config
) -> None:
    scripted.script(Reply(completion(json.dumps(STATE.facts | changes))))
    async with asking(config(max_attempts=1)) as asker:
        with pytest.raises(AnswerRefused) as error:
            await asker.model.answer(STATE, "Where is it?", asker.observe)
        assert error.value.code == code
        answer = await asker.model.answer(STATE, "Where is it?", asker.observe)
    assert answer.to_json() == STATE.facts


# -- order of things -----------------------------------------------------------------------------


async def test_each_request_is_observed_before_it_is_sent(
    scripted: ScriptedModel, config: Config
) -> None:
    scripted.script(Reply({}, status=400), Reply(completion("no")))
    seen: list[tuple[str, int]] = []

    async with asking(config(max_attempts=2)) as asker:
        await asker.model.extract(TEXT, lambda kind, _: seen.append((kind, len(scripted.requests))))
    assert seen == [
        ("model-request", 0),
        ("model-answer", 1),
        ("model-request", 1),
        ("model-answer", 2),
        ("answer-refused", 2),
        ("model-request", 2),
        ("model-answer", 3),
    ]


async def test_a_request_that_cannot_be_recorded_is_not_sent(
    scripted: ScriptedModel, config: Config
) -> None:
    def full(kind: str, data: dict[str, Any]) -> None:
        raise OSError("the disk is full")

    async with asking(config()) as asker:
        with pytest.raises(OSError, match="full"):
            await asker.model.extract(TEXT, full)
    assert scripted.requests == []


async def test_a_cancellation_passes_through(scripted: ScriptedModel, config: Config) -> None:
    scripted.script(Reply(completion(GOOD), delay=30))
    async with asking(config(max_attempts=3)) as asker:
        task = asyncio.ensure_future(asker.ask())
        await until_async(lambda: bool(scripted.requests), "the request arrives")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert task.cancelled()
    assert [kind for kind, _ in asker.events] == ["model-request", "model-answer"]
    assert asker.of_kind("model-answer")[0]["code"] == "INTERRUPTED"
    assert len(scripted.requests) == 1


async def test_the_answers_record_says_what_it_cost(
    scripted: ScriptedModel, config: Config
) -> None:
    async with asking(config()) as asker:
        assert await asker.ask() == "ok"
    asked, answered = (data for _, data in asker.events)
    assert asked == {
        "question": "extraction",
        "request": 1,
        "attempt": 1,
        "format": "json_schema",
        "model": "scripted",
    }
    assert answered.pop("seconds") >= 0
    assert answered == {
        "question": "extraction",
        "request": 1,
        "attempt": 1,
        "code": None,
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        "finishReason": "stop",
    }
