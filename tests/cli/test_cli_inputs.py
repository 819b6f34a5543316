"""The user's own files: --request, --inventory, --fault, and the generated order."""

from __future__ import annotations

import dataclasses
import io
import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from fulfillment_cli.cli.inputs import read_inventory, read_request
from fulfillment_cli.cli.new_order import new_order
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.faults import DEMO_FAULTS, FAULTS, MAX_DELAY_MS, faults_for, parse_fault
from fulfillment_cli.domain.stages import Flow
from reference_service import faults as service_faults


@pytest.mark.parametrize(
    ("text", "stock"),
    [
        ("sku,quantity\nA-1,10\nB_2,0\n", {"A-1": 10, "B_2": 0}),
        ("\ufeffSKU, Quantity\r\nA-1, 10\r\n\r\n", {"A-1": 10}),
        ("quantity,sku\n3,A-1", {"A-1": 3}),
        ('sku,quantity\n"A-1","7"\n', {"A-1": 7}),
        ('{"A-1": 10, "B": 0}', {"A-1": 10, "B": 0}),
        ('\ufeff [{"sku": "A-1", "quantity": 10}]', {"A-1": 10}),
    ],
)
def test_inventories(text: str, stock: dict[str, int], tmp_path: Path) -> None:
    path = tmp_path / "stock"
    path.write_text(text, encoding="utf-8", newline="")

    assert read_inventory(path) == stock


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1: the columns must be sku,quantity"),
        ("sku;quantity\nA;1\n", "line 1: the columns must be sku,quantity"),
        ("sku,quantity\nA-1,10\nB,-1\n", "line 3: the quantity of B must be a whole number"),
        ("sku,quantity\nA,1.5\n", "line 2: the quantity of A must be a whole number"),
        ("sku,quantity\nA,ten\n", "line 2: the quantity of A"),
        ("sku,quantity\nA,1_000\n", "line 2: the quantity of A"),
        ("sku,quantity\nA,\u0661\n", "line 2: the quantity of A"),
        ("sku,quantity\nA,\n", "line 2: the quantity of A"),
        ("sku,quantity\nA,9007199254740992\n", "line 2: the quantity of A"),
        ("sku,quantity\nA\n", "line 2: needs two values, has 1"),
        ("sku,quantity\nA,1,2\n", "line 2: needs two values, has 3"),
        ("sku,quantity\nA,1\nA,1\n", "line 3: A stands twice"),
        ("sku,quantity\nA B,1\n", "line 2: 'A B' is not a sku"),
        (f"sku,quantity\n{'x' * 81},1\n", "is not a sku"),
        ('sku,quantity\n"A,1\n', "not CSV"),
        ('{"A": 1, "A": 2}', "entry 'A': A stands twice"),
        ('{"A": -1}', "entry 'A': the quantity of A"),
        ('{"A": true}', "entry 'A': the quantity of A"),
        ('{"A": 1.0}', "entry 'A': the quantity of A"),
        ('{"A": "1"}', "entry 'A': the quantity of A"),
        ('{"A": 1', "line 1: not JSON"),
        ("[1]", "entry 1: must be"),
        ('[{"sku": "A"}]', "entry 1: must be"),
        ('[{"sku": "A", "quantity": 1, "at": 2}]', "entry 1: must be"),
        ('[{"sku": 1, "quantity": 1}]', "entry 1: 1 is not a sku"),
        ("[" * 100_000, "not JSON"),
        ("sku,quantity\n", "names no sku"),
        ("{}", "names no sku"),
        ("[]", "names no sku"),
    ],
)
def test_inventories_that_are_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "stock"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(UsageError) as caught:
        read_inventory(path)

    assert caught.value.code == "INVENTORY_INVALID"
    assert str(path) in caught.value.message
    assert reason in caught.value.message


def test_an_inventory_must_be_text_of_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fulfillment_cli.cli.inputs.MAX_INVENTORY_BYTES", 20)
    path = tmp_path / "stock.csv"
    for content in (b"\xff\xfe", b"sku,quantity\n" + b"A,1\n" * 2):
        path.write_bytes(content)
        with pytest.raises(UsageError) as caught:
            read_inventory(path)
        assert caught.value.code == "INVENTORY_INVALID"
    with pytest.raises(UsageError, match="directory"):
        read_inventory(tmp_path)


def test_requests_from_a_file_and_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "order.txt"
    path.write_bytes(b"two of A-1")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"three of A-1")))

    assert read_request(str(path)) == b"two of A-1"
    assert read_request("-") == b"three of A-1"


def make_link(path: Path) -> None:
    path.with_name("target").write_text("two of A-1")
    path.symlink_to("target")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make_link, id="symlink"),
        pytest.param(os.mkfifo, id="fifo"),
        pytest.param(os.mkdir, id="directory"),
        pytest.param(lambda path: path.write_bytes(b"x" * 65537), id="too long"),
        pytest.param(lambda path: None, id="missing"),
    ],
)
def test_requests_that_are_refused(make: object, tmp_path: Path) -> None:
    path = tmp_path / "order.txt"
    assert callable(make)
    make(path)

    with pytest.raises(UsageError) as caught:
        read_request(str(path))

    assert caught.value.code == "REQUEST_INVALID"


def test_standard_input_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"x" * 65537)))

    with pytest.raises(UsageError) as caught:
        read_request("-")

    assert caught.value.code == "REQUEST_INVALID"


def test_the_faults_are_those_of_the_service() -> None:
    service = {
        service_faults._json_name(field.name): field.type
        for field in dataclasses.fields(service_faults.Faults)
    }

    assert set(service) == set(FAULTS)
    assert {name for name, kind in service.items() if kind == "int"} == {
        name for name in FAULTS if name.endswith("Ms")
    }
    assert service_faults.MAX_DELAY_MS == MAX_DELAY_MS
    for faults in DEMO_FAULTS.values():
        service_faults.parse_faults(faults)


def test_faults_are_read() -> None:
    assert parse_fault("rejectShipping") == ("rejectShipping", True)
    assert parse_fault("rejectShipping=true") == ("rejectShipping", True)
    assert parse_fault("rejectShipping=false") == ("rejectShipping", False)
    assert parse_fault("catalogDelayMs=0") == ("catalogDelayMs", 0)
    assert parse_fault("catalogDelayMs=600000") == ("catalogDelayMs", 600_000)


def test_a_given_fault_overrides_the_one_of_the_flow() -> None:
    given = ["rejectShipping=false", "catalogDelayMs=5"]

    assert faults_for(Flow.COMPENSATION, []) == {"rejectShipping": True}
    assert faults_for(Flow.COMPENSATION, given) == {"rejectShipping": False, "catalogDelayMs": 5}
    assert faults_for(Flow.CHECKPOINT, []) == {}


def test_generated_orders_differ_stand_in_their_text_and_can_be_filled() -> None:
    chance = random.Random(0)
    orders = [new_order(chance) for _ in range(200)]

    assert len({order.text for order in orders}) > 150
    for order in orders:
        expected = order.expected
        for fact in (f"SKU: {expected.sku};", f"quantity: {expected.quantity};", expected.address):
            assert fact in order.text
        assert order.stock[expected.sku] >= expected.quantity
        assert len(order.text.encode()) > 16  # so that `retry` has something to retry
