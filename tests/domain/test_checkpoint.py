"""Checkpoint: write-once facts, the plan, the approval, what comes next."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import PlanMismatch, UsageError
from fulfillment_cli.domain.operations import Kind
from fulfillment_cli.domain.order import (
    Approval,
    Intent,
    Issue,
    Order,
    Policy,
    Reservation,
)
from fulfillment_cli.domain.stages import Flow, Stage
from tests.support import ORDER, first_checkpoint, plan_facts

AT = "2026-01-02T03:04:05.000006+00:00"


def prepared(**facts: Any) -> Checkpoint:
    first = first_checkpoint(**facts)
    return first.follow(Stage.PREPARED, AT, **plan_facts(first))


def decision(checkpoint: Checkpoint, **changes: Any) -> Approval:
    plan = checkpoint.plan_fingerprint
    values = {"decision": "approve", "actor": "ann", "plan_fingerprint": plan, "at": AT}
    return Approval(**values | changes)


def test_following_adds_one_to_the_revision_and_names_the_time() -> None:
    first = first_checkpoint()
    following = first.follow(Stage.QUEUED, AT)
    assert (following.revision, following.updated_at) == (first.revision + 1, AT)
    assert following.created_at == first.created_at
    assert first.revision == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", "other"),
        ("task_uid", "0" * 32),
        ("ledger_id", "ledger-2"),
        ("flow", Flow.RETRY),
        ("policy", Policy(max_attempts=2)),
        ("requires_approval", True),
        ("source_hash", "0" * 64),
        ("order", Order(sku="SKU-1", quantity=3, address="Dock-North")),
        ("plan_fingerprint", "0" * 64),
        ("created_at", AT),
    ],
)
def test_a_write_once_fact_is_never_replaced(name: str, value: Any) -> None:
    checkpoint = prepared()
    with pytest.raises(PlanMismatch):
        checkpoint.follow(checkpoint.stage, AT, **{name: value})


@pytest.mark.parametrize("name", ["order", "plan_fingerprint"])
def test_a_write_once_fact_is_never_removed(name: str) -> None:
    checkpoint = prepared()
    with pytest.raises(PlanMismatch):
        checkpoint.follow(checkpoint.stage, AT, **{name: None})


def test_a_decision_is_never_replaced() -> None:
    paused = prepared().follow(Stage.PAUSED, AT)
    approved = paused.follow(Stage.APPROVED, AT, approval=decision(paused))
    for other in (decision(paused, actor="bob"), decision(paused, decision="reject"), None):
        with pytest.raises(PlanMismatch):
            approved.follow(Stage.APPROVED, AT, approval=other)


def test_a_task_does_not_end_while_an_operation_has_no_verdict() -> None:
    intent = Intent(operation="reserve", key="task-reserve", attempt=1)
    sent = prepared().follow(Stage.PREPARED, AT, intent=intent)
    with pytest.raises(UsageError) as refused:
        sent.follow(Stage.FAILED, AT)
    assert refused.value.code == "TRANSITION_REFUSED"
    assert sent.follow(Stage.FAILED, AT, intent=None).final
    assert sent.follow(Stage.UNCERTAIN, AT).intent == intent


def test_facts_are_validated_when_they_are_written() -> None:
    with pytest.raises(ValidationError):
        first_checkpoint().follow(Stage.QUEUED, AT, selected_source="elsewhere")
    with pytest.raises(ValidationError):
        first_checkpoint().follow(Stage.QUEUED, AT, nothing_known="x")


def test_a_checkpoint_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError):
        first_checkpoint().revision = 7


def test_json_is_camel_case_and_reads_back_the_same() -> None:
    checkpoint = prepared()
    document = checkpoint.to_json()
    promised = (
        "schemaVersion id revision flow stage sourceHash planFingerprint order context reservation"
        " shipment approval requiresApproval selectedSource goal error compensationError"
        " uncertainty"
    )
    assert set(promised.split()) <= set(document)
    assert not any("_" in name for name in document)
    assert Checkpoint.model_validate(document) == checkpoint


@pytest.mark.parametrize("change", [{"schemaVersion": 2}, {"unknown": 1}, {"stage": "shipping"}])
def test_a_document_of_another_shape_is_not_a_checkpoint(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Checkpoint.model_validate(prepared().to_json() | change)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "other"},
        {"task_uid": "0" * 32},
        {"ledger_id": "ledger-2"},
        {"flow": Flow.RETRY},
        {"policy": Policy(compensates=True)},
        {"policy": Policy(requires_approval=True)},
        {"requires_approval": True},
        {"source_hash": "0" * 64},
        {"order": Order(sku="SKU-1", quantity=3, address="Dock-North")},
        {"order": Order(sku="SKU-2", quantity=2, address="Dock-North")},
        {"order": Order(sku="SKU-1", quantity=2, address="Dock-South")},
        {"plan_fingerprint": "0" * 64},
        {"order": None},
        {"plan_fingerprint": None},
    ],
    ids=str,
)
def test_anything_that_the_plan_binds_is_missed_when_it_changes(change: dict[str, Any]) -> None:
    checkpoint = prepared()
    assert checkpoint.planned_order == ORDER
    with pytest.raises(PlanMismatch):
        _ = checkpoint.model_copy(update=change).planned_order
    with pytest.raises(PlanMismatch):
        checkpoint.model_copy(update=change).operation(Kind.RESERVE)


def test_what_the_plan_does_not_bind_may_change() -> None:
    checkpoint = prepared()
    later = checkpoint.model_copy(update={"revision": 9, "stage": Stage.UNCERTAIN, "attempts": 2})
    assert later.planned_order == ORDER


def test_an_approval_is_bound_to_its_plan() -> None:
    paused = prepared(policy=Policy(requires_approval=True)).follow(Stage.PAUSED, AT)
    paused.follow(Stage.APPROVED, AT, approval=decision(paused)).require_approval()
    for approval in (
        None,
        decision(paused, decision="reject"),
        decision(paused, plan_fingerprint="0" * 64),
    ):
        with pytest.raises(PlanMismatch):
            paused.model_copy(update={"approval": approval}).require_approval()


def test_a_task_that_needs_no_approval_needs_none() -> None:
    prepared().require_approval()


def test_what_comes_next_is_read_off_what_is_saved() -> None:
    checkpoint = prepared()
    reservation = Reservation(key="task-reserve", sku="SKU-1", quantity=2, status="active")
    reserved = checkpoint.follow(Stage.RESERVED, AT, reservation=reservation)
    refused = reserved.follow(
        Stage.RESERVED, AT, error=Issue(code="ADDRESS_REJECTED", message="no")
    )
    assert [each.next_operation for each in (checkpoint, reserved, refused)] == [
        Kind.RESERVE,
        Kind.SHIP,
        Kind.RELEASE,
    ]


def test_a_persons_retry_of_a_release_has_a_key_of_its_own() -> None:
    checkpoint = prepared().model_copy(update={"release_attempt": 3})
    keys = [checkpoint.operation(kind).key for kind in Kind]
    assert keys == ["task-reserve", "task-ship", "task-release-3"]
    assert checkpoint.operation(Kind.RELEASE).reservation_key == "task-reserve"


@pytest.mark.parametrize(
    "change",
    [
        {"selected_source": "backup"},
        {"catalog_waived": True},
        {"intent": Intent(operation="reserve", key="task-reserve", attempt=1)},
        {"reservation": Reservation(key="k", sku="s", quantity=1, status="active")},
        {"policy": Policy()},
    ],
    ids=str,
)
def test_the_catalog_is_not_read_again(change: dict[str, Any]) -> None:
    checkpoint = prepared(policy=Policy(allowed_sources=("primary",)))
    assert checkpoint.reads_catalog
    assert not checkpoint.model_copy(update=change).reads_catalog
