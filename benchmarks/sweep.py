"""Time a sweep over interrupted tasks against the same steps without an interruption.

``python benchmarks/sweep.py [N]`` (default 1000) makes two directories of N prepared tasks each.
In the first, tasks are taken and driven to their end, and only the steps themselves are timed:
neither taking the lease nor what it takes to find the task. In the second, a process that has
taken every task's lease is killed by SIGKILL, and a sweep continues them all; all of it is timed.
Both run at the same time, each in a process of its own, so that whatever else the machine does
weighs on both alike. The model is configured to an address where nobody answers, so that any
request would fail.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from fulfillment_cli.adapters.source import source_hash
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.order import ContextEntry, Order, Policy, plan_fingerprint
from fulfillment_cli.domain.stages import Flow, Goal, Stage
from fulfillment_cli.flows.creation import NewTask, ensure_task
from fulfillment_cli.flows.steps import drive
from fulfillment_cli.flows.task_run import entered
from fulfillment_cli.recovery.attempt import Retry
from fulfillment_cli.recovery.sweep import Sweep, SweepOptions
from fulfillment_cli.runtime import Runtime, open_runtime
from fulfillment_cli.settings import Settings

ORDER = Order(sku="SKU-1", quantity=1, address="Dock-North")
TEXT = "SKU: SKU-1; quantity: 1; delivery address: Dock-North."
SETTINGS = Settings.model_validate(
    {
        "provider": "nobody",
        "providers": {
            "nobody": {
                "kind": "openai-compatible",
                "base_url": "http://127.0.0.1:9/v1",
                "model": "none",
            }
        },
        "sandbox": {"network": ["http://127.0.0.1:9"]},
    }
)


def prepared(task_id: str, ledger_id: str, at: str) -> Checkpoint:
    """A task with its plan saved, as if its model had just answered."""
    uid, flow, policy = secrets.token_hex(16), Flow.CHECKPOINT, Policy()
    plan = plan_fingerprint(
        task_id=task_id,
        task_uid=uid,
        ledger_id=ledger_id,
        source_hash=source_hash(TEXT.encode()),
        flow=flow,
        policy=policy,
        order=ORDER,
    )
    return Checkpoint(
        id=task_id,
        task_uid=uid,
        ledger_id=ledger_id,
        revision=1,
        flow=flow,
        policy=policy,
        goal=Goal.COMPLETED,
        stage=Stage.PREPARED,
        source_hash=source_hash(TEXT.encode()),
        plan_fingerprint=plan,
        order=ORDER,
        context=(ContextEntry(kind="request", content=TEXT),),
        created_at=at,
        updated_at=at,
    )


async def fill(runtime: Runtime, count: int) -> list[str]:
    """Make ``count`` prepared tasks, and the ledger that they belong to."""
    first = NewTask(TEXT.encode(), Flow.CHECKPOINT, Policy(), Goal.PREPARED)
    made = await ensure_task(runtime, "first", first)
    ids = [f"task-{number:05}" for number in range(count)]
    for task_id in ids:
        runtime.store.create(prepared(task_id, made.ledger_id, runtime.clock.timestamp()))
    # The one that made the ledger is out of the way: without a text it would fail at once.
    async with entered(runtime, "first", "benchmark") as run:
        run.advance(Stage.FAILED, "failed")
    return ids


async def uninterrupted(directory: Path, count: int) -> float:
    """Seconds that the steps of all tasks take, from a held lease to the end of the task."""
    seconds = 0.0
    async with open_runtime(directory, stock={"SKU-1": count}, settings=SETTINGS) as runtime:
        for task_id in await fill(runtime, count):
            async with entered(runtime, task_id, "checkpoint") as run:
                started = time.perf_counter()
                await drive(run, Goal.COMPLETED)
            seconds += time.perf_counter() - started
    return seconds


async def make(directory: Path, count: int) -> list[str]:
    """The directory of the sweep."""
    async with open_runtime(directory, stock={"SKU-1": count}, settings=SETTINGS) as runtime:
        return await fill(runtime, count)


def interrupt(directory: Path, ids: list[str]) -> None:
    """Take every task's lease in a process that is then killed."""

    async def take() -> None:
        async with open_runtime(directory, settings=SETTINGS) as runtime:
            for task_id in ids:
                runtime.store.acquire(task_id, runtime.holder)
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        asyncio.run(take())
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def swept(directory: Path, count: int) -> tuple[float, int, int]:
    """Seconds of the sweep, how many tasks it finished, and how many it left."""
    retry = Retry(3, 1, 300, random.Random())
    sweep = Sweep(SETTINGS, SweepOptions(directory, retry, limit=count))
    started = time.perf_counter()
    done = asyncio.run(sweep.run_pass())
    return time.perf_counter() - started, done.count("finished"), done.unfinished


def plain(directory: Path, count: int) -> float:
    """See :func:`uninterrupted`."""
    return asyncio.run(uninterrupted(directory, count))


def main() -> None:
    """Print both times and their ratio."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as root:
        interrupted = Path(root) / "swept"
        interrupt(interrupted, asyncio.run(make(interrupted, count)))
        with ProcessPoolExecutor(2, mp_context=spawn) as pool:
            one = pool.submit(plain, Path(root) / "plain", count)
            other = pool.submit(swept, interrupted, count)
            before, (after, finished, left) = one.result(), other.result()
    print(f"{count} tasks uninterrupted: {before:.2f} s ({before / count * 1000:.2f} ms each)")
    print(f"{count} tasks swept:         {after:.2f} s ({after / count * 1000:.2f} ms each)")
    print(f"ratio {after / before:.3f}; finished {finished}, left {left}")


if __name__ == "__main__":
    main()
