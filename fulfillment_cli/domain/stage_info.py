"""What each stage means, what entering it again does, and what a person does about it.

With :mod:`fulfillment_cli.domain.codes` the one source for ``fulfil explain``, the pages of
``fulfil show`` and the table of the README. Light on purpose, like that one.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fulfillment_cli.domain.codes import CODES
from fulfillment_cli.domain.stages import Stage

if TYPE_CHECKING:
    from fulfillment_cli.domain.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class StageInfo:
    """One row of the table.

    Attributes:
        meaning: What is known of a task that stands here; no full stop, as in a table.
        again: What entering it again does, the same way.
        hint: What to do next, safe in every case.
    """

    meaning: str
    again: str
    hint: str


_PRINTED = "Run the printed command, or `fulfil recover`; either continues from here."
_NOTHING = "Nothing is left to do."

STAGE_INFO: dict[Stage, StageInfo] = {
    Stage.QUEUED: StageInfo("waiting for extraction", "continues", _PRINTED),
    Stage.PREPARED: StageInfo(
        "order, plan fingerprint and context are saved",
        "continues",
        _PRINTED,
    ),
    Stage.PAUSED: StageInfo(
        "waiting for a decision; nothing was written outside",
        "stays until it is decided",
        "Decide: `fulfil pause --directory DIR --decision approve|reject --actor NAME`.",
    ),
    Stage.APPROVED: StageInfo(
        "the decision was yes, bound to this order's plan", "continues", _PRINTED
    ),
    Stage.REJECTED: StageInfo(
        "the decision was no", "stays", f"Nothing was written outside. {_NOTHING}"
    ),
    Stage.RESERVED: StageInfo(
        "the reservation is confirmed at the ledger and saved",
        "continues",
        f"Shipping is next, or the release of a rejected shipment. {_PRINTED}",
    ),
    Stage.COMPLETED: StageInfo("the shipment is confirmed", "stays", _NOTHING),
    Stage.TIMED_OUT: StageInfo(
        "a read passed its deadline before any write",
        "`checkpoint` continues it",
        "`fulfil checkpoint --directory DIR` goes on without the catalog.",
    ),
    Stage.UNCERTAIN: StageInfo(
        "an operation is pending or cannot be looked up",
        "looks the operation up first",
        f"Do not order again by other means. {_PRINTED}",
    ),
    Stage.COMPENSATED: StageInfo(
        "the shipment was rejected and the release is confirmed",
        "stays",
        "The stock is free again; correct the order and start a new task.",
    ),
    Stage.NEEDS_REVIEW: StageInfo(
        "rejected and not compensated, or the compensation failed",
        "stays until a person acts",
        "`fulfil review` lists what can be done, with the commands that fit.",
    ),
    Stage.FAILED: StageInfo(
        "source, catalog or ledger refused for good",
        "stays",
        "Nothing is reserved. `fulfil explain CODE` says what its error asks for.",
    ),
}


def safe_to_do(checkpoint: Checkpoint, directory: str) -> str:
    """The hint for one task: its stage's, with what is known of it in place of words."""
    hint = STAGE_INFO[checkpoint.stage].hint
    error = checkpoint.error
    if checkpoint.stage is Stage.FAILED and error is not None and error.code in CODES:
        hint = CODES[error.code].hint
    if checkpoint.intent is not None:
        hint = f"What may have been sent is looked up first. {hint}"
    return with_directory(hint, directory)


def with_directory(hint: str, directory: str) -> str:
    """A hint whose commands can be run as they stand."""
    return hint.replace("--directory DIR", f"--directory {shlex.quote(directory)}")
