"""The twenty experiments of the contract, section 7: what each does and what it must leave."""

from __future__ import annotations

from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.experiments import reading, resuming, writing
from fulfillment_cli.experiments.scenario import FULFIL, PRIMARY, RELEASE, RESERVE, SHIP, Scenario

S = Stage

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "retry-adjusts-read-limit",
        reading.retry_adjusts,
        S.COMPLETED,
        1,
        FULFIL,
        check=reading.reads_twice,
    ),
    Scenario("retry-exhausted", reading.retry_exhausted, S.FAILED, 0, [], "SOURCE_TOO_LARGE"),
    Scenario(
        "retry-permanent-missing-source", reading.retry_missing, S.FAILED, 0, [], "SOURCE_NOT_FOUND"
    ),
    Scenario(
        "fallback-allowed-backup",
        reading.fallback_allowed,
        S.COMPLETED,
        1,
        [*PRIMARY, "GET /catalog/backup", *FULFIL],
        check=reading.selected("backup"),
    ),
    Scenario(
        "fallback-disallowed-backup",
        reading.fallback_disallowed,
        S.FAILED,
        1,
        PRIMARY,
        "UNAVAILABLE",
        reading.selected(None),
    ),
    Scenario(
        "fallback-does-not-hide-business-rejection",
        reading.fallback_business,
        S.FAILED,
        1,
        PRIMARY,
        "INSUFFICIENT_STOCK",
        reading.selected(None),
    ),
    Scenario("read-deadline", reading.read_deadline, S.TIMED_OUT, 1, PRIMARY, "CATALOG_TIMEOUT"),
    Scenario("read-before-deadline", reading.read_in_time, S.COMPLETED, 1, PRIMARY + FULFIL),
    Scenario(
        "checkpoint-process-crash-and-resume",
        resuming.checkpoint_crash,
        S.COMPLETED,
        1,
        FULFIL,
        check=resuming.other_pids,
    ),
    Scenario(
        "pause-process-crash-and-approve",
        resuming.pause_crash,
        S.COMPLETED,
        1,
        FULFIL,
        check=resuming.approved_after_crash,
    ),
    Scenario("pause-rejected", resuming.pause_rejected, S.REJECTED, 1, []),
    Scenario(
        "session-in-a-new-process",
        resuming.session_elsewhere,
        S.RESERVED,
        2,
        RESERVE,
        check=resuming.session_saved,
    ),
    Scenario(
        "compensation-restores-inventory",
        writing.compensation,
        S.COMPENSATED,
        1,
        FULFIL + RELEASE,
        "ADDRESS_REJECTED",
        writing.restored,
    ),
    Scenario(
        "compensation-failed-needs-review",
        writing.compensation_failed,
        S.NEEDS_REVIEW,
        1,
        FULFIL + RELEASE,
        "ADDRESS_REJECTED",
        writing.still_reserved,
    ),
    Scenario(
        "lost-response-reconciled",
        writing.lost_response,
        S.COMPLETED,
        1,
        [*RESERVE, "GET /operations/task-reserve", *SHIP],
    ),
    Scenario(
        "unknown-effect-crash-and-reconcile",
        writing.unknown_then_crash,
        S.COMPLETED,
        1,
        [*RESERVE, "GET /operations/task-reserve", "GET /operations/task-reserve", *SHIP],
        check=resuming.other_pids,
    ),
    Scenario(
        "pending-write-no-duplicate-retry",
        writing.pending_write,
        S.COMPLETED,
        1,
        [*RESERVE, "GET /operations/task-reserve", "GET /operations/task-reserve", *SHIP],
    ),
    Scenario(
        "lookup-unavailable-no-blind-write",
        writing.lookup_unavailable,
        S.UNCERTAIN,
        1,
        ["GET /operations/task-reserve", "GET /operations/task-reserve"],
        check=writing.uncertain_unwritten,
    ),
    Scenario(
        "completed-task-idempotent-reentry", writing.idempotent_reentry, S.COMPLETED, 1, FULFIL
    ),
    Scenario("caller-cancelled-before-work", writing.cancelled_before_work, S.QUEUED, 0, []),
)
