"""Fault switches: real delays, refusals and lost answers, turned on by the fixture file.

They belong to the service alone. No request can set or read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .errors import StartError
from .protocol import MAX_STOCK, is_sku, read_json

MAX_DELAY_MS = 600_000


@dataclass(frozen=True, slots=True)
class Faults:
    """What is to go wrong. The JSON name of a switch is its name here in camel case.

    Switches are booleans; delays are whole milliseconds, 0 to 600000.
    """

    primary_unavailable: bool = False
    """``GET /catalog/primary`` answers 503."""
    catalog_delay_ms: int = 0
    """Both catalogs wait this long before they answer."""
    reject_shipping: bool = False
    """Every shipment that could be made is rejected with ``ADDRESS_REJECTED``."""
    reject_release: bool = False
    """Every release that could be made is rejected with ``RELEASE_REJECTED``."""
    drop_reservation_response: bool = False
    """The connection is closed without an answer after a reserve has its verdict."""
    drop_shipment_response: bool = False
    """The same for a shipment."""
    lookup_unavailable: bool = False
    """``GET /operations/KEY`` answers 503."""
    lookup_unavailable_after_write: bool = False
    """The same, once this process has received any write."""
    reservation_delay_ms: int = 0
    """A reserve stays claimed (``pending``) this long before its work is done."""

    @property
    def refused_kinds(self) -> frozenset[str]:
        """The kinds of operation that get a rejection where they could have succeeded."""
        switches = {"ship": self.reject_shipping, "release": self.reject_release}
        return frozenset(kind for kind, on in switches.items() if on)

    @property
    def dropped_kinds(self) -> frozenset[str]:
        """The kinds of operation whose first answer is lost."""
        switches = {
            "reserve": self.drop_reservation_response,
            "ship": self.drop_shipment_response,
        }
        return frozenset(kind for kind, on in switches.items() if on)


@dataclass(frozen=True, slots=True)
class Fixture:
    """What the service takes from a fixture file; every other key in it is someone else's."""

    stock: Mapping[str, int] = field(default_factory=dict)
    faults: Faults = Faults()


def parse_faults(mapping: Mapping[str, Any]) -> Faults:
    """Read switches by their JSON names; StartError ``FIXTURE_INVALID`` names what is wrong."""
    known = {_json_name(item.name): item.name for item in fields(Faults)}
    values: dict[str, Any] = {}
    for name, value in mapping.items():
        if name not in known:
            raise _invalid(f"unknown fault {name!r}; known are {', '.join(known)}")
        if name.endswith("Ms"):
            if type(value) is not int or not 0 <= value <= MAX_DELAY_MS:
                raise _invalid(f"fault {name} must be whole milliseconds, 0 to {MAX_DELAY_MS}")
        elif type(value) is not bool:
            raise _invalid(f"fault {name} must be true or false")
        values[known[name]] = value
    return Faults(**values)


def parse_stock(mapping: Mapping[str, Any]) -> dict[str, int]:
    """Read ``{sku: quantity}``; StartError ``FIXTURE_INVALID`` names what is wrong."""
    for sku, quantity in mapping.items():
        if not is_sku(sku):
            raise _invalid(f"stock: {sku!r} is not a sku (1-80 of letters, digits, _ and -)")
        if type(quantity) is not int or not 0 <= quantity <= MAX_STOCK:
            raise _invalid(f"stock: the quantity of {sku} must be an integer from 0")
    return dict(mapping)


def load_fixture(path: str) -> Fixture:
    """Read a fixture file. Raises StartError ``FIXTURE_INVALID``."""
    try:
        document = read_json(Path(path).read_bytes())
    except OSError as error:
        raise _invalid(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise _invalid(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise _invalid(f"{path}: must be a JSON object")
    parts = {name: document.get(name, {}) for name in ("stock", "faults")}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise _invalid(f"{path}: {name} must be an object")
    return Fixture(parse_stock(parts["stock"]), parse_faults(parts["faults"]))


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _invalid(message: str) -> StartError:
    return StartError("FIXTURE_INVALID", message)
