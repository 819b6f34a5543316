"""Making a task: source, fixture, ledger, row, in an order that any kill can be made good from."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from fulfillment_cli.adapters.source import decode, read_bounded, source_hash
from fulfillment_cli.adapters.task_directory import Fixture
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import SourceError, TaskNotFound, UsageError
from fulfillment_cli.domain.order import MAX_SOURCE_BYTES, Order, Policy, check_task_id
from fulfillment_cli.domain.stages import Flow, Goal, Stage
from fulfillment_cli.runtime import Runtime


@dataclass(frozen=True, slots=True)
class NewTask:
    """What a task is made from, and never changes afterwards but for its goal.

    Attributes:
        request: The order text as it came, 1 to 65536 bytes of UTF-8.
        expected: The order it was generated from; none for a user's own text.
    """

    request: bytes
    flow: Flow
    policy: Policy
    goal: Goal
    expected: Order | None = None


def make_policy(given: dict[str, Any], **fixed: Any) -> Policy:
    """A flow's policy: its own defaults, then what was given.

    Raises:
        UsageError: A value is out of its range.
    """
    try:
        return Policy(**fixed | {name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0])
        raise UsageError(f"{name}: {first['msg']}.") from None


def request_bytes(request: str | bytes) -> bytes:
    """Check an order text before anything is made from it.

    Raises:
        UsageError: ``REQUEST_INVALID``.
    """
    # Lone surrogates, as bytes that are not UTF-8 become on a command line, are refused below.
    content = request.encode(errors="surrogatepass") if isinstance(request, str) else request
    if len(content) > MAX_SOURCE_BYTES:
        raise UsageError(
            f"The request text has {len(content)} bytes; {MAX_SOURCE_BYTES} is the most.",
            code="REQUEST_INVALID",
        )
    try:
        decode(content)
    except SourceError as error:
        raise UsageError(error.message, code="REQUEST_INVALID") from None
    return content


def find(runtime: Runtime, task_id: str) -> Checkpoint | None:
    """The task's checkpoint, or none where there is no such task yet."""
    try:
        return runtime.store.load(task_id)
    except TaskNotFound:
        return None


async def ensure_task(runtime: Runtime, task_id: str, new: NewTask | None) -> Checkpoint:
    """Load the task; make it, or finish making it, where it is not there.

    Args:
        new: What to make it from. None: only what ``fixture.json`` says was begun.

    Raises:
        TaskNotFound: It is not there and was not begun.
        UsageError: ``TASK_EXISTS``: it is there with another text or flow; ``LEDGER_MISMATCH``;
            ``INVENTORY_INVALID`` where a ledger is to be spawned and has no stock.
    """
    check_task_id(task_id)
    existing = find(runtime, task_id)
    if existing is None:
        async with runtime.directory.creating():
            existing = find(runtime, task_id)
            if existing is None:
                return await _create(runtime, task_id, new)
    if new is not None:
        _check_same(existing, new)
    return existing


def _check_same(existing: Checkpoint, new: NewTask) -> None:
    if existing.flow is not new.flow or existing.source_hash != source_hash(new.request):
        raise UsageError(
            f"Task {existing.id} exists with another text or flow; it was left as it is.",
            code="TASK_EXISTS",
        )


async def _create(runtime: Runtime, task_id: str, new: NewTask | None) -> Checkpoint:
    if new is None:
        new = _begun(runtime, task_id)
    else:
        _begin(runtime, task_id, new)
    ledger = await runtime.ledger(None)
    at = runtime.clock.timestamp()
    first = Checkpoint(
        id=task_id,
        task_uid=secrets.token_hex(16),
        ledger_id=ledger.ledger_id,
        revision=1,
        flow=new.flow,
        policy=new.policy,
        requires_approval=new.policy.requires_approval,
        goal=new.goal,
        stage=Stage.QUEUED,
        source_hash=source_hash(new.request),
        created_at=at,
        updated_at=at,
    )
    return runtime.create_store().create(first, {"flow": new.flow, "goal": new.goal})


def _begin(runtime: Runtime, task_id: str, new: NewTask) -> None:
    """Write down what the task is made from; a fixture that names it implies its source.

    Where another order was begun under this id, its text goes before the plan of the new one is
    written, and the new text comes after: no kill leaves one order's text with another's policy.
    """
    files = runtime.directory
    fixture = files.read_fixture() if files.fixture_path.exists() else None
    wanted = None
    if fixture is not None and fixture.task_id == task_id:
        facts = {"flow": new.flow, "policy": new.policy, "goal": new.goal, "order": new.expected}
        wanted = fixture.model_copy(update=facts)
    if wanted is not None and wanted != fixture:
        files.remove_source(task_id)
        files.write_fixture(wanted)
    files.write_source(task_id, new.request)
    if fixture is None:
        files.write_fixture(_fixture(runtime, task_id, new))


def _begun(runtime: Runtime, task_id: str) -> NewTask:
    """What a process that was killed before it saved the row had begun."""
    fixture = runtime.directory.read_fixture()
    if fixture.task_id != task_id:
        raise TaskNotFound(f"There is no task {task_id} in {runtime.directory.path}.")
    if (fixture.service_url is None) != (runtime.service_url is None):
        raise UsageError(
            f"The task was begun with --service-url {fixture.service_url}; give it again."
            if fixture.service_url
            else "The task was begun with a ledger of its own; leave --service-url out.",
            code="LEDGER_MISMATCH",
        )
    request = read_bounded(runtime.directory.source(task_id), MAX_SOURCE_BYTES)
    return NewTask(request, fixture.flow, fixture.policy, fixture.goal, fixture.order)


def _fixture(runtime: Runtime, task_id: str, new: NewTask) -> Fixture:
    if runtime.stock is None and runtime.service_url is None:
        raise UsageError("A ledger that is started here needs its stock.", code="INVENTORY_INVALID")
    return Fixture(
        task_id=task_id,
        flow=new.flow,
        policy=new.policy,
        goal=new.goal,
        order=new.expected,
        service_url=runtime.service_url,
        stock=dict(runtime.stock or {}),
        faults=dict(runtime.faults),
    )
