"""A random order for the demo tasks: its text, its facts, and a stock that can fill it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from fulfillment_cli.domain.order import Order

_PLACES = ("Dock", "Gate", "Bay", "Hall", "Ramp", "Yard")
_SIDES = ("North", "South", "East", "West", "Upper", "Lower")


@dataclass(frozen=True, slots=True)
class NewOrder:
    """A generated order.

    Attributes:
        text: The free text that a model is to extract it from.
        expected: The order that stands in the text.
        stock: Opening stock of the demo ledger: at least what is ordered.
    """

    text: str
    expected: Order
    stock: dict[str, int]


def new_order(chance: random.Random | None = None) -> NewOrder:
    """Make one up.

    Args:
        chance: Source of chance; the operating system's where none is given.
    """
    chance = chance or random.SystemRandom()
    order = Order(
        sku=f"SKU-{chance.randint(100, 999)}",
        quantity=chance.randint(1, 20),
        address=f"{chance.choice(_PLACES)}-{chance.choice(_SIDES)}",
    )
    text = (
        f"Fulfillment request. SKU: {order.sku}; quantity: {order.quantity}; "
        f"delivery address: {order.address}."
    )
    return NewOrder(text, order, {order.sku: order.quantity + chance.randint(0, 20)})
