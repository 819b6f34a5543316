"""Experiments 13 to 20: effects that are refused, lost, late, or not to be repeated."""

from __future__ import annotations

import asyncio
import json

from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.domain.stages import Flow, Goal, Stage
from fulfillment_cli.experiments.evidence import Evidence, operation_states
from fulfillment_cli.experiments.lab import TASK, Lab
from fulfillment_cli.experiments.scenario import here, made
from fulfillment_cli.flows.compensation import run_compensation
from fulfillment_cli.flows.creation import NewTask, ensure_task, make_policy
from fulfillment_cli.flows.retry import run_retry
from fulfillment_cli.flows.side_effect import run_side_effect


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
