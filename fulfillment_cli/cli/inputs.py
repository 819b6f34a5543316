"""The user's own files: ``--request`` and ``--inventory``."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fulfillment_cli.adapters.source import read_bounded
from fulfillment_cli.domain.errors import SourceError, UsageError
from fulfillment_cli.domain.order import MAX_SOURCE_BYTES

STDIN = "-"
MAX_INVENTORY_BYTES = 16 * 1024 * 1024
MAX_STOCK = 2**53 - 1
"""Most of one sku: beyond it, readers of JSON round."""


def read_request(path: str) -> bytes:
    """The order text of ``--request``: a file, or standard input for ``-``.

    Raises:
        UsageError: ``REQUEST_INVALID``.
    """
    if path == STDIN:
        content = sys.stdin.buffer.read(MAX_SOURCE_BYTES + 1)
        if len(content) > MAX_SOURCE_BYTES:
            raise UsageError(
                f"Standard input has more than {MAX_SOURCE_BYTES} bytes.", code="REQUEST_INVALID"
            )
        return content
    if not path:
        raise UsageError("--request is empty.", code="REQUEST_INVALID")
    try:
        return read_bounded(Path(path), MAX_SOURCE_BYTES)
    except SourceError as error:
        raise UsageError(error.message, code="REQUEST_INVALID") from None


def read_inventory(path: Path) -> dict[str, int]:
    """The stock of ``--inventory``: CSV with the columns ``sku,quantity``, or JSON.

    Raises:
        UsageError: ``INVENTORY_INVALID`` with the file and where in it.
    """
    text = _read_text(path)
    is_json = text.lstrip()[:1] in ("{", "[")
    stock = _checked(path, _json_rows(path, text) if is_json else _csv_rows(path, text))
    if not stock:
        raise _invalid(path, "names no sku")
    return stock


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_INVENTORY_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise _invalid(path, error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise _invalid(path, "is not UTF-8 text") from None
    if len(content) > MAX_INVENTORY_BYTES:
        raise _invalid(path, f"is longer than {MAX_INVENTORY_BYTES} bytes")
    return text


Rows = Iterable[tuple[str, Any, Any]]
"""Where a row stands, its sku and its quantity, both as they were written."""


def _csv_rows(path: Path, text: str) -> Rows:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        if sorted(header) != ["quantity", "sku"]:
            raise _invalid(path, "line 1: the columns must be sku,quantity")
        sku, quantity = header.index("sku"), header.index("quantity")
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            where = f"line {reader.line_num}"
            if len(row) != 2:
                raise _invalid(path, f"{where}: needs two values, has {len(row)}")
            number = row[quantity].strip()
            # int() takes more than people mean by a whole number: 1_000, Arabic digits.
            plain = re.fullmatch(r"[+-]?[0-9]{1,16}", number)
            yield where, row[sku].strip(), int(number) if plain else number
    except csv.Error as error:
        raise _invalid(path, f"line {reader.line_num}: not CSV ({error})") from None


def _json_rows(path: Path, text: str) -> Rows:
    pairs: list[tuple[str, Any]] = []
    try:
        # A name that stands twice would vanish in a dict.
        value = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}: " if isinstance(error, json.JSONDecodeError) else ""
        raise _invalid(path, f"{where}not JSON") from None
    if isinstance(value, _Pairs):
        pairs = [(f"entry {sku!r}", (sku, quantity)) for sku, quantity in value]
    elif isinstance(value, list):
        for number, entry in enumerate(value, 1):
            fields = dict(entry) if isinstance(entry, _Pairs) else {}
            if len(fields) != 2 or set(fields) != {"sku", "quantity"} or len(entry) != 2:
                raise _invalid(path, f'entry {number}: must be {{"sku": ..., "quantity": ...}}')
            pairs.append((f"entry {number}", (fields["sku"], fields["quantity"])))
    for where, (sku, quantity) in pairs:
        yield where, sku, quantity


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it was written."""


def _checked(path: Path, rows: Rows) -> dict[str, int]:
    stock: dict[str, int] = {}
    for where, sku, quantity in rows:
        if not isinstance(sku, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", sku):
            raise _invalid(path, f"{where}: {sku!r} is not a sku (1-80 of letters, digits, _, -)")
        if type(quantity) is not int or not 0 <= quantity <= MAX_STOCK:
            raise _invalid(path, f"{where}: the quantity of {sku} must be a whole number from 0")
        if sku in stock:
            raise _invalid(path, f"{where}: {sku} stands twice")
        stock[sku] = quantity
    return stock


def _invalid(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path}: {reason}.", code="INVENTORY_INVALID")


def check_question(question: str | None) -> str | None:
    """The question of ``--question``, before anything is made for it.

    Raises:
        UsageError: It is not 1 to 1000 characters of text.
    """
    if question is None:
        return None
    if not question.strip() or len(question) > 1000:
        raise UsageError(
            f"A question has 1 to 1000 characters; this one has {len(question)}.",
            hint="Shorten --question, or leave it out for the usual one.",
        )
    if any("\ud800" <= character <= "\udfff" for character in question):
        raise UsageError("The question is not text in the terminal's encoding.")
    return question
