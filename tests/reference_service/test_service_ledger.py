"""The ledger itself: each verdict, and a model that any order of calls must follow."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reference_service.database import Database
from reference_service.ledger import KeyConflict, Ledger
from reference_service.protocol import Intent

RESERVE = Intent("t-reserve", "reserve", "uid-1", "SKU-1", 2, "Dock", "t-reserve")
SHIP = replace(RESERVE, key="t-ship", kind="ship")
RELEASE = replace(RESERVE, key="t-release", kind="release")


def opened(path: Path, stock: dict[str, int]) -> Ledger:
    return Ledger(Database.open(str(path), stock, existing=False))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(opened(tmp_path / "s.sqlite", {"SKU-1": 10})) as ledger:
        yield ledger


def done(ledger: Ledger, intent: Intent, **options: Any) -> tuple[str, str | None]:
    ledger.claim(intent)
    operation = ledger.settle(intent.key, **options)
    return operation.state, operation.code


def status(ledger: Ledger) -> Any:
    return ledger.reservations("", 10)[0]["status"]


def test_a_claim_has_no_effect_and_settling_it_has_it_once(ledger: Ledger) -> None:
    operation, claimed = ledger.claim(RESERVE)
    assert (claimed, operation.state, operation.result) == (True, "pending", None)
    assert ledger.available("SKU-1") == 10
    for _ in range(3):
        assert ledger.settle("t-reserve").result == {
            "reservationKey": "t-reserve",
            "sku": "SKU-1",
            "quantity": 2,
        }
        assert ledger.available("SKU-1") == 8
    operation, claimed = ledger.claim(RESERVE)
    assert (claimed, operation.state) == (False, "committed")


def test_an_order_is_shipped(ledger: Ledger) -> None:
    done(ledger, RESERVE)
    assert done(ledger, SHIP) == ("committed", None)
    assert (status(ledger), ledger.available("SKU-1")) == ("shipped", 8)
    assert ledger.shipments("", 10) == [
        {"key": "t-ship", "reservationKey": "t-reserve", "address": "Dock"}
    ]
    assert done(ledger, replace(SHIP, key="again")) == ("rejected", "ALREADY_SHIPPED")
    assert done(ledger, RELEASE) == ("rejected", "ALREADY_SHIPPED")


def test_an_order_is_released(ledger: Ledger) -> None:
    done(ledger, RESERVE)
    assert done(ledger, RELEASE) == ("committed", None)
    assert (status(ledger), ledger.available("SKU-1")) == ("released", 10)
    assert done(ledger, replace(RELEASE, key="again")) == ("rejected", "RESERVATION_INACTIVE")
    assert done(ledger, SHIP) == ("rejected", "RESERVATION_INACTIVE")
    assert ledger.available("SKU-1") == 10


@pytest.mark.parametrize("changes", [{"quantity": 11}, {"sku": "SKU-9"}])
def test_what_is_not_there_is_not_reserved(ledger: Ledger, changes: Any) -> None:
    assert done(ledger, replace(RESERVE, **changes)) == ("rejected", "INSUFFICIENT_STOCK")
    assert (ledger.available("SKU-1"), ledger.reservations("", 10)) == (10, [])


def test_the_last_piece_can_be_reserved(ledger: Ledger) -> None:
    assert done(ledger, replace(RESERVE, quantity=10)) == ("committed", None)
    assert ledger.available("SKU-1") == 0


@pytest.mark.parametrize("intent", [SHIP, RELEASE], ids=lambda intent: intent.kind)
@pytest.mark.parametrize(
    "changes",
    [{"sku": "SKU-2"}, {"quantity": 1}, {"task_uid": "uid-2"}, {"reservation_key": "none"}],
    ids=repr,
)
def test_only_the_reservation_that_was_made_is_used(
    ledger: Ledger, intent: Intent, changes: Any
) -> None:
    done(ledger, RESERVE)
    assert done(ledger, replace(intent, **changes)) == ("rejected", "RESERVATION_MISMATCH")
    assert (status(ledger), ledger.available("SKU-1")) == ("active", 8)


def test_a_switch_refuses_only_what_could_have_succeeded(ledger: Ledger) -> None:
    refused = {"ship", "release"}
    assert done(ledger, SHIP, refused_kinds=refused) == ("rejected", "RESERVATION_MISMATCH")
    done(ledger, RESERVE, refused_kinds=refused)
    rejected = replace(SHIP, key="ship-2")
    assert done(ledger, rejected, refused_kinds=refused) == ("rejected", "ADDRESS_REJECTED")
    assert done(ledger, RELEASE, refused_kinds=refused) == ("rejected", "RELEASE_REJECTED")
    assert (status(ledger), ledger.available("SKU-1")) == ("active", 8)
    assert done(ledger, rejected) == ("rejected", "ADDRESS_REJECTED")  # permanent
    assert done(ledger, replace(RELEASE, key="release-2")) == ("committed", None)


@pytest.mark.parametrize("other", [replace(RESERVE, quantity=3), replace(RESERVE, kind="ship")])
def test_a_key_stands_for_one_intent(ledger: Ledger, other: Intent) -> None:
    done(ledger, RESERVE)
    with pytest.raises(KeyConflict):
        ledger.claim(other)
    assert ledger.available("SKU-1") == 8


def test_recovery_goes_in_the_order_of_the_claims(ledger: Ledger) -> None:
    first, second = (
        replace(RESERVE, key=key, reservation_key=key, quantity=6) for key in ("z", "a")
    )
    ledger.claim(first)
    ledger.claim(second)
    assert ledger.recover() == 2
    assert ledger.recover() == 0
    states = {item.intent.key: item.state for item in ledger.operations("", 10)}
    assert states == {"z": "committed", "a": "rejected"}


def test_recovery_keeps_the_rules_of_the_run(ledger: Ledger) -> None:
    done(ledger, RESERVE)
    ledger.claim(SHIP)
    ledger.recover({"ship"})
    operation = ledger.operation("t-ship")
    assert operation is not None and operation.code == "ADDRESS_REJECTED"


def test_of_many_threads_one_claims_and_one_effect_happens(ledger: Ledger) -> None:
    barrier = threading.Barrier(8)
    wins: list[bool] = []

    def run() -> None:
        barrier.wait()
        wins.append(ledger.claim(RESERVE)[1])
        ledger.settle(RESERVE.key)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sorted(wins), ledger.available("SKU-1")) == ([False] * 7 + [True], 8)


def test_pages_are_in_order_and_complete(ledger: Ledger) -> None:
    for key in ("c", "a", "b"):
        done(ledger, replace(RESERVE, key=key, reservation_key=key))
    assert [item["key"] for item in ledger.reservations("", 2)] == ["a", "b"]
    assert [item["key"] for item in ledger.reservations("b", 2)] == ["c"]
    assert [item.intent.key for item in ledger.operations("a", 9)] == ["b", "c"]


STOCK = {"A": 5, "B": 3}
reservation_keys = st.sampled_from(["r1", "r2", "r3", "r4"])
intents = st.one_of(
    st.builds(
        lambda key, uid, sku, quantity: Intent(key, "reserve", uid, sku, quantity, "d", key),
        reservation_keys,
        st.sampled_from(["u", "v"]),
        st.sampled_from([*STOCK, "none"]),
        st.integers(1, 4),
    ),
    st.builds(
        lambda key, kind, uid, sku, quantity, reservation: Intent(
            key, kind, uid, sku, quantity, "d", reservation
        ),
        st.sampled_from(["r1", "s1", "s2", "s3"]),
        st.sampled_from(["ship", "release"]),
        st.just("u"),
        st.sampled_from(list(STOCK)),
        st.integers(1, 2),
        reservation_keys,
    ),
)


class LedgerMachine(RuleBasedStateMachine):
    """Any order of claims, settlements, repetitions, conflicts and restarts.

    The model knows verdicts only by the rules of the contract, written again in Python.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.ledger = opened(self.directory / "s.sqlite", STOCK)
        self.ledger_id = self.ledger.ledger_id
        self.stock = dict(STOCK)
        self.claims: dict[str, Intent] = {}  # insertion order is claim order
        self.verdicts: dict[str, str] = {}
        self.reservations: dict[str, tuple[Intent, str]] = {}

    def teardown(self) -> None:
        self.ledger.close()
        shutil.rmtree(self.directory)

    def expect(self, intent: Intent, refused: frozenset[str]) -> str:
        """The verdict that is due, and its effect on the model."""
        if intent.kind == "reserve":
            if self.stock.get(intent.sku, 0) < intent.quantity:
                return "INSUFFICIENT_STOCK"
            self.stock[intent.sku] -= intent.quantity
            self.reservations[intent.key] = (intent, "active")
            return "committed"
        made, state = self.reservations.get(intent.reservation_key, (None, ""))
        wanted = (intent.sku, intent.quantity, intent.task_uid)
        if made is None or (made.sku, made.quantity, made.task_uid) != wanted:
            return "RESERVATION_MISMATCH"
        if state != "active":
            return {"shipped": "ALREADY_SHIPPED", "released": "RESERVATION_INACTIVE"}[state]
        if intent.kind in refused:
            return {"ship": "ADDRESS_REJECTED", "release": "RELEASE_REJECTED"}[intent.kind]
        if intent.kind == "release":
            self.stock[intent.sku] += intent.quantity
        state = {"ship": "shipped", "release": "released"}[intent.kind]
        self.reservations[intent.reservation_key] = (made, state)
        return "committed"

    def settled(self, key: str, refused: frozenset[str]) -> None:
        if key not in self.verdicts:
            self.verdicts[key] = self.expect(self.claims[key], refused)

    @rule(intent=intents)
    def claim(self, intent: Intent) -> None:
        known = self.claims.get(intent.key)
        if known is not None and known != intent:
            with pytest.raises(KeyConflict):
                self.ledger.claim(intent)
            return
        operation, claimed = self.ledger.claim(intent)
        assert claimed == (known is None)
        assert operation.intent == intent
        self.claims[intent.key] = intent

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), refused=st.sampled_from([frozenset(), frozenset({"ship", "release"})]))
    def settle(self, data: st.DataObject, refused: frozenset[str]) -> None:
        """Also a second time, and under another switch: a verdict is permanent."""
        key = data.draw(st.sampled_from(list(self.claims)))
        operation = self.ledger.settle(key, refused)
        self.settled(key, refused)
        assert (operation.code or operation.state) == self.verdicts[key]

    @rule(intent=intents)
    def submit(self, intent: Intent) -> None:
        self.claim(intent)
        if self.claims[intent.key] == intent:
            self.ledger.settle(intent.key)
            self.settled(intent.key, frozenset())

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.ledger = opened(self.directory / "s.sqlite", {"A": 999})
        pending = [key for key in self.claims if key not in self.verdicts]
        assert self.ledger.recover() == len(pending)
        for key in pending:
            self.settled(key, frozenset())
        assert self.ledger.ledger_id == self.ledger_id

    @invariant()
    def stock_is_conserved(self) -> None:
        rows = self.ledger.reservations("", 100)
        for row in self.ledger.inventory("", 100):
            held = sum(
                item["quantity"]
                for item in rows
                if item["sku"] == row["sku"] and item["status"] in ("active", "shipped")
            )
            assert row["quantity"] >= 0
            assert row["quantity"] + held == row["initialQuantity"] == STOCK[row["sku"]]
            assert row["quantity"] == self.stock[row["sku"]]

    @invariant()
    def the_ledger_is_the_model(self) -> None:
        operations = self.ledger.operations("", 100)
        assert {item.intent.key: item.intent for item in operations} == self.claims
        verdicts = {i.intent.key: i.code or i.state for i in operations if not i.pending}
        assert verdicts == self.verdicts
        statuses = {row["key"]: row["status"] for row in self.ledger.reservations("", 100)}
        assert statuses == {key: state for key, (_, state) in self.reservations.items()}
        shipped = [row["reservationKey"] for row in self.ledger.shipments("", 100)]
        assert sorted(shipped) == sorted(k for k, v in statuses.items() if v == "shipped")


LedgerMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLedgerModel = LedgerMachine.TestCase
