"""The reference service's fault switches by name, as ``--fault`` takes them.

The service has the last word on them; this table is for messages and help. Light on purpose.
"""

from __future__ import annotations

from fulfillment_cli.domain.errors import UsageError

MAX_DELAY_MS = 600_000

FLAGS = (
    "primaryUnavailable",
    "rejectShipping",
    "rejectRelease",
    "dropReservationResponse",
    "dropShipmentResponse",
    "lookupUnavailable",
    "lookupUnavailableAfterWrite",
)
DELAYS = ("catalogDelayMs", "reservationDelayMs")


def parse_fault(text: str) -> tuple[str, bool | int]:
    """Read ``NAME`` or ``NAME=VALUE``.

    Raises:
        UsageError: ``FAULT_INVALID``: no such name, or a value it cannot have.
    """
    name, given, value = text.partition("=")
    if name in FLAGS:
        flags = {"": True, "true": True, "false": False}
        if value.lower() in flags and not (given and not value):
            return name, flags[value.lower()]
        raise UsageError(f"{name} is true or false, not {value!r}.", code="FAULT_INVALID")
    if name in DELAYS:
        if value.isascii() and value.isdigit() and int(value) <= MAX_DELAY_MS:
            return name, int(value)
        raise UsageError(f"{name} is 0 to {MAX_DELAY_MS} milliseconds.", code="FAULT_INVALID")
    raise UsageError(
        f"There is no fault {name!r}.",
        code="FAULT_INVALID",
        hint=f"Faults: {', '.join((*FLAGS, *DELAYS))}.",
    )
