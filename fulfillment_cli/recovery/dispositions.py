"""What an error means for a sweep: try again, give up, or leave the task as it is."""

from __future__ import annotations

from enum import StrEnum

from fulfillment_cli.domain.errors import (
    AnswerRefused,
    Contention,
    FulfilError,
    LedgerError,
    ModelUnavailable,
    PlanMismatch,
    SourceError,
    StoreError,
    TaskNotFound,
)


class Disposition(StrEnum):
    """What becomes of a task whose attempt ended in an error."""

    RETRY = "retry"
    """Later, with the same keys and plan; uses an attempt."""
    GIVE_UP = "give-up"
    """A dead letter at once: trying again would bring the same."""
    LEAVE = "leave"
    """Somebody else is at work on it; uses no attempt."""
    SKIP = "skip"
    """It belongs to another ledger than the one at hand."""
    CONFIGURE = "configure"
    """Configuration, credentials or permissions; said once, uses no attempt."""
    BROKEN = "broken"
    """Its database cannot be used, so that nothing can be saved about it either."""


_BROKEN_CODES = frozenset({"DATABASE_INVALID", "LEDGER_INVALID"})
_POISON_CODES = frozenset({"TRANSITION_REFUSED", "INTERNAL", "TASK_ID_INVALID"})


def disposition(error: FulfilError) -> Disposition:
    """Classify an error of one attempt."""
    if error.code == "DIRECTORY_NOT_WRITABLE":
        return Disposition.CONFIGURE
    if error.code in _BROKEN_CODES or isinstance(error, StoreError | SourceError):
        return Disposition.BROKEN
    if isinstance(error, Contention | TaskNotFound):
        return Disposition.LEAVE
    if error.code == "LEDGER_MISMATCH":
        return Disposition.SKIP
    if isinstance(error, PlanMismatch | AnswerRefused) or error.code in _POISON_CODES:
        return Disposition.GIVE_UP
    if isinstance(error, ModelUnavailable | LedgerError):
        return Disposition.RETRY
    return Disposition.CONFIGURE
