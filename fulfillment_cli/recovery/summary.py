"""What one pass of a sweep found, did, and left."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fulfillment_cli.adapters.task_queue import Standing
from fulfillment_cli.domain.codes import EXIT_OK, EXIT_REVIEW, EXIT_UNFINISHED
from fulfillment_cli.domain.order import Issue, JsonObject
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.recovery.attempt import Outcome


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A task that may be continued now; sorts by its last update, UTC."""

    updated_at: str
    directory: Path
    task: str


@dataclass
class Pass:
    """One pass.

    Attributes:
        dry_run: Nothing was to be done.
        service_url: The ledger that was given, or none.
        found: Tasks that may be continued, by stage.
        planned: Those that this pass takes, the oldest update first.
        outcomes: What was done with each.
        skipped: Tasks of another ledger than the one at hand.
        problems: What kept tasks from being worked on: where, and why.
        broken: Tasks and directories whose database cannot be used.
        begun: Tasks that were begun and are still without a row.
        left: Where the tasks stand at the end.
    """

    dry_run: bool = False
    service_url: str | None = None
    found: dict[str, int] = field(default_factory=dict)
    planned: list[Candidate] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: int = 0
    problems: dict[str, Issue] = field(default_factory=dict)
    broken: int = 0
    begun: int = 0
    left: Standing = field(default_factory=Standing)

    def count(self, result: str) -> int:
        """How many tasks came to this result."""
        return sum(outcome.result == result for outcome in self.outcomes)

    @property
    def needs_person(self) -> int:
        """How many tasks and directories no sweep goes on with."""
        return self.left.dead_letters + self.left.needs_review + self.broken

    @property
    def unfinished(self) -> int:
        """How many tasks a later pass has to do.

        Tasks of other ledgers count only where no ledger was named: then nobody said that they
        are another sweep's.
        """
        others = 0 if self.service_url is None else self.skipped
        return max(0, self.left.due + self.begun - others) + self.left.waiting

    @property
    def exit_status(self) -> int:
        """0 nothing is left to do, 3 something needs a person, 4 something is left for later."""
        if self.needs_person:
            return EXIT_REVIEW
        return EXIT_UNFINISHED if self.unfinished else EXIT_OK

    def to_json(self) -> JsonObject:
        """The pass as one JSON object."""
        done = {(outcome.directory, outcome.task) for outcome in self.outcomes}
        return {
            "dryRun": self.dry_run,
            "found": self.found,
            "tasks": [outcome.to_json() for outcome in self.outcomes],
            "planned": [
                {"directory": str(one.directory), "task": one.task, "updatedAt": one.updated_at}
                for one in self.planned
                if (one.directory, one.task) not in done
            ],
            "questions": sum(outcome.questions for outcome in self.outcomes),
            "skipped": self.skipped,
            "problems": [
                {"where": where, **issue.to_json()} for where, issue in self.problems.items()
            ],
            "left": {
                "byStage": self.left.by_stage,
                "unfinished": self.unfinished,
                "waiting": self.left.waiting,
                "nextAttemptAt": self.left.next_attempt_at,
                "oldestUnfinished": self.left.oldest_unfinished,
                "deadLetters": self.left.dead_letters,
                "needsReview": self.left.needs_review,
                "broken": self.broken,
            },
        }

    def table(self) -> list[list[str]]:
        """Headings and rows: what became of the tasks that stood at each stage."""
        columns = {
            "finished": ("finished",),
            "later": ("later",),
            "dead letter": ("dead-letter",),
            "busy": ("busy", "settled"),
            "not done": ("blocked", "skipped", "broken", "stopped"),
        }
        rows = [["step", "found", *columns]]
        for stage in (one for one in Stage if self.found.get(one)):
            mine = [one for one in self.outcomes if (one.found or Stage.QUEUED) == stage]
            cells = [str(sum(one.result in names for one in mine)) for names in columns.values()]
            rows.append([stage.value, str(self.found[stage]), *cells])
        return rows
