"""The experiments to look at: a page for each, and an index with a part for each flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fulfillment_cli.experiments.runner import Outcome
from fulfillment_cli.experiments.scenario import Scenario
from fulfillment_cli.viewing.page import Exhibit, prepare_gallery, write_gallery

STORIES: dict[str, dict[str, str]] = {
    "retry": {
        "retry-adjusts-read-limit": "The first read is too small; the second has the size needed.",
        "retry-exhausted": "One attempt was allowed, and it was too small.",
        "retry-permanent-missing-source": "The text is gone: reading again would not help.",
        "caller-cancelled-before-work": "Cancelled at once; the task waits as it was.",
    },
    "fallback": {
        "fallback-allowed-backup": "The first catalog is down, the backup answers.",
        "fallback-disallowed-backup": "The first catalog is down, and no other is allowed.",
        "fallback-does-not-hide-business-rejection": (
            "Out of stock is an answer; nobody else is asked."
        ),
    },
    "timeout": {
        "read-deadline": "The catalog is too slow; it stops before anything is written.",
        "read-before-deadline": "The catalog answers in time.",
    },
    "checkpoint": {
        "checkpoint-process-crash-and-resume": (
            "Killed when the stock was reserved; another process ships it."
        ),
    },
    "pause": {
        "pause-process-crash-and-approve": (
            "Killed while it waited; a person says yes, another process goes on."
        ),
        "pause-rejected": "A person says no, and nothing is written.",
    },
    "session": {
        "session-in-a-new-process": "A new process answers a question from what was saved.",
    },
    "compensation": {
        "compensation-restores-inventory": "The address is refused, so the stock is given back.",
        "compensation-failed-needs-review": (
            "The address is refused, and so is the release: a person's turn."
        ),
    },
    "side-effect": {
        "lost-response-reconciled": (
            "The reservation was made and its answer lost; it is found, not repeated."
        ),
        "unknown-effect-crash-and-reconcile": (
            "Nobody could say what was done; after a crash it is found."
        ),
        "pending-write-no-duplicate-retry": (
            "The ledger is still at it: wait, and write nothing twice."
        ),
        "lookup-unavailable-no-blind-write": "It cannot be looked up, so nothing is written.",
        "completed-task-idempotent-reentry": "Run again when all is done: nothing happens.",
    },
    "recover": {
        "recover-every-stage": "Killed at every stage; one sweep continues them all.",
        "recover-two-sweeps": "Two sweeps at the same moment; each task is continued once.",
        "recover-killed-sweep": "The sweep is killed, too; two more finish its work.",
        "recover-dead-letter": "Given up after two attempts, until a person sends it back.",
        "recover-reconcile-finds-six": "The audit finds six differences planted beside this one.",
        "recover-expired-approval": "Decided too late; opened again, and decided in time.",
    },
}
"""What is to be seen in each experiment, by the command that it is about."""


def check_gallery(scenarios: Sequence[Scenario], out: Path) -> None:
    """See that the pages of these experiments can be written, before any of them is run.

    Raises:
        UsageError: ``DIRECTORY_NOT_WRITABLE``.
    """
    prepare_gallery([scenario.name for scenario in scenarios], out)


def write_pages(outcomes: Sequence[Outcome], out: Path, purposes: Mapping[str, str]) -> Path:
    """Write a page for each outcome and the index; the path of the index.

    Args:
        out: A directory; pages of the same names are replaced.
        purposes: What each command is for, in one line.

    Raises:
        UsageError: ``DIRECTORY_NOT_WRITABLE``.
    """
    by_name = {outcome.name: outcome for outcome in outcomes}
    exhibits = [
        _exhibit(by_name[name], f"{command}: {purposes[command]}", about)
        for command, stories in STORIES.items()
        for name, about in stories.items()
        if name in by_name
    ]
    return write_gallery(exhibits, out)[0]


def _exhibit(outcome: Outcome, group: str, about: str) -> Exhibit:
    return Exhibit(
        outcome.name,
        Path(outcome.report["directory"]),
        "task",
        about,
        group,
        tuple(outcome.problems),
    )
