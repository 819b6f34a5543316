"""Approvals that expire: one outcome at the deadline; expired is not rejected."""

from __future__ import annotations

from typing import Any

import pytest

from fulfillment_cli.cli.durations import parse_duration
from fulfillment_cli.domain.errors import FulfilError, UsageError
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.flows.pause import resume_paused, run_pause
from tests.support import TEXT, Shop


async def paused(shop: Shop, expires_in: float) -> None:
    async with shop.open() as runtime:
        result = await run_pause(runtime, request=TEXT, expires_in=expires_in)
    assert result.stage is Stage.PAUSED


async def decided(shop: Shop, decision: Any = "approve") -> Stage:
    async with shop.open() as runtime:
        return (await resume_paused(runtime, decision, "anna")).stage


async def test_a_decision_at_the_deadline_is_made(shop: Shop) -> None:
    await paused(shop, 7200)
    shop.clock.advance(7200)
    assert await decided(shop) is Stage.COMPLETED
    saved = shop.document()
    assert saved["approval"]["at"] == saved["approvalExpiresAt"]


@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_a_decision_after_it_is_refused_and_the_task_stays_paused(
    shop: Shop, sweep: Any, decision: str
) -> None:
    await paused(shop, 7200)
    shop.clock.advance(7200.001)
    before = shop.document()
    with pytest.raises(UsageError) as caught:
        await decided(shop, decision)
    assert caught.value.code == "APPROVAL_EXPIRED"
    assert (await sweep()).exit_status == 0
    assert shop.document() == before
    assert shop.ledger.posts() == []


async def test_it_is_opened_again(shop: Shop) -> None:
    await paused(shop, 1)
    shop.clock.advance(100)
    await paused(shop, 60)
    shop.clock.advance(60)
    assert await decided(shop, "reject") is Stage.REJECTED
    with pytest.raises(UsageError) as caught:
        await paused(shop, 60)
    assert caught.value.code == "ALREADY_DECIDED"


async def test_re_entry_without_a_time_leaves_the_deadline(shop: Shop) -> None:
    await paused(shop, 60)
    deadline = shop.document()["approvalExpiresAt"]
    async with shop.open() as runtime:
        await run_pause(runtime)
    assert shop.document()["approvalExpiresAt"] == deadline


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5h", 5400), ("365d", 31536000)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "--expires-in") == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "0s", "-1h", "366d", "2 h", "1h30m", "٢h", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(FulfilError) as caught:
        parse_duration(text, "--expires-in")
    assert caught.value.exit_status == 2
