"""The exit status that a stage ends a command with (contract, section 2).

Errors have theirs in :mod:`fulfillment_cli.domain.codes`.
"""

from __future__ import annotations

from fulfillment_cli.domain.codes import EXIT_FAILED, EXIT_OK, EXIT_REVIEW, EXIT_UNFINISHED
from fulfillment_cli.domain.stages import Stage

EXIT_OF_STAGE: dict[Stage, int] = {
    Stage.QUEUED: EXIT_UNFINISHED,
    Stage.PREPARED: EXIT_OK,
    Stage.PAUSED: EXIT_OK,
    Stage.APPROVED: EXIT_OK,
    Stage.REJECTED: EXIT_OK,
    Stage.RESERVED: EXIT_OK,
    Stage.COMPLETED: EXIT_OK,
    Stage.TIMED_OUT: EXIT_UNFINISHED,
    Stage.UNCERTAIN: EXIT_UNFINISHED,
    Stage.COMPENSATED: EXIT_OK,
    Stage.NEEDS_REVIEW: EXIT_REVIEW,
    Stage.FAILED: EXIT_FAILED,
}
