"""What a request may say: strict JSON, checked fields, and the fingerprint of a write."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from .errors import Refusal

MAX_BODY_BYTES = 64 * 1024
MAX_QUANTITY = 100
MAX_ADDRESS = 200
MAX_STOCK = 2**53 - 1  # the largest integer that every JSON reader keeps exact
MAX_PAGE = 1000
DEFAULT_PAGE = 100

KINDS = ("reserve", "ship", "release")

_KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")
_SKU = re.compile(r"[A-Za-z0-9_-]{1,80}")
_LIMIT = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class Intent:
    """A write as it was asked for: one reserve, ship or release under one idempotency key."""

    key: str
    kind: str
    task_uid: str
    sku: str
    quantity: int
    address: str
    reservation_key: str

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the canonical JSON of all but the key.

        The other side computes the same, so an answer can be checked against what was asked.
        """
        content = {
            "kind": self.kind,
            "taskUid": self.task_uid,
            "order": {"sku": self.sku, "quantity": self.quantity, "address": self.address},
            "reservationKey": self.reservation_key,
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


def read_json(body: bytes) -> Any:
    """Parse UTF-8 JSON; ValueError also for what Python alone would let pass.

    That is: duplicate keys (which of the two was meant?), NaN and Infinity, strings that are not
    Unicode text (lone surrogates, which cannot be stored or hashed), and endless nesting.
    """
    try:
        text = body.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise ValueError("not Unicode text in UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def read_intent(kind: str, body: bytes) -> Intent:
    """Read the body of ``POST /{kind}``; Refusal 400 ``INVALID_REQUEST`` names what is wrong."""
    try:
        document = read_json(body)
    except ValueError as error:
        raise invalid(f"the body is not acceptable JSON: {error}") from None
    _check_names(document, ("key", "taskUid", "order", "reservationKey"), "the body")
    order = document["order"]
    _check_names(order, ("sku", "quantity", "address"), "order")
    for name in ("key", "taskUid", "reservationKey"):
        if not is_key(document[name]):
            raise invalid(f"{name} must be 1-100 of letters, digits, _ and -")
    if not is_sku(order["sku"]):
        raise invalid("order.sku must be 1-80 of letters, digits, _ and -")
    # bool is an int to Python, so the type is compared and not tested by isinstance
    if type(order["quantity"]) is not int or not 1 <= order["quantity"] <= MAX_QUANTITY:
        raise invalid(f"order.quantity must be an integer, 1 to {MAX_QUANTITY}")
    address = order["address"]
    if not isinstance(address, str) or not address.strip() or len(address) > MAX_ADDRESS:
        raise invalid(f"order.address must be text, not blank, at most {MAX_ADDRESS} characters")
    if kind == "reserve" and document["reservationKey"] != document["key"]:
        raise invalid("the reservationKey of a reserve is its key")
    return Intent(
        key=document["key"],
        kind=kind,
        task_uid=document["taskUid"],
        sku=order["sku"],
        quantity=order["quantity"],
        address=address,
        reservation_key=document["reservationKey"],
    )


def read_query(query: str, *names: str) -> dict[str, str]:
    """Parse a query string that may have each of ``names`` at most once, and nothing else."""
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=8
        )
    except ValueError:
        if query:
            raise invalid("the query string is malformed") from None
        pairs = []
    values = dict(pairs)
    if len(values) != len(pairs) or not values.keys() <= set(names):
        raise invalid(f"the query may have {', '.join(names) or 'nothing'}, each once")
    return values


def read_page(query: str) -> tuple[str, int]:
    """Read ``after`` (a key, default: from the start) and ``limit`` (1-1000, default 100)."""
    values = read_query(query, "after", "limit")
    after = values.get("after", "")
    if after and not is_key(after):
        raise invalid("after must be a key of the page before")
    limit = values.get("limit", str(DEFAULT_PAGE))
    if not _LIMIT.fullmatch(limit) or not 1 <= int(limit) <= MAX_PAGE:
        raise invalid(f"limit must be an integer, 1 to {MAX_PAGE}")
    return after, int(limit)


def is_key(value: object) -> bool:
    """Whether ``value`` can be an operation key or a task uid."""
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def is_sku(value: object) -> bool:
    """Whether ``value`` can name an article."""
    return isinstance(value, str) and _SKU.fullmatch(value) is not None


def invalid(message: str) -> Refusal:
    """The 400 of a request that was understood as HTTP but says something it may not."""
    return Refusal(400, "INVALID_REQUEST", message)


def _check_names(value: object, names: tuple[str, ...], where: str) -> None:
    if not isinstance(value, dict) or value.keys() != set(names):
        raise invalid(f"{where} must be an object with exactly {', '.join(names)}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
