"""Experiments 1 to 8: what fails before anything is written outside."""

from __future__ import annotations

import time
from collections.abc import Callable

from fulfillment_cli.domain.stages import Flow, Goal
from fulfillment_cli.experiments.evidence import Evidence
from fulfillment_cli.experiments.lab import TASK, Lab
from fulfillment_cli.flows.checkpoint import run_checkpoint
from fulfillment_cli.flows.creation import NewTask, ensure_task, make_policy
from fulfillment_cli.flows.fallback import run_fallback
from fulfillment_cli.flows.retry import run_retry
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.flows.timeout import run_timeout
from fulfillment_cli.runtime import Runtime


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
