"""Every path and every status, over HTTP from a real service process."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from reference_service.protocol import read_intent

Start = Callable[..., Any]


def test_an_order_is_reserved_and_shipped(start: Start, body: Any) -> None:
    service = start()
    fingerprints = {
        kind: read_intent(kind, json.dumps(body(kind, f"t-{kind}")).encode()).fingerprint
        for kind in ("reserve", "ship")
    }
    assert service.get("/operations/t-reserve") == (200, {"key": "t-reserve", "state": "absent"})
    reserved = {
        "key": "t-reserve",
        "kind": "reserve",
        "state": "committed",
        "fingerprint": fingerprints["reserve"],
        "result": {"reservationKey": "t-reserve", "sku": "SKU-1", "quantity": 2},
    }
    for _ in range(2):  # the second is the same answer, and no second reservation
        assert service.post("reserve", "t-reserve") == (200, reserved)
        assert service.get("/operations/t-reserve") == (200, reserved)
    shipped = {
        "key": "t-ship",
        "kind": "ship",
        "state": "committed",
        "fingerprint": fingerprints["ship"],
        "result": {
            "shipmentKey": "t-ship",
            "reservationKey": "t-reserve",
            "address": "Dock-North",
        },
    }
    assert service.post("ship", "t-ship") == (200, shipped)
    assert service.rows("SELECT quantity FROM inventory") == [(8,)]
    assert service.rows("SELECT key, reservation_key, address FROM shipments") == [
        ("t-ship", "t-reserve", "Dock-North")
    ]


def test_a_rejection_is_an_answer_and_is_kept(start: Start) -> None:
    service = start(faults={"rejectShipping": True})
    service.post("reserve", "t-reserve")
    for _ in range(2):
        status, answer = service.post("ship", "t-ship")
        assert (status, answer["state"], answer["code"]) == (422, "rejected", "ADDRESS_REJECTED")
        assert service.get("/operations/t-ship") == (200, answer)
    status, answer = service.post("release", "t-release")
    assert (status, answer["result"]) == (200, {"reservationKey": "t-reserve", "released": True})
    assert service.rows("SELECT quantity FROM inventory") == [(10,)]


@pytest.mark.parametrize("kind", ["reserve", "ship"])
def test_the_same_key_with_another_payload_is_a_conflict(start: Start, kind: str) -> None:
    service = start()
    service.post("reserve", "t-reserve")
    before = service.ledger_rows()
    status, answer = service.post(kind, "t-reserve", quantity=3)
    assert (status, answer["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert service.ledger_rows() == before


def test_the_catalogs(start: Start) -> None:
    service = start(stock={"SKU-1": 10, "SKU-0": 0})
    for source in ("primary", "backup"):
        expected = {"sku": "SKU-1", "available": 10, "source": source}
        assert service.get(f"/catalog/{source}?sku=SKU-1") == (200, expected)
        assert service.get(f"/catalog/{source}?sku=SKU-0")[1]["available"] == 0
        status, answer = service.get(f"/catalog/{source}?sku=SKU-9")
        assert (status, answer["error"]["code"]) == (404, "SKU_NOT_FOUND")
    service.post("reserve", "t-reserve")
    assert service.get("/catalog/backup?sku=SKU-1")[1]["available"] == 8


def test_a_primary_catalog_that_is_down(start: Start) -> None:
    service = start(faults={"primaryUnavailable": True, "catalogDelayMs": 60})
    began = time.monotonic()
    status, answer = service.get("/catalog/primary?sku=SKU-1")
    assert (status, answer["error"]["code"]) == (503, "UNAVAILABLE")
    assert service.get("/catalog/backup?sku=SKU-1")[0] == 200
    assert time.monotonic() - began >= 0.12


def test_a_lookup_that_is_down(start: Start) -> None:
    service = start(faults={"lookupUnavailable": True})
    status, answer = service.get("/operations/t-reserve")
    assert (status, answer["error"]["code"]) == (503, "LOOKUP_UNAVAILABLE")
    assert service.get("/operations")[0] == 200  # audits are no look-up


def test_a_lookup_that_goes_down_with_the_first_write(start: Start) -> None:
    faults = {"lookupUnavailableAfterWrite": True}
    service = start(faults=faults)
    assert service.get("/operations/t-reserve")[1]["state"] == "absent"
    service.post("reserve", "t-reserve")
    assert service.get("/operations/t-reserve")[0] == 503
    service.stop()
    again = start(faults=faults)
    assert again.get("/operations/t-reserve")[1]["state"] == "committed"


@pytest.mark.parametrize(
    ("switch", "kind"), [("dropReservationResponse", "reserve"), ("dropShipmentResponse", "ship")]
)
def test_an_answer_is_lost_once_and_the_work_is_done(start: Start, switch: str, kind: str) -> None:
    service = start(faults={switch: True})
    if kind == "ship":
        assert service.post("reserve", "t-reserve")[0] == 200
    with pytest.raises(http.client.RemoteDisconnected):
        service.post(kind, f"t-{kind}")
    assert service.get(f"/operations/t-{kind}")[1]["state"] == "committed"
    assert service.post(kind, f"t-{kind}")[0] == 200
    logged = f"SELECT status FROM requests WHERE method = 'POST' AND key = 't-{kind}' ORDER BY seq"
    assert service.rows(logged) == [(0,), (200,)]


def test_a_pending_operation_is_seen_by_everybody(start: Start) -> None:
    service = start(faults={"reservationDelayMs": 300})
    thread = threading.Thread(target=service.post, args=("reserve", "t-reserve"))
    thread.start()
    service.until(
        lambda: service.get("/operations/t-reserve")[1]["state"] == "pending", "the claim"
    )
    status, answer = service.post("reserve", "t-reserve")
    assert (status, answer["state"]) == (202, "pending")
    assert "result" not in answer and len(answer["fingerprint"]) == 64
    assert service.rows("SELECT quantity FROM inventory") == [(10,)]
    thread.join()
    assert service.get("/operations/t-reserve")[1]["state"] == "committed"


def test_a_client_that_hangs_up_does_not_stop_its_operation(start: Start, body: Any) -> None:
    service = start(faults={"reservationDelayMs": 100})
    payload = json.dumps(body("reserve", "t-reserve")).encode()
    head = (
        "POST /reserve HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer test-token\r\n"
        f"Content-Length: {len(payload)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        connection.sendall(head.encode() + payload)
        service.until(lambda: service.rows("SELECT 1 FROM operations") != [], "the claim")
    service.until(
        lambda: service.get("/operations/t-reserve")[1]["state"] == "committed", "the verdict"
    )


def test_audits_read_everything_page_by_page(start: Start) -> None:
    service = start(stock={"A": 5, "B": 5})
    for key, sku in (("r1", "A"), ("r2", "B"), ("r3", "A")):
        service.post("reserve", key, sku=sku)
    service.post("ship", "s1", sku="A", reservationKey="r1", address="Tor 7")
    service.post("release", "x1", sku="B", reservationKey="r2")

    def pages(name: str) -> list[dict[str, Any]]:
        rows, after = [], ""
        while True:
            status, page = service.get(f"/{name}?limit=2{after and '&after=' + after}")
            assert status == 200 and len(page[name]) <= 2
            rows += page[name]
            if page["next"] is None:
                return rows
            after = page["next"]

    operations = pages("operations")
    assert [row["key"] for row in operations] == ["r1", "r2", "r3", "s1", "x1"]
    assert all(row["state"] == "committed" and row["code"] is None for row in operations)
    assert operations[3]["result"]["address"] == "Tor 7"
    assert pages("reservations") == [
        {"key": "r1", "sku": "A", "quantity": 2, "status": "shipped", "taskUid": "uid-1"},
        {"key": "r2", "sku": "B", "quantity": 2, "status": "released", "taskUid": "uid-1"},
        {"key": "r3", "sku": "A", "quantity": 2, "status": "active", "taskUid": "uid-1"},
    ]
    assert pages("shipments") == [{"key": "s1", "reservationKey": "r1", "address": "Tor 7"}]
    assert pages("inventory") == [
        {"sku": "A", "quantity": 1, "initialQuantity": 5},
        {"sku": "B", "quantity": 5, "initialQuantity": 5},
    ]


def test_the_log_has_every_request_in_order_and_no_address(start: Start) -> None:
    service = start()
    service.get("/healthz")
    service.get("/catalog/backup?sku=SKU-1")
    service.post("reserve", "t-reserve")
    service.get("/operations/t-reserve")
    service.post("ship", "t ship")
    service.request("GET", "/healthz", token="wrong")
    service.get("/nowhere")
    service.raw(b"GET /broken HTTP/1.1\r\nno colon\r\n\r\n")
    sql = "SELECT method, path, query, key, status FROM requests ORDER BY seq"
    assert service.rows(sql) == [
        ("GET", "/healthz", "", None, 200),
        ("GET", "/catalog/backup", "sku=SKU-1", None, 200),
        ("POST", "/reserve", "", "t-reserve", 200),
        ("GET", "/operations/t-reserve", "", "t-reserve", 200),
        ("POST", "/ship", "", None, 400),
        ("GET", "/healthz", "", None, 401),
        ("GET", "/nowhere", "", None, 404),
        ("GET", "/broken", "", None, 400),
    ]
    assert "Dock-North" not in repr(service.rows("SELECT * FROM requests"))
    assert all(at.endswith("Z") for (at,) in service.rows("SELECT at FROM requests"))
