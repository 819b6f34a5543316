"""Sweeps over a shop's directory, in this process, under a clock that stands still."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.domain.stages import Flow, Goal
from fulfillment_cli.flows.creation import NewTask, ensure_task, make_policy
from fulfillment_cli.recovery.attempt import Retry
from fulfillment_cli.recovery.summary import Pass
from fulfillment_cli.recovery.sweep import Sweep, SweepOptions
from fulfillment_cli.runtime import Runtime
from fulfillment_cli.settings import Settings
from tests.support import TEXT, Shop

Swept = Callable[..., Awaitable[Pass]]
Queue = Callable[..., Awaitable[None]]


@pytest.fixture
def sweep(shop: Shop) -> Swept:
    """Run one pass over the shop's directory, or over ``root``."""

    async def run(
        root: Path | None = None,
        *,
        origins: tuple[str, ...] = (),
        stopping: Callable[[], bool] = lambda: False,
        max_attempts: int = 3,
        **options: Any,
    ) -> Pass:
        settings = Settings.model_validate(shop.config(*origins))
        retry = Retry(max_attempts, base=1.0, cap=300.0, random=random.Random(7))
        given = SweepOptions(root or shop.directory, retry, **options)
        return await Sweep(settings, given, shop.clock, stopping).run_pass()

    return run


@pytest.fixture
def queue(shop: Shop) -> Queue:
    """Make a queued task that nobody has worked on."""

    async def make(
        runtime: Runtime,
        task_id: str = "task",
        flow: Flow = Flow.CHECKPOINT,
        goal: Goal = Goal.COMPLETED,
        text: str = TEXT,
        **policy: Any,
    ) -> None:
        shop.clock.advance(1)
        new = NewTask(text.encode(), flow, make_policy({}, **policy), goal)
        await ensure_task(runtime, task_id, new)

    return make
