"""Experiments 9 to 12: another process goes on with what one has saved."""

from __future__ import annotations

from fulfillment_cli.domain.stages import Flow, Stage
from fulfillment_cli.experiments.evidence import Evidence
from fulfillment_cli.experiments.lab import Lab
from fulfillment_cli.experiments.scenario import OPERATOR, here, made
from fulfillment_cli.flows.checkpoint import run_checkpoint
from fulfillment_cli.flows.pause import resume_paused, run_pause
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.runtime import Runtime


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
