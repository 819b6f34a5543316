"""The ledger itself: claims, verdicts and their effects."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
