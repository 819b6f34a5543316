"""Orders, policies, ids and actors: what is one, what is not; fingerprints."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fulfillment_cli.domain.codes import CODES
from fulfillment_cli.domain.errors import (
    Contention,
    FulfilError,
    LeaseLost,
    PlanMismatch,
    RevisionConflict,
    TaskBusy,
    UsageError,
)
from fulfillment_cli.domain.operations import Kind, Operation, operation_key
from fulfillment_cli.domain.order import (
    Order,
    Policy,
    canonical_json,
    check_actor,
    check_task_id,
    fingerprint,
    printable,
)
from tests.support import ORDER

# Bidi embeddings, overrides and isolates, marks, and line separators, by their numbers.
REORDERING = [0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]


@pytest.mark.parametrize(
    "change",
    [
        {"sku": ""},
        {"sku": "S" * 81},
        {"sku": "SKU 1"},
        {"sku": "SKU-1\n"},
        {"sku": "SKU-é"},
        {"quantity": 0},
        {"quantity": 101},
        {"quantity": "2"},
        {"quantity": 2.0},
        {"quantity": True},
        {"address": ""},
        {"address": " \t\n"},
        {"address": "x" * 201},
        {"address": "Dock\x00"},
        {"extra": 1},
    ],
    ids=str,
)
def test_an_order_is_strict(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Order.model_validate(ORDER.to_json() | change)


@pytest.mark.parametrize(
    "change",
    [
        {"sku": "S" * 80},
        {"sku": "a_B-9"},
        {"quantity": 1},
        {"quantity": 100},
        {"address": "x" * 200},
        {"address": "北京市 1号"},
    ],
    ids=str,
)
def test_an_order_may_reach_its_limits(change: dict[str, Any]) -> None:
    assert Order.model_validate(ORDER.to_json() | change).to_json() == ORDER.to_json() | change


@pytest.mark.parametrize(
    "change",
    [
        {"max_attempts": 0},
        {"max_attempts": 6},
        {"initial_max_bytes": 0},
        {"initial_max_bytes": 65537},
        {"allowed_sources": ("primary", "primary")},
        {"allowed_sources": ("mirror",)},
        {"timeout_ms": 0},
        {"timeout_ms": 60_001},
        {"timeout_ms": 1.5},
        {"max_attempts": True},
    ],
    ids=str,
)
def test_a_policy_out_of_range_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Policy(**change)


def test_canonical_json_is_one_text_for_one_value() -> None:
    assert canonical_json({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json({"a": float("nan")})


def test_an_operations_fingerprint_is_over_everything_but_its_key() -> None:
    def operation(**changes: Any) -> Operation:
        values: dict[str, Any] = {
            "kind": Kind.RESERVE,
            "key": "task-reserve",
            "task_uid": "uid",
            "order": ORDER,
            "reservation_key": "task-reserve",
        }
        return Operation(**values | changes)

    text = (
        '{"kind":"reserve","order":{"address":"Dock-North","quantity":2,"sku":"SKU-1"},'
        '"reservationKey":"task-reserve","taskUid":"uid"}'
    )
    assert operation().fingerprint == hashlib.sha256(text.encode()).hexdigest()
    assert operation(key="another").fingerprint == operation().fingerprint
    for change in (
        {"kind": Kind.SHIP},
        {"task_uid": "uid-2"},
        {"order": Order(sku="SKU-1", quantity=3, address="Dock-North")},
        {"reservation_key": "other"},
    ):
        assert operation(**change).fingerprint != operation().fingerprint


def test_operation_keys_are_stable() -> None:
    assert [operation_key("t-1", kind) for kind in Kind] == [
        "t-1-reserve",
        "t-1-ship",
        "t-1-release",
    ]
    assert operation_key("t-1", Kind.RELEASE, 2) == "t-1-release-2"
    for kind in (Kind.RESERVE, Kind.SHIP):
        with pytest.raises(ValueError, match="release"):
            operation_key("t-1", kind, 2)


@pytest.mark.parametrize("task_id", ["a", "A_b-9", "x" * 64])
def test_a_task_id(task_id: str) -> None:
    assert check_task_id(task_id) == task_id


@pytest.mark.parametrize(
    "task_id", ["", "x" * 65, "a b", "../a", "a/b", "a.b", "é", "a\n", "a\x00"]
)
def test_not_a_task_id(task_id: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_task_id(task_id)
    assert refused.value.code == "TASK_ID_INVALID"


@pytest.mark.parametrize("actor", ["a", "Ann Example <ann@example.org>", "王小明", "x" * 100])
def test_an_actor(actor: str) -> None:
    assert check_actor(actor) == actor


@pytest.mark.parametrize(
    "actor",
    [
        "",
        " ",
        "x" * 101,
        *(f"ann{chr(code)}" for code in (0, 7, 9, 10, 13, 27, 0x7F, 0x85, 0x9B, *REORDERING)),
        "ann\udcff",  # what is not UTF-8 on a command line arrives like this
    ],
    ids=ascii,
)
def test_an_actor_that_could_forge_a_line_is_none(actor: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_actor(actor)
    assert refused.value.code == "ACTOR_INVALID"


CHARACTERS = st.characters() | st.sampled_from(list(map(chr, REORDERING))) | st.just("\udcff")


@given(st.lists(CHARACTERS).map("".join))
def test_what_is_shown_has_no_control_character_and_can_be_encoded(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or ord(c) in REORDERING for c in shown)


def test_fingerprints_are_sha256() -> None:
    assert fingerprint({}) == hashlib.sha256(b"{}").hexdigest()


def subclasses(kind: type[FulfilError]) -> list[type[FulfilError]]:
    return [kind, *(deep for each in kind.__subclasses__() for deep in subclasses(each))]


@pytest.mark.parametrize("kind", subclasses(FulfilError))
def test_every_errors_own_code_is_in_the_table(kind: type[FulfilError]) -> None:
    assert kind.default_code in CODES


def test_exit_statuses_are_the_contracts() -> None:
    expected: dict[int, tuple[type[FulfilError], ...]] = {
        2: (UsageError,),
        3: (PlanMismatch,),
        5: (Contention, TaskBusy, LeaseLost, RevisionConflict),
    }
    for status, kinds in expected.items():
        assert all(kind().exit_status == status for kind in kinds)
    for code in ("FLOW_MISMATCH", "LEDGER_MISMATCH", "TASK_NOT_FOUND", "NOT_PAUSED"):
        assert UsageError(code=code).exit_status == 2
    for code in ("CATALOG_TIMEOUT", "OUTCOME_UNKNOWN", "MODEL_UNAVAILABLE", "LEDGER_UNAVAILABLE"):
        assert UsageError(code=code).exit_status == 4


def test_an_error_without_a_message_says_what_its_code_means() -> None:
    error = TaskBusy()
    assert error.message == str(error) == CODES["TASK_BUSY"].meaning
    assert error.hint == CODES["TASK_BUSY"].hint
