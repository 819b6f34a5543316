"""The stages of a task and the only table of the ways between them.

Light on purpose: the command line imports it to build its help, so nothing heavy may be
imported here.
"""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """Where a task stands; the values are the names that users, files and databases see."""

    QUEUED = "queued"
    PREPARED = "prepared"
    PAUSED = "paused"
    APPROVED = "approved"
    REJECTED = "rejected"
    RESERVED = "reserved"
    COMPLETED = "completed"
    TIMED_OUT = "timed-out"
    UNCERTAIN = "uncertain"
    COMPENSATED = "compensated"
    NEEDS_REVIEW = "needs-review"
    FAILED = "failed"


class Flow(StrEnum):
    """The eight ways to fail and recover; each is a command of its own."""

    RETRY = "retry"
    FALLBACK = "fallback"
    TIMEOUT = "timeout"
    CHECKPOINT = "checkpoint"
    PAUSE = "pause"
    SESSION = "session"
    COMPENSATION = "compensation"
    SIDE_EFFECT = "side-effect"


class Goal(StrEnum):
    """How far a task is to go before it stops by itself."""

    PREPARED = "prepared"
    RESERVED = "reserved"
    COMPLETED = "completed"

    @property
    def distance(self) -> int:
        """How far the goal lies: a goal may be raised to a greater distance, never lowered."""
        return list(Goal).index(self)


_S = Stage

TRANSITIONS: dict[Stage, frozenset[Stage]] = {
    # A stage that names itself keeps its place while a fact is added to it: an intent, a
    # selected source, a saved rejection, a session answer, a raised goal.
    _S.QUEUED: frozenset({_S.QUEUED, _S.PREPARED, _S.FAILED}),
    _S.PREPARED: frozenset(
        {
            _S.PREPARED,
            _S.PAUSED,
            _S.RESERVED,
            _S.TIMED_OUT,
            _S.UNCERTAIN,
            _S.FAILED,
            _S.NEEDS_REVIEW,
        }
    ),
    _S.PAUSED: frozenset({_S.PAUSED, _S.APPROVED, _S.REJECTED}),
    _S.APPROVED: frozenset({_S.APPROVED, _S.RESERVED, _S.UNCERTAIN, _S.FAILED, _S.NEEDS_REVIEW}),
    _S.RESERVED: frozenset(
        {_S.RESERVED, _S.COMPLETED, _S.UNCERTAIN, _S.COMPENSATED, _S.NEEDS_REVIEW}
    ),
    _S.UNCERTAIN: frozenset(
        {
            _S.UNCERTAIN,
            _S.RESERVED,
            _S.COMPLETED,
            _S.COMPENSATED,
            _S.NEEDS_REVIEW,
            _S.FAILED,
        }
    ),
    _S.TIMED_OUT: frozenset({_S.TIMED_OUT, _S.PREPARED}),
    # Only what a person decided leaves this one: their retry of a release, which may end, may
    # be refused again, or may itself be unknown for a while.
    _S.NEEDS_REVIEW: frozenset({_S.NEEDS_REVIEW, _S.COMPENSATED, _S.UNCERTAIN}),
    # Final stages keep their stage for good; a session answer or a link adds to their context.
    _S.COMPLETED: frozenset({_S.COMPLETED}),
    _S.COMPENSATED: frozenset({_S.COMPENSATED}),
    _S.REJECTED: frozenset({_S.REJECTED}),
    _S.FAILED: frozenset({_S.FAILED}),
}

FINAL: frozenset[Stage] = frozenset(
    {_S.COMPLETED, _S.COMPENSATED, _S.REJECTED, _S.FAILED, _S.NEEDS_REVIEW}
)
"""Re-entry of these asks neither the model nor the ledger."""

WAITING: frozenset[Stage] = frozenset({_S.PAUSED, _S.TIMED_OUT})
"""Only a person's decision or an explicit ``checkpoint`` continues these."""

RECOVERABLE: frozenset[Stage] = frozenset(
    {_S.QUEUED, _S.PREPARED, _S.APPROVED, _S.RESERVED, _S.UNCERTAIN}
)
"""A sweep after a restart may continue these without asking anybody."""


def allowed(current: Stage, following: Stage) -> bool:
    """Whether a task may go from ``current`` to ``following`` (which may be the same)."""
    return following in TRANSITIONS[current]
