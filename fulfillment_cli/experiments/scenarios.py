"""The twenty experiments of the contract, section 7: what each does and what it must leave."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.domain.stages import Flow, Goal, Stage
from fulfillment_cli.experiments.evidence import Evidence, operation_states
from fulfillment_cli.experiments.lab import TASK, Lab
from fulfillment_cli.flows.checkpoint import run_checkpoint
from fulfillment_cli.flows.compensation import run_compensation
from fulfillment_cli.flows.creation import NewTask, ensure_task, make_policy
from fulfillment_cli.flows.fallback import run_fallback
from fulfillment_cli.flows.pause import resume_paused, run_pause
from fulfillment_cli.flows.retry import run_retry
from fulfillment_cli.flows.side_effect import run_side_effect
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.flows.timeout import run_timeout
from fulfillment_cli.runtime import Runtime

RESERVE = ["GET /operations/task-reserve", "POST /reserve"]
SHIP = ["GET /operations/task-ship", "POST /ship"]
RELEASE = ["GET /operations/task-release", "POST /release"]
FULFIL = RESERVE + SHIP
PRIMARY = ["GET /catalog/primary"]
OPERATOR = "experiment-operator"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table.

    Attributes:
        name: Its name.
        run: What it does.
        ends: The stage it must end in.
        questions: Extractions plus session answers, over all processes.
        requests: The service's request log, without health checks.
        error: Code of the saved error, or none.
        check: Further facts to check when everything is closed.
    """

    name: str
    run: Callable[[Lab], Awaitable[None]]
    ends: Stage
    questions: int
    requests: list[str]
    error: str | None = None
    check: Callable[[Lab, Evidence], None] | None = None


async def retry_adjusts(lab: Lab) -> None:
    async with lab.open() as runtime:
        await lab.run("run", run_retry, runtime, request=lab.text)


def reads_twice(lab: Lab, evidence: Evidence) -> None:
    reads = [event.data for event in evidence.events if event.kind == "source-read"]
    lab.expect("read limits", [read["limit"] for read in reads], [16, len(lab.text)])
    lab.expect("read codes", [read["code"] for read in reads], ["SOURCE_TOO_LARGE", None])


async def retry_exhausted(lab: Lab) -> None:
    async with lab.open() as runtime:
        await lab.run("run", run_retry, runtime, request=lab.text, max_attempts=1)


async def retry_missing(lab: Lab) -> None:
    policy = make_policy({}, max_attempts=3, initial_max_bytes=16)
    async with lab.open() as runtime:
        new = NewTask(lab.text.encode(), Flow.RETRY, policy, Goal.COMPLETED)
        async with lab.step("create"):
            await ensure_task(runtime, TASK, new)
        runtime.directory.source(TASK).unlink()
        await lab.run("run", run_retry, runtime)


async def fallback_allowed(lab: Lab) -> None:
    async with lab.open(primaryUnavailable=True) as runtime:
        await lab.run("run", run_fallback, runtime, request=lab.text)


def selected(source: str | None) -> Callable[[Lab, Evidence], None]:
    def check(lab: Lab, evidence: Evidence) -> None:
        lab.expect("selectedSource", evidence.checkpoint.selected_source, source)

    return check


async def fallback_disallowed(lab: Lab) -> None:
    async with lab.open(primaryUnavailable=True) as runtime:
        await lab.run("run", run_fallback, runtime, request=lab.text, allowed_sources=["primary"])


async def fallback_business(lab: Lab) -> None:
    async with lab.open(stock=0) as runtime:
        await lab.run("run", run_fallback, runtime, request=lab.text)


async def read_deadline(lab: Lab) -> None:
    async with lab.open(catalogDelayMs=500) as runtime:
        await lab.run("prepare", run_timeout_prepared, runtime, text=lab.text)
        started = time.monotonic()
        await lab.run("read", run_timeout, runtime)
        seconds = time.monotonic() - started
        lab.expect("over in under 350 ms", seconds < 0.35, True)


async def run_timeout_prepared(runtime: Runtime, task_id: str, *, text: str) -> FlowResult:
    """Create and prepare the task, so that the next step times the read alone."""
    policy = make_policy({}, allowed_sources=("primary",), timeout_ms=50)
    await ensure_task(
        runtime, task_id, NewTask(text.encode(), Flow.TIMEOUT, policy, Goal.COMPLETED)
    )
    return await run_checkpoint(runtime, task_id, stop_after="prepared")


async def read_in_time(lab: Lab) -> None:
    async with lab.open(catalogDelayMs=10) as runtime:
        await lab.run("run", run_timeout, runtime, request=lab.text, timeout_ms=5000)


async def made(lab: Lab, flow: Flow, **faults: bool | int) -> None:
    """Make the directory with its ledger and a queued task; no question is asked yet."""
    policy = make_policy({}, requires_approval=flow is Flow.PAUSE)
    goal = Goal.RESERVED if flow is Flow.CHECKPOINT else Goal.COMPLETED
    async with lab.step("create"), lab.open(**faults) as runtime:
        await ensure_task(runtime, TASK, NewTask(lab.text.encode(), flow, policy, goal))


def here(lab: Lab, command: str, *options: str) -> list[str]:
    return [command, "--directory", str(lab.directory), *options]


async def checkpoint_crash(lab: Lab) -> None:
    await made(lab, Flow.CHECKPOINT)
    arguments = here(lab, "checkpoint", "--stop-after", "reserved")
    await lab.crash("run until reserved", arguments, Stage.RESERVED)
    await lab.child("resume", here(lab, "checkpoint"))


def other_pids(lab: Lab, evidence: Evidence) -> None:
    """Killed and resumed by different processes; nothing was asked after the crash."""
    pids = [child.pid for child in lab.children]
    lab.expect("different pids", len(set(pids)), len(pids))
    lab.expect("questions after the crash", lab.questions - lab.before_last_crash, 0)


async def pause_crash(lab: Lab) -> None:
    await made(lab, Flow.PAUSE)
    await lab.crash("run until paused", here(lab, "pause"), Stage.PAUSED)
    await lab.child("approve", here(lab, "pause", "--decision", "approve", "--actor", OPERATOR))


def approved_after_crash(lab: Lab, evidence: Evidence) -> None:
    other_pids(lab, evidence)
    approval = evidence.checkpoint.approval
    lab.expect("approved by", approval and approval.actor, OPERATOR)


async def run_reject(runtime: Runtime, task_id: str) -> FlowResult:
    return await resume_paused(runtime, "reject", OPERATOR, task_id)


async def pause_rejected(lab: Lab) -> None:
    async with lab.open() as runtime:
        await lab.run("pause", run_pause, runtime, request=lab.text)

        await lab.run("reject", run_reject, runtime)
        await lab.run("re-enter", run_pause, runtime)


async def session_elsewhere(lab: Lab) -> None:
    async with lab.open() as runtime:
        await lab.run("reserve", run_checkpoint, runtime, request=lab.text)
    document = await lab.child("ask", here(lab, "session"))
    answer = document.get("result", {}).get("answer")
    expected = {"sku": lab.order.sku, "quantity": lab.order.quantity, "stage": "reserved"}
    lab.expect("answer", answer, expected)


def session_saved(lab: Lab, evidence: Evidence) -> None:
    kinds = [entry.kind for entry in evidence.checkpoint.context]
    lab.expect("context", kinds, ["request", "order", "question", "answer"])
    lab.expect("shipments", evidence.ledger["shipments"], [])


async def compensation(lab: Lab) -> None:
    async with lab.open(rejectShipping=True) as runtime:
        await lab.run("run", run_compensation, runtime, request=lab.text)
        await lab.run("re-enter", run_compensation, runtime)


def restored(lab: Lab, evidence: Evidence) -> None:
    lab.expect("POST /release", evidence.posts("release"), 1)
    stock = evidence.ledger["inventory"][0]
    lab.expect("stock", stock["quantity"], stock["initial_quantity"])


async def compensation_failed(lab: Lab) -> None:
    async with lab.open(rejectShipping=True, rejectRelease=True) as runtime:
        await lab.run("run", run_compensation, runtime, request=lab.text)
        await lab.run("re-enter", run_compensation, runtime)


def still_reserved(lab: Lab, evidence: Evidence) -> None:
    failed = evidence.checkpoint.compensation_error
    lab.expect("compensationError", failed and failed.code, "COMPENSATION_RELEASE_REJECTED")
    status = [row["status"] for row in evidence.ledger["reservations"]]
    lab.expect("reservations", status, ["active"])


async def lost_response(lab: Lab) -> None:
    async with lab.open(dropReservationResponse=True) as runtime:
        await lab.run("run", run_side_effect, runtime, request=lab.text)


async def unknown_then_crash(lab: Lab) -> None:
    await made(
        lab, Flow.SIDE_EFFECT, dropReservationResponse=True, lookupUnavailableAfterWrite=True
    )
    await lab.crash("run until uncertain", here(lab, "side-effect"), Stage.UNCERTAIN)
    fixture = lab.directory / "fixture.json"
    fixture.write_text(json.dumps(json.loads(fixture.read_text()) | {"faults": {}}))
    await lab.child("resume", here(lab, "side-effect"))


async def pending_write(lab: Lab) -> None:
    database = lab.directory / "service.sqlite"
    async with lab.open(reservationDelayMs=350) as runtime:
        async with lab.step("cancel a write"):
            writing = asyncio.create_task(run_side_effect(runtime, TASK, request=lab.text))
            await lab.until("the claim", lambda: "pending" in operation_states(database))
            writing.cancel()
            outcome = (await asyncio.gather(writing, return_exceptions=True))[0]
        lab.expect("cancelled", type(outcome).__name__, "CancelledError")
        lab.questions += 1
        early = await lab.run("enter while pending", run_side_effect, runtime)
        lab.expect("stage while pending", early.stage, Stage.UNCERTAIN)
        lab.expect("why", early.error and early.error.code, "OPERATION_PENDING")
        await lab.until("the verdict", lambda: operation_states(database) == ["committed"])
        await lab.run("enter again", run_side_effect, runtime)


async def lookup_unavailable(lab: Lab) -> None:
    async with lab.open(lookupUnavailable=True) as runtime:
        await lab.run("run", run_side_effect, runtime, request=lab.text)
        await lab.run("re-enter", run_side_effect, runtime)


def uncertain_unwritten(lab: Lab, evidence: Evidence) -> None:
    uncertainty = evidence.checkpoint.uncertainty
    lab.expect("uncertainty", uncertainty and uncertainty.code, "OUTCOME_UNKNOWN")
    lab.expect("POST /reserve", evidence.posts("reserve"), 0)


async def idempotent_reentry(lab: Lab) -> None:
    async with lab.open() as runtime:
        first = await lab.run("run", run_side_effect, runtime, request=lab.text)
        again = await lab.run("re-enter", run_side_effect, runtime)
        lab.expect("the same checkpoint", again.checkpoint, first.checkpoint)


async def cancelled_before_work(lab: Lab) -> None:
    policy = make_policy({}, max_attempts=3, initial_max_bytes=16)
    async with lab.open() as runtime:
        new = NewTask(lab.text.encode(), Flow.RETRY, policy, Goal.COMPLETED)
        await ensure_task(runtime, TASK, new)
        async with lab.step("cancel"):
            running = asyncio.create_task(run_retry(runtime, TASK))
            await asyncio.sleep(0)  # it has entered the task, and done nothing yet
            running.cancel()
            outcome = (await asyncio.gather(running, return_exceptions=True))[0]
        lab.expect("cancelled", type(outcome).__name__, "CancelledError")
        lab.expect("no error of ours", isinstance(outcome, FulfilError), False)


S = Stage

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("retry-adjusts-read-limit", retry_adjusts, S.COMPLETED, 1, FULFIL, check=reads_twice),
    Scenario("retry-exhausted", retry_exhausted, S.FAILED, 0, [], "SOURCE_TOO_LARGE"),
    Scenario("retry-permanent-missing-source", retry_missing, S.FAILED, 0, [], "SOURCE_NOT_FOUND"),
    Scenario(
        "fallback-allowed-backup",
        fallback_allowed,
        S.COMPLETED,
        1,
        [*PRIMARY, "GET /catalog/backup", *FULFIL],
        check=selected("backup"),
    ),
    Scenario(
        "fallback-disallowed-backup",
        fallback_disallowed,
        S.FAILED,
        1,
        PRIMARY,
        "UNAVAILABLE",
        selected(None),
    ),
    Scenario(
        "fallback-does-not-hide-business-rejection",
        fallback_business,
        S.FAILED,
        1,
        PRIMARY,
        "INSUFFICIENT_STOCK",
        selected(None),
    ),
    Scenario("read-deadline", read_deadline, S.TIMED_OUT, 1, PRIMARY, "CATALOG_TIMEOUT"),
    Scenario("read-before-deadline", read_in_time, S.COMPLETED, 1, PRIMARY + FULFIL),
    Scenario(
        "checkpoint-process-crash-and-resume",
        checkpoint_crash,
        S.COMPLETED,
        1,
        FULFIL,
        check=other_pids,
    ),
    Scenario(
        "pause-process-crash-and-approve",
        pause_crash,
        S.COMPLETED,
        1,
        FULFIL,
        check=approved_after_crash,
    ),
    Scenario("pause-rejected", pause_rejected, S.REJECTED, 1, []),
    Scenario(
        "session-in-a-new-process", session_elsewhere, S.RESERVED, 2, RESERVE, check=session_saved
    ),
    Scenario(
        "compensation-restores-inventory",
        compensation,
        S.COMPENSATED,
        1,
        FULFIL + RELEASE,
        "ADDRESS_REJECTED",
        restored,
    ),
    Scenario(
        "compensation-failed-needs-review",
        compensation_failed,
        S.NEEDS_REVIEW,
        1,
        FULFIL + RELEASE,
        "ADDRESS_REJECTED",
        still_reserved,
    ),
    Scenario(
        "lost-response-reconciled",
        lost_response,
        S.COMPLETED,
        1,
        [*RESERVE, "GET /operations/task-reserve", *SHIP],
    ),
    Scenario(
        "unknown-effect-crash-and-reconcile",
        unknown_then_crash,
        S.COMPLETED,
        1,
        [*RESERVE, "GET /operations/task-reserve", "GET /operations/task-reserve", *SHIP],
        check=other_pids,
    ),
    Scenario(
        "pending-write-no-duplicate-retry",
        pending_write,
        S.COMPLETED,
        1,
        [*RESERVE, "GET /operations/task-reserve", "GET /operations/task-reserve", *SHIP],
    ),
    Scenario(
        "lookup-unavailable-no-blind-write",
        lookup_unavailable,
        S.UNCERTAIN,
        1,
        ["GET /operations/task-reserve", "GET /operations/task-reserve"],
        check=uncertain_unwritten,
    ),
    Scenario("completed-task-idempotent-reentry", idempotent_reentry, S.COMPLETED, 1, FULFIL),
    Scenario("caller-cancelled-before-work", cancelled_before_work, S.QUEUED, 0, []),
)
