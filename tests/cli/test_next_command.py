"""The printed command is the one that takes the task on."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from fulfillment_cli.cli.next_command import Place, command_line, next_command
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.order import Issue, Policy
from fulfillment_cli.domain.stages import FINAL, Flow, Goal, Stage

PLACE = Place("/orders/d")


def checkpoint(**facts: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "id": "task",
        "task_uid": "u",
        "ledger_id": "l",
        "revision": 3,
        "flow": Flow.CHECKPOINT,
        "policy": Policy(),
        "goal": Goal.COMPLETED,
        "stage": Stage.QUEUED,
        "source_hash": "h",
        "created_at": "t",
        "updated_at": "t",
    }
    return Checkpoint(**values | facts)


@pytest.mark.parametrize("stage", sorted(FINAL - {Stage.NEEDS_REVIEW}))
def test_nothing_follows_the_end(stage: Stage) -> None:
    assert next_command(checkpoint(stage=stage), PLACE) is None


def test_a_person_is_shown_what_can_be_done_until_the_task_is_closed() -> None:
    waiting = checkpoint(stage=Stage.NEEDS_REVIEW)
    assert next_command(waiting, PLACE) == f"fulfil review --directory {PLACE.directory}"
    assert next_command(waiting.model_copy(update={"closed": True}), PLACE) is None


@pytest.mark.parametrize(
    ("flow", "stage", "goal", "command"),
    [
        (Flow.RETRY, Stage.QUEUED, Goal.COMPLETED, "retry"),
        (Flow.RETRY, Stage.PREPARED, Goal.COMPLETED, "retry"),
        (Flow.COMPENSATION, Stage.UNCERTAIN, Goal.COMPLETED, "compensation"),
        (Flow.SIDE_EFFECT, Stage.RESERVED, Goal.COMPLETED, "side-effect"),
        (Flow.PAUSE, Stage.APPROVED, Goal.COMPLETED, "pause"),
        (Flow.TIMEOUT, Stage.TIMED_OUT, Goal.COMPLETED, "checkpoint"),
        (Flow.CHECKPOINT, Stage.RESERVED, Goal.RESERVED, "checkpoint"),
        (Flow.CHECKPOINT, Stage.PREPARED, Goal.PREPARED, "checkpoint"),
        (Flow.SESSION, Stage.QUEUED, Goal.PREPARED, "session"),
        (Flow.SESSION, Stage.PREPARED, Goal.PREPARED, "checkpoint"),
        (Flow.SESSION, Stage.UNCERTAIN, Goal.COMPLETED, "checkpoint"),
    ],
)
def test_what_continues_a_task(flow: Flow, stage: Stage, goal: Goal, command: str) -> None:
    task = checkpoint(flow=flow, stage=stage, goal=goal)

    assert next_command(task, PLACE) == f"fulfil {command} --directory /orders/d"


def test_a_rejected_shipment_is_not_a_place_to_stop_at() -> None:
    task = checkpoint(
        flow=Flow.COMPENSATION,
        stage=Stage.RESERVED,
        goal=Goal.RESERVED,
        error=Issue(code="ADDRESS_REJECTED", message="no"),
    )

    assert next_command(task, PLACE) == "fulfil compensation --directory /orders/d"


def test_a_paused_task_is_to_be_decided_at_the_revision_that_was_shown() -> None:
    task = checkpoint(flow=Flow.PAUSE, stage=Stage.PAUSED)

    assert next_command(task, PLACE) == (
        "fulfil pause --directory /orders/d --decision approve --actor NAME --revision 3"
    )


def test_all_that_is_needed_to_find_the_task_again_is_repeated_and_quoted() -> None:
    place = Place(
        "/it's here/d",
        task="t-1",
        service_url="http://127.0.0.1:1",
        provider="my model",
        config="/c.yaml",
        env_file="/e",
    )

    words = shlex.split(command_line("retry", place))

    assert words == [
        *("fulfil", "retry", "--directory", "/it's here/d", "--task", "t-1"),
        *("--service-url", "http://127.0.0.1:1", "--provider", "my model"),
        *("--config", "/c.yaml", "--env-file", "/e"),
    ]
