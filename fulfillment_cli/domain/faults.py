"""The fault switches that ``--fault`` knows, and what the demos of the flows turn on.

The switches are the service's own; this table repeats its names and ranges so that a mistake is
told before anything is made. A test compares the two. Light on purpose: no imports of weight.
"""

from __future__ import annotations

from collections.abc import Iterable

from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.stages import Flow

MAX_DELAY_MS = 600_000

FAULTS: dict[str, str] = {
    "primaryUnavailable": "the primary catalog answers 503",
    "catalogDelayMs": "both catalogs wait this long before they answer",
    "rejectShipping": "every shipment is rejected with ADDRESS_REJECTED",
    "rejectRelease": "every release is rejected with RELEASE_REJECTED",
    "dropReservationResponse": "the answer of a reserve is lost",
    "dropShipmentResponse": "the answer of a shipment is lost",
    "lookupUnavailable": "looking an operation up answers 503",
    "lookupUnavailableAfterWrite": "the same, once the service has received any write",
    "reservationDelayMs": "a reserve stays pending this long",
}
"""Names that end in ``Ms`` are whole milliseconds, 0 to 600000; the others are on or off."""

DEMO_FAULTS: dict[Flow, dict[str, bool | int]] = {
    Flow.FALLBACK: {"primaryUnavailable": True},
    Flow.TIMEOUT: {"catalogDelayMs": 500},
    Flow.COMPENSATION: {"rejectShipping": True},
    Flow.SIDE_EFFECT: {"dropReservationResponse": True},
}
"""What makes a flow's new directory show what the flow is for; ``--fault`` overrides it."""


def parse_fault(text: str) -> tuple[str, bool | int]:
    """Read ``NAME`` or ``NAME=VALUE``; a bare name turns its switch on.

    Raises:
        UsageError: ``FAULT_INVALID``.
    """
    name, given, value = text.partition("=")
    if name not in FAULTS:
        raise _invalid(f"There is no fault {name!r}.", f"Known are: {', '.join(FAULTS)}.")
    if name.endswith("Ms"):
        if not (value.isascii() and value.isdigit() and len(value) <= 6) or (
            int(value) > MAX_DELAY_MS
        ):
            raise _invalid(
                f"Fault {name} needs whole milliseconds, 0 to {MAX_DELAY_MS}, not {value!r}.",
                f"For example --fault {name}=500.",
            )
        return name, int(value)
    if given and value not in ("true", "false"):
        raise _invalid(
            f"Fault {name} is true or false, not {value!r}.", f"For example --fault {name}."
        )
    return name, value != "false"


def faults_for(flow: Flow, given: Iterable[str]) -> dict[str, bool | int]:
    """The switches of a new directory: the flow's own, then what was given.

    Raises:
        UsageError: ``FAULT_INVALID``.
    """
    return DEMO_FAULTS.get(flow, {}) | dict(parse_fault(text) for text in given)


def _invalid(message: str, hint: str) -> UsageError:
    return UsageError(message, code="FAULT_INVALID", hint=hint)
