"""What each stage means, what entering it again does, and what a person does about it.

With :mod:`fulfillment_cli.domain.codes` the one source for ``fulfil explain``, the pages of
``fulfil show`` and the table of the README. Light on purpose, like that one.
"""

from __future__ import annotations

from dataclasses import dataclass

from fulfillment_cli.domain.stages import Stage


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
