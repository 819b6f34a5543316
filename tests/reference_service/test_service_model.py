"""Any order of calls on the ledger, against a model of its rules."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reference_service.database import Database
from reference_service.ledger import KeyConflict, Ledger
from reference_service.protocol import Intent


def opened(path: Path, stock: dict[str, int]) -> Ledger:
    return Ledger(Database.open(str(path), stock, existing=False))


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
