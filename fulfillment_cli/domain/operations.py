"""External operations: their kinds, stable keys, fingerprints, and what can be known of one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from fulfillment_cli.domain.order import JsonObject, Order, fingerprint


class Kind(StrEnum):
    """The three effects a task can have on the ledger."""

    RESERVE = "reserve"
    SHIP = "ship"
    RELEASE = "release"


def operation_key(task_id: str, kind: Kind, attempt: int = 1) -> str:
    """The stable idempotency key of a task's operation.

    Args:
        task_id: The task's id, unique in its ledger.
        kind: Which effect.
        attempt: 1, or N of 2 and more for a person's N-th try of a *release*: verdicts are
            permanent, so only another key can get another verdict (contract, section 5).
    """
    if attempt > 1 and kind is not Kind.RELEASE:
        raise ValueError("only a release can be tried under another key")
    return f"{task_id}-{kind}" if attempt == 1 else f"{task_id}-{kind}-{attempt}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One effect as it is sent: the same for every attempt, whoever makes it."""

    kind: Kind
    key: str
    task_uid: str
    order: Order
    reservation_key: str

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything but the key; the ledger computes the same from the body."""
        return fingerprint(
            {
                "kind": str(self.kind),
                "taskUid": self.task_uid,
                "order": self.order.to_json(),
                "reservationKey": self.reservation_key,
            }
        )

    def body(self) -> JsonObject:
        """The JSON body of the POST."""
        return {
            "key": self.key,
            "taskUid": self.task_uid,
            "order": self.order.to_json(),
            "reservationKey": self.reservation_key,
        }


State = Literal["absent", "pending", "committed", "rejected", "conflict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the ledger says of an operation; an answer, never a guess.

    Attributes:
        state: ``absent`` (never claimed), ``pending`` (claimed, not decided), ``committed`` or
            ``rejected`` (both permanent), or ``conflict``: the key belongs to other contents.
        code: The business code of a rejection.
        result: The facts of a commit.
    """

    state: State
    code: str | None = None
    result: JsonObject | None = None
