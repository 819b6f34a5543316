"""What a new task is made from: a user's files, or a generated order."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import sys
from pathlib import Path
from typing import Any

from fulfillment_cli.adapters.source import read_bounded
from fulfillment_cli.domain.errors import SourceError, UsageError
from fulfillment_cli.domain.faults import parse_fault
from fulfillment_cli.domain.order import MAX_SOURCE_BYTES, Order
from fulfillment_cli.domain.stages import Flow

DEMO_FAULTS: dict[Flow, dict[str, bool | int]] = {
    Flow.FALLBACK: {"primaryUnavailable": True},
    Flow.TIMEOUT: {"catalogDelayMs": 500},
    Flow.COMPENSATION: {"rejectShipping": True},
    Flow.SIDE_EFFECT: {"dropReservationResponse": True},
}
"""What a flow's new ledger does wrong, so that there is something to recover from."""

MAX_INVENTORY_BYTES = 16 * 1024 * 1024
MAX_STOCK = 1_000_000_000


def read_request(name: str) -> bytes:
    """The text of ``--request``: a file, or standard input for ``-``.

    Raises:
        UsageError: ``REQUEST_INVALID``.
    """
    if name == "-":
        return sys.stdin.buffer.read(MAX_SOURCE_BYTES + 1)
    try:
        return read_bounded(Path(name), MAX_SOURCE_BYTES)
    except SourceError as error:
        raise UsageError(f"--request: {error.message}", code="REQUEST_INVALID") from None


def read_inventory(path: Path) -> dict[str, int]:
    """Opening stock by sku.

    Raises:
        UsageError: ``INVENTORY_INVALID``, with the row that is wrong.
    """
    try:
        content = path.read_bytes()[: MAX_INVENTORY_BYTES + 1]
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise _invalid(path, error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise _invalid(path, "is not UTF-8 text") from None
    if len(content) > MAX_INVENTORY_BYTES:
        raise _invalid(path, "is too long")
    rows = _json_rows(path, text) if text.lstrip()[:1] in ("{", "[") else _csv_rows(path, text)
    stock: dict[str, int] = {}
    for where, sku, quantity in rows:
        if not isinstance(sku, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", sku):
            raise _invalid(path, f"{where}: {sku!r} is not a sku")
        if type(quantity) is not int or not 0 <= quantity <= MAX_STOCK:
            raise _invalid(path, f"{where}: {quantity!r} is not a whole number from 0")
        if sku in stock:
            raise _invalid(path, f"{where}: {sku} stands twice")
        stock[sku] = quantity
    return stock


def _csv_rows(path: Path, text: str) -> list[tuple[str, Any, Any]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise _invalid(path, f"line {reader.line_num}: {error}") from None
    if not rows or [cell.lower() for cell in rows[0][1]] != ["sku", "quantity"]:
        raise _invalid(path, "the first line must be sku,quantity")
    found: list[tuple[str, Any, Any]] = []
    for line, cells in rows[1:]:
        if len(cells) != 2:
            raise _invalid(path, f"line {line}: {len(cells)} cells instead of 2")
        sku, count = cells
        found.append((f"line {line}", sku, int(count) if _is_count(count) else count))
    return found


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


def _json_rows(path: Path, text: str) -> list[tuple[str, Any, Any]]:
    def pairs(items: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        return items  # a sku that stands twice must not vanish in a dict

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"is not JSON ({error})") from None
    if value and all(isinstance(item, list) for item in value):  # [{"sku": ...}, ...]
        entries = [(f"entry {n}", dict(entry)) for n, entry in enumerate(value, 1)]
        return [(where, entry.get("sku"), entry.get("quantity")) for where, entry in entries]
    if not all(isinstance(item, tuple) for item in value):
        raise _invalid(path, "must be {sku: quantity} or a list of {sku, quantity}")
    return [(f"key {sku!r}", sku, quantity) for sku, quantity in value]


def _invalid(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path}: {reason}.", code="INVENTORY_INVALID")


def merge_faults(flow: Flow, given: list[str]) -> dict[str, bool | int]:
    """A flow's own faults, changed by what was given with ``--fault``."""
    return DEMO_FAULTS.get(flow, {}) | dict(parse_fault(text) for text in given)


def generate_order() -> tuple[Order, str, dict[str, int]]:
    """A random order, its request text, and a stock that can fill it."""
    order = Order(
        sku=f"SKU-{random.randint(100, 999)}",
        quantity=random.randint(1, 9),
        address=f"{random.choice(('Dock', 'Gate', 'Hall', 'Pier'))}-"
        f"{random.choice(('North', 'South', 'East', 'West'))}",
    )
    text = (
        f"Fulfillment request. SKU: {order.sku}; quantity: {order.quantity}; "
        f"delivery address: {order.address}.\n"
    )
    return order, text, {order.sku: order.quantity + random.randint(1, 20)}
