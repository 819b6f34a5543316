"""Strict reading of what clients and fixture files say."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from reference_service.errors import Refusal, StartError
from reference_service.faults import Faults, load_fixture, parse_faults, parse_stock
from reference_service.protocol import read_intent, read_json, read_page, read_query


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_a_fingerprint_is_the_hash_of_text_that_any_client_can_build(body: Any) -> None:
    intent = read_intent("ship", encoded(body("ship", "t-ship", address="Tor 7, Zürich")))
    text = (
        '{"kind":"ship","order":{"address":"Tor 7, Zürich","quantity":2,"sku":"SKU-1"},'
        '"reservationKey":"t-reserve","taskUid":"uid-1"}'
    )
    assert intent.fingerprint == hashlib.sha256(text.encode("utf-8")).hexdigest()


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "release"},
        {"sku": "SKU-2"},
        {"quantity": 3},
        {"address": "Dock-South"},
        {"taskUid": "uid-2"},
        {"reservationKey": "other"},
    ],
)
def test_every_part_of_an_intent_is_in_its_fingerprint(body: Any, changes: Any) -> None:
    plain = read_intent("ship", encoded(body("ship", "k")))
    kind = changes.pop("kind", "ship")
    changed = read_intent(kind, encoded(body(kind, "k", **changes)))
    assert changed.fingerprint != plain.fingerprint


def test_the_key_is_not_in_the_fingerprint(body: Any) -> None:
    one, two = (read_intent("ship", encoded(body("ship", key))) for key in ("a", "b"))
    assert one.fingerprint == two.fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {"quantity": 1},
        {"quantity": 100},
        {"sku": "a" * 80},
        {"address": "x" * 200},
        {"address": "上海市浦东新区 8 号"},
        {"taskUid": "_-"},
    ],
)
def test_the_edges_of_the_ranges_are_allowed(body: Any, changes: Any) -> None:
    assert read_intent("reserve", encoded(body("reserve", "k" * 100, **changes))).key == "k" * 100


@pytest.mark.parametrize(
    "changes",
    [
        *[{"quantity": value} for value in (0, 101, -1, 2.0, "2", True, None, 10**30, [2])],
        *[{"sku": value} for value in ("", "a" * 81, "a b", "ä", "a\n", 7, None)],
        *[{"address": value} for value in ("", " \t\n", "x" * 201, 7, None, ["Dock"])],
        *[{"taskUid": value} for value in ("", "a" * 101, "a/b", 7, None)],
        *[{"key": value} for value in ("", "a" * 101, "../x", "k\n", 7, None)],
        {"reservationKey": "another"},
        {"extra": 1},
        {"order": None},
        {"order": []},
        {"order": {"sku": "SKU-1", "quantity": 2}},
        {"order": {"sku": "SKU-1", "quantity": 2, "address": "d", "more": 1}},
    ],
    ids=repr,
)
def test_a_value_out_of_range_is_refused(body: Any, changes: Any) -> None:
    document = body("reserve", "k")
    document["order"] |= {
        name: changes.pop(name) for name in list(changes) if name in document["order"]
    }
    with pytest.raises(Refusal) as caught:
        read_intent("reserve", encoded(document | changes))
    assert (caught.value.status, caught.value.code) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("name", ["key", "taskUid", "order", "reservationKey"])
def test_a_missing_field_is_refused(body: Any, name: str) -> None:
    document = body("reserve", "k")
    del document[name]
    with pytest.raises(Refusal, match=name):
        read_intent("reserve", encoded(document))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1,]",
        b"{'a': 1}",
        b'{"a": 1, "a": 1}',
        b'[{"b": {"a": 1, "a": 2}}]',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b'"\xff"',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b"[" * 30_000,
        b"[" * 30_000 + b"]" * 30_000,
        b"9" * 5_000,
        b"{} {}",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_json_that_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_json(text)


def test_a_surrogate_pair_is_one_character() -> None:
    assert read_json(b'"\\ud83d\\ude9a"') == "🚚"


@pytest.mark.parametrize(
    "query", ["a", "sku", "sku=1&sku=2", "sku=1&x=2", "sku=%ff", "&", "sku=1&"]
)
def test_a_query_has_known_names_once(query: str) -> None:
    with pytest.raises(Refusal):
        read_query(query, "sku")


def test_a_page_has_defaults_and_bounds() -> None:
    assert read_page("") == ("", 100)
    assert read_page("after=a-b_C&limit=1000") == ("a-b_C", 1000)
    for query in (
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=1e2",
        "limit=",
        "limit=²",
        "after=a/b",
    ):
        with pytest.raises(Refusal):
            read_page(query)


def test_faults_are_read_by_their_json_names() -> None:
    assert parse_faults({}) == Faults()
    faults = parse_faults({"rejectShipping": True, "catalogDelayMs": 600_000})
    assert faults == Faults(reject_shipping=True, catalog_delay_ms=600_000)
    assert faults.refused_kinds == {"ship"}
    assert parse_faults({"dropReservationResponse": True}).dropped_kinds == {"reserve"}


def test_the_contract_lists_the_faults() -> None:
    names = [
        "primaryUnavailable",
        "catalogDelayMs",
        "rejectShipping",
        "rejectRelease",
        "dropReservationResponse",
        "dropShipmentResponse",
        "lookupUnavailable",
        "lookupUnavailableAfterWrite",
        "reservationDelayMs",
    ]
    for name in names:
        assert parse_faults({name: 1 if name.endswith("Ms") else True}) != Faults()
    assert len(names) == len(Faults.__dataclass_fields__)


@pytest.mark.parametrize(
    "faults",
    [
        {"backupUnavailable": True},
        {"reject_shipping": True},
        {"rejectShipping": 1},
        {"rejectShipping": "true"},
        {"rejectShipping": None},
        {"catalogDelayMs": True},
        {"catalogDelayMs": -1},
        {"catalogDelayMs": 600_001},
        {"reservationDelayMs": 1.0},
        {"reservationDelayMs": "5"},
    ],
    ids=repr,
)
def test_a_wrong_fault_is_named(faults: Any) -> None:
    with pytest.raises(StartError, match=next(iter(faults))) as caught:
        parse_faults(faults)
    assert (caught.value.code, caught.value.exit_status) == ("FIXTURE_INVALID", 2)


@pytest.mark.parametrize(
    "stock", [{"a": -1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a b": 1}, {"": 1}, {"a": 2**53}]
)
def test_wrong_stock_is_refused(stock: Any) -> None:
    with pytest.raises(StartError):
        parse_stock(stock)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"stock": []}', '{"faults": null}', '{"stock": {"a": 1, "a": 2}}']
)
def test_a_wrong_fixture_is_refused(tmp_path: Any, text: str) -> None:
    path = tmp_path / "fixture.json"
    path.write_text(text)
    with pytest.raises(StartError) as caught:
        load_fixture(str(path))
    assert caught.value.code == "FIXTURE_INVALID"


def test_a_fixture_may_hold_what_is_not_ours(tmp_path: Any) -> None:
    path = tmp_path / "fixture.json"
    path.write_text('{"stock": {"SKU-1": 0}, "order": null, "flow": "retry"}')
    fixture = load_fixture(str(path))
    assert (fixture.stock, fixture.faults) == ({"SKU-1": 0}, Faults())
