"""Who may enter a task, what its policy fixes, how far it goes, what a missing model means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fulfillment_cli import (
    FlowResult,
    open_runtime,
    run_checkpoint,
    run_compensation,
    run_fallback,
    run_pause,
    run_retry,
    run_session,
    run_side_effect,
    run_timeout,
)
from fulfillment_cli.domain.errors import (
    ModelError,
    ModelUnavailable,
    TaskNotFound,
    UsageError,
)
from fulfillment_cli.domain.faults import DEMO_FAULTS
from fulfillment_cli.domain.stages import Flow
from tests.scripted_model import Reply, ScriptedModel, completion
from tests.support import TEXT, Shop, rows

Run = Callable[..., Awaitable[FlowResult]]
RUNS: dict[Flow, Run] = {
    Flow.RETRY: run_retry,
    Flow.FALLBACK: run_fallback,
    Flow.TIMEOUT: run_timeout,
    Flow.CHECKPOINT: run_checkpoint,
    Flow.PAUSE: run_pause,
    Flow.SESSION: run_session,
    Flow.COMPENSATION: run_compensation,
    Flow.SIDE_EFFECT: run_side_effect,
}


async def make(shop: Shop, flow: Flow, **arguments: Any) -> FlowResult:
    async with shop.open(faults=DEMO_FAULTS.get(flow)) as runtime:
        return await RUNS[flow](runtime, request=TEXT, **arguments)


async def refused(shop: Shop, run: Run, code: str, *positional: Any, **arguments: Any) -> None:
    """The command fails with this code and changes nothing."""
    before = shop.document(), shop.events(), shop.ledger.requests(health=True)
    async with shop.open() as runtime:
        with pytest.raises(UsageError) as error:
            await run(runtime, *positional, **arguments)
    assert error.value.code == code
    assert (shop.document(), shop.events(), shop.ledger.requests(health=True)) == before


# -- entering ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", [Flow.SESSION, Flow.RETRY])
async def test_a_command_enters_only_tasks_of_its_own_flow(shop: Shop, flow: Flow) -> None:
    await make(shop, flow)
    for other in Flow:
        if other not in (flow, Flow.CHECKPOINT, Flow.SESSION):
            await refused(shop, RUNS[other], "FLOW_MISMATCH")


async def test_a_directory_that_is_not_there_is_not_made(shop: Shop) -> None:
    with pytest.raises(TaskNotFound) as error:
        async with open_runtime(shop.directory):
            pass
    assert error.value.code == "DIRECTORY_NOT_FOUND"
    assert not shop.directory.exists()


async def test_a_task_that_is_not_there_is_not_found(shop: Shop, scripted: ScriptedModel) -> None:
    shop.directory.mkdir()
    async with shop.open() as runtime:
        for run in RUNS.values():
            with pytest.raises(UsageError) as error:
                await run(runtime)
            assert error.value.code == "TASK_NOT_FOUND"
    assert not (shop.directory / "tasks.sqlite").exists()
    await make(shop, Flow.CHECKPOINT)
    async with shop.open() as runtime:
        for run in RUNS.values():
            with pytest.raises(UsageError) as error:
                await run(runtime, "other")
            assert error.value.code == "TASK_NOT_FOUND"


@pytest.mark.parametrize("task_id", ["", "x" * 65, "../task", "a b"])
async def test_an_id_out_of_range_makes_nothing(shop: Shop, task_id: str) -> None:
    async with shop.open() as runtime:
        with pytest.raises(UsageError) as error:
            await run_checkpoint(runtime, task_id, request=TEXT)
    assert error.value.code == "TASK_ID_INVALID"
    assert list(shop.directory.iterdir()) == []


async def test_the_same_request_continues_and_another_is_refused(shop: Shop) -> None:
    await make(shop, Flow.CHECKPOINT)
    await refused(shop, run_checkpoint, "TASK_EXISTS", request=TEXT + "\n")
    await refused(shop, run_retry, "TASK_EXISTS", request=TEXT)
    async with shop.open() as runtime:
        assert (await run_checkpoint(runtime, request=TEXT)).stage == "completed"
    assert (shop.directory / "task.txt").read_text() == TEXT


@pytest.mark.parametrize(
    "request_text",
    ["", " \n", b"caf\xe9", "x" * 65537, "a\x00b", b"\xef\xbb\xbf"],
    ids=["empty", "blank", "latin-1", "too long", "NUL", "mark"],
)
async def test_a_request_that_cannot_be_used_makes_nothing(
    shop: Shop, request_text: str | bytes
) -> None:
    async with shop.open() as runtime:
        with pytest.raises(UsageError) as error:
            await run_checkpoint(runtime, request=request_text)
    assert error.value.code == "REQUEST_INVALID"
    assert list(shop.directory.iterdir()) == []


async def test_a_request_that_is_no_text_at_all_makes_nothing(shop: Shop) -> None:
    async with shop.open() as runtime:
        with pytest.raises(UsageError) as error:
            await run_checkpoint(runtime, request="order \udcff")
    assert error.value.code == "REQUEST_INVALID"
    assert list(shop.directory.iterdir()) == []


# -- policy ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flow", "option"),
    [
        (Flow.RETRY, {"max_attempts": 2}),
        (Flow.RETRY, {"initial_max_bytes": 32}),
        (Flow.RETRY, {"max_attempts": 3}),  # its own default, but given
        (Flow.FALLBACK, {"allowed_sources": ["primary"]}),
        (Flow.TIMEOUT, {"timeout_ms": 60_000}),
    ],
    ids=str,
)
async def test_a_policy_is_fixed_at_creation(
    shop: Shop, flow: Flow, option: dict[str, Any]
) -> None:
    await make(shop, flow)
    await refused(shop, RUNS[flow], "POLICY_FIXED", **option)


async def test_a_request_with_another_policy_is_refused_and_with_the_same_continues(
    shop: Shop,
) -> None:
    await make(shop, Flow.RETRY, max_attempts=2)
    await refused(shop, run_retry, "POLICY_FIXED", request=TEXT, max_attempts=4)
    async with shop.open() as runtime:
        again = await run_retry(runtime, request=TEXT, max_attempts=2)
    assert again.stage == "completed"


@pytest.mark.parametrize(
    ("flow", "option"),
    [
        (Flow.RETRY, {"max_attempts": 0}),
        (Flow.RETRY, {"max_attempts": 6}),
        (Flow.RETRY, {"initial_max_bytes": 0}),
        (Flow.RETRY, {"initial_max_bytes": 65537}),
        (Flow.FALLBACK, {"allowed_sources": []}),
        (Flow.FALLBACK, {"allowed_sources": ["primary", "primary"]}),
        (Flow.FALLBACK, {"allowed_sources": ["mirror"]}),
        (Flow.TIMEOUT, {"timeout_ms": 0}),
        (Flow.TIMEOUT, {"timeout_ms": 60_001}),
    ],
    ids=str,
)
async def test_a_policy_out_of_range_makes_nothing(
    shop: Shop, flow: Flow, option: dict[str, Any]
) -> None:
    async with shop.open() as runtime:
        with pytest.raises(UsageError) as error:
            await RUNS[flow](runtime, request=TEXT, **option)
    assert error.value.code == "USAGE"
    assert list(shop.directory.iterdir()) == []


async def test_the_saved_policy_is_obeyed_whoever_enters(
    shop: Shop, scripted: ScriptedModel
) -> None:
    scripted.script(*[Reply(status=503)] * 3)
    with pytest.raises(ModelUnavailable):
        await make(shop, Flow.RETRY, max_attempts=2)
    once = [(1, 16, "SOURCE_TOO_LARGE"), (2, len(TEXT), None)]
    assert reads(shop) == once
    scripted.script()
    async with shop.open() as runtime:
        await run_checkpoint(runtime)
    assert reads(shop) == once * 2


# -- reading -----------------------------------------------------------------------------------


def reads(shop: Shop) -> list[tuple[int, int, str | None]]:
    data = rows(
        shop.directory / "tasks.sqlite",
        "SELECT data ->> 'attempt', data ->> 'limit', data ->> 'code' FROM events"
        " WHERE kind = 'source-read' ORDER BY seq",
    )
    return [(attempt, limit, code) for attempt, limit, code in data]


async def test_a_text_over_the_limit_is_read_again_with_the_size_that_the_error_named(
    shop: Shop,
) -> None:
    assert (await make(shop, Flow.RETRY)).stage == "completed"
    assert reads(shop) == [(1, 16, "SOURCE_TOO_LARGE"), (2, len(TEXT), None)]


async def test_with_one_attempt_a_text_over_the_limit_fails(
    shop: Shop, scripted: ScriptedModel
) -> None:
    result = await make(shop, Flow.RETRY, max_attempts=1)
    assert (result.stage, result.questions) == ("failed", 0)
    assert result.error is not None
    assert result.error.code == "SOURCE_TOO_LARGE"
    assert reads(shop) == [(1, 16, "SOURCE_TOO_LARGE")]
    assert scripted.requests == []
    assert shop.ledger.requests() == []


async def test_a_text_within_the_first_limit_is_read_once(shop: Shop) -> None:
    await make(shop, Flow.RETRY, initial_max_bytes=len(TEXT))
    assert reads(shop) == [(1, len(TEXT), None)]


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda path: path.unlink(), "SOURCE_NOT_FOUND"),
        (lambda path: path.write_text("another order"), "SOURCE_CHANGED"),
        (lambda path: path.write_bytes(b""), "SOURCE_EMPTY"),
        (lambda path: path.write_bytes(b"x" * 65537), "SOURCE_TOO_LARGE"),
        (lambda path: (path.rename(path.with_name("x")), path.symlink_to("x")), "SOURCE_INVALID"),
        (lambda path: (path.unlink(), path.mkdir()), "SOURCE_INVALID"),
    ],
    ids=["missing", "changed", "emptied", "too long", "symlink", "directory"],
)
async def test_a_source_that_went_bad_fails_the_task_for_good_and_at_once(
    shop: Shop, scripted: ScriptedModel, spoil: Callable[[Any], object], code: str
) -> None:
    scripted.script(Reply(status=503), Reply(status=503), Reply(status=503))
    with pytest.raises(ModelUnavailable):
        await make(shop, Flow.RETRY)
    scripted.script()
    asked, before = len(scripted.requests), len(reads(shop))
    spoil(shop.directory / "task.txt")
    for _ in range(2):
        async with shop.open() as runtime:
            result = await run_retry(runtime)
        assert result.stage == "failed"
        assert result.error is not None
        assert result.error.code == code
    assert len(reads(shop)) == before + 1
    assert len(scripted.requests) == asked
    assert shop.ledger.requests() == []


async def test_from_prepared_on_the_source_is_not_needed(
    shop: Shop, scripted: ScriptedModel
) -> None:
    await make(shop, Flow.CHECKPOINT, stop_after="prepared")
    (shop.directory / "task.txt").unlink()
    async with shop.open() as runtime:
        assert (await run_checkpoint(runtime)).stage == "completed"
    assert len(scripted.requests) == 1


# -- goals -------------------------------------------------------------------------------------


async def test_a_new_checkpoint_stops_at_reserved_and_an_existing_one_goes_to_the_end(
    shop: Shop,
) -> None:
    assert (await make(shop, Flow.CHECKPOINT)).stage == "reserved"
    assert shop.document()["goal"] == "reserved"
    async with shop.open() as runtime:
        assert (await run_checkpoint(runtime)).stage == "completed"
    assert shop.document()["goal"] == "completed"


@pytest.mark.parametrize("first", ["prepared", "reserved"])
async def test_stop_after_stops_there(shop: Shop, first: Any) -> None:
    assert (await make(shop, Flow.CHECKPOINT, stop_after=first)).stage == first
    assert shop.ledger.posts() == ([] if first == "prepared" else ["POST /reserve"])
    async with shop.open() as runtime:
        assert (await run_checkpoint(runtime, stop_after="reserved")).stage == "reserved"
        assert shop.ledger.posts() == ["POST /reserve"]
        assert (await run_checkpoint(runtime, stop_after="prepared")).stage == "reserved"
    assert shop.document()["goal"] == "reserved"  # never lowered
    assert shop.ledger.posts() == ["POST /reserve"]


async def test_only_checkpoint_raises_a_goal(shop: Shop) -> None:
    await make(shop, Flow.SESSION)
    async with shop.open() as runtime:
        await run_session(runtime)
    assert (shop.document()["goal"], shop.document()["stage"]) == ("prepared", "prepared")
    async with shop.open() as runtime:
        await run_checkpoint(runtime, stop_after="reserved")
    assert shop.document()["goal"] == "reserved"
    assert "goal-raised" in shop.events()
    async with shop.open() as runtime:
        await run_session(runtime)
    assert shop.document()["stage"] == "reserved"


async def test_a_goal_is_raised_before_any_request(shop: Shop) -> None:
    """So that a process that is killed at the first request leaves what it was told."""
    await make(shop, Flow.CHECKPOINT, stop_after="prepared")
    async with shop.open() as runtime:
        runtime._service = None  # type: ignore[assignment, method-assign]
        with pytest.raises(TypeError):
            await run_checkpoint(runtime)
    assert shop.document()["goal"] == "completed"
    assert shop.ledger.requests() == []


async def test_a_raised_goal_leaves_the_plan_as_it_is(shop: Shop) -> None:
    await make(shop, Flow.CHECKPOINT, stop_after="prepared")
    plan = shop.document()["planFingerprint"]
    async with shop.open() as runtime:
        await run_checkpoint(runtime, stop_after="reserved")
        await run_checkpoint(runtime)
    assert shop.document()["planFingerprint"] == plan


# -- model -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replies", "code", "kind"),
    [
        ([Reply(status=503)] * 3, "MODEL_UNAVAILABLE", ModelUnavailable),
        ([Reply(status=429)], "MODEL_RATE_LIMITED", ModelUnavailable),
        ([Reply(status=401)], "MODEL_UNAUTHORIZED", ModelError),
        ([Reply(completion("no"))] * 2, "MODEL_NOT_JSON", ModelError),
        (
            [Reply(completion('{"sku": "SKU-9", "quantity": 2, "address": "Dock-North"}'))] * 2,
            "ORDER_NOT_GROUNDED",
            ModelError,
        ),
    ],
    ids=["503", "429", "401", "prose", "ungrounded"],
)
async def test_a_model_that_fails_leaves_the_task_queued_and_the_ledger_untouched(
    shop: Shop, scripted: ScriptedModel, replies: list[Reply], code: str, kind: type[ModelError]
) -> None:
    scripted.script(*replies)
    with pytest.raises(kind) as error:
        await make(shop, Flow.RETRY)
    assert error.value.code == code
    assert (shop.document()["stage"], shop.document()["order"]) == ("queued", None)
    assert shop.ledger.requests() == []
    scripted.script()
    async with shop.open() as runtime:
        assert (await run_retry(runtime)).stage == "completed"


async def test_a_saved_answer_is_never_asked_for_again(shop: Shop, scripted: ScriptedModel) -> None:
    await make(shop, Flow.CHECKPOINT, stop_after="prepared")
    other = completion('{"sku": "SKU-1", "quantity": 1, "address": "Dock-North"}')
    scripted.script(then=lambda request: Reply(other))
    async with shop.open() as runtime:
        result = await run_checkpoint(runtime)
    assert (result.stage, result.questions) == ("completed", 0)
    assert result.checkpoint.order is not None
    assert result.checkpoint.order.quantity == 2
    assert len(scripted.requests) == 1
