"""One attempt at one task: the same steps as any command's, and what is saved where they fail."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fulfillment_cli.adapters.clock import to_timestamp
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import FulfilError, PlanMismatch
from fulfillment_cli.domain.order import DeadLetter, Issue, JsonObject
from fulfillment_cli.domain.stages import RECOVERABLE, Stage
from fulfillment_cli.domain.text import counted
from fulfillment_cli.flows.steps import drive, reached
from fulfillment_cli.flows.task_run import TaskRun
from fulfillment_cli.recovery.backoff import delay
from fulfillment_cli.recovery.dispositions import Disposition, disposition

log = logging.getLogger("fulfil.recovery")


@dataclass(frozen=True, slots=True)
class Retry:
    """When and how often a task is tried again.

    Attributes:
        max_attempts: Attempts before it is a dead letter, 1 or more.
        base, cap: Limits of the first and of every delay, in seconds.
        random: Source of the jitter.
    """

    max_attempts: int
    base: float
    cap: float
    random: random.Random


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a sweep did with one task.

    Attributes:
        result: ``finished`` (it stands at its goal, at its end, or where only a person goes on),
            ``later``, ``dead-letter``, ``busy``, ``skipped``, ``blocked`` (for lack of
            configuration), ``broken``, ``settled`` (somebody else was faster) or ``stopped``.
        found, stage: Where it stood, and where it stands; none where that cannot be read.
        issue: Why it did not go on, or none.
        attempts: Attempts that failed since it last went on.
        questions: Questions asked of the model.
    """

    directory: Path
    task: str
    result: str
    found: Stage | None = None
    stage: Stage | None = None
    issue: Issue | None = None
    attempts: int = 0
    questions: int = 0

    def to_json(self) -> JsonObject:
        """The outcome as the report shows it."""
        return {
            "directory": str(self.directory),
            "task": self.task,
            "result": self.result,
            "found": self.found,
            "stage": self.stage,
            "error": None if self.issue is None else self.issue.to_json(),
            "attempts": self.attempts,
            "questions": self.questions,
        }


def is_due(checkpoint: Checkpoint, now: str) -> bool:
    """Whether a sweep may continue the task at ``now`` (UTC, ISO 8601)."""
    return (
        checkpoint.stage in RECOVERABLE
        and checkpoint.dead_letter is None
        and not reached(checkpoint, checkpoint.goal)
        and (checkpoint.next_attempt_at is None or checkpoint.next_attempt_at <= now)
    )


async def attempt(run: TaskRun, retry: Retry, stopping: Callable[[], bool]) -> Outcome:
    """Continue a task up to its saved goal; save why where it does not get there.

    Raises:
        FulfilError: It is none of the task's own: nothing was saved about it.
    """
    found = run.checkpoint.stage
    log.info("%s: continuing from %s", _name(run), found, extra=_extra(run, found))
    try:
        await drive(run, run.checkpoint.goal, stopping)
    except FulfilError as error:
        what = disposition(error)
        if what not in (Disposition.RETRY, Disposition.GIVE_UP):
            raise
        if isinstance(error, PlanMismatch):
            # It may have been found on a revision that was lost; what is saved about it goes
            # onto the newest one, and nothing of the older one goes with it.
            run.checkpoint = run.runtime.store.load(run.checkpoint.id)
        issue = Issue(code=error.code, message=error.message)
        return _failed(run, found, issue, retry, give_up=what is Disposition.GIVE_UP)
    except Exception as error:  # one poisoned task must not end the sweep
        log.debug("unexpected", exc_info=error)
        issue = Issue(code="INTERNAL", message=f"{type(error).__name__}: {error}")
        return _failed(run, found, issue, retry, give_up=True)
    uncertainty = run.checkpoint.uncertainty
    if run.checkpoint.stage is Stage.UNCERTAIN and uncertainty is not None and not stopping():
        issue = Issue(code=uncertainty.code, message=uncertainty.message)
        return _failed(run, found, issue, retry, give_up=False)
    unfinished = is_due(run.checkpoint, run.runtime.clock.timestamp())
    result = "stopped" if unfinished else "finished"
    log.info("%s: %s, %s", _name(run), result, run.checkpoint.stage, extra=_extra(run, found))
    return outcome_of(run, found, result)


def outcome_of(run: TaskRun, found: Stage, result: str, issue: Issue | None = None) -> Outcome:
    """What was done with a task that is held."""
    checkpoint = run.checkpoint
    return Outcome(
        directory=run.runtime.directory.path,
        task=checkpoint.id,
        result=result,
        found=found,
        stage=checkpoint.stage,
        issue=issue,
        attempts=checkpoint.attempts,
        questions=run.questions,
    )


def _failed(run: TaskRun, found: Stage, issue: Issue, retry: Retry, *, give_up: bool) -> Outcome:
    """Save a failed attempt: when the next one is due, or that there is none."""
    clock, checkpoint = run.runtime.clock, run.checkpoint
    attempts, now = checkpoint.attempts + 1, clock.now()
    at = to_timestamp(now)
    dead = give_up or attempts >= retry.max_attempts
    seconds = delay(attempts, base=retry.base, cap=retry.cap, source=retry.random)
    following = None if dead else to_timestamp(now + seconds)
    run.advance(
        checkpoint.stage,
        "dead-letter" if dead else "attempt-failed",
        {"code": issue.code, "attempts": attempts, "nextAttemptAt": following},
        attempts=attempts,
        next_attempt_at=following,
        last_error=issue,
        last_error_at=at,
        dead_letter=DeadLetter(code=issue.code, message=issue.message, at=at) if dead else None,
    )
    extra = _extra(run, found) | {"attempt": attempts, "code": issue.code}
    if dead:
        log.error(
            "%s: dead letter at %s: %s after %s",
            *(_name(run), checkpoint.stage, issue.code, counted(attempts, "attempt")),
            extra=extra,
        )
        return outcome_of(run, found, "dead-letter", issue)
    log.warning(
        "%s: %s at attempt %d of %d; next in %.1f s",
        *(_name(run), issue.code, attempts, retry.max_attempts, seconds),
        extra=extra,
    )
    return outcome_of(run, found, "later", issue)


def _name(run: TaskRun) -> str:
    """The task as a log names it: ids repeat from directory to directory."""
    return f"{run.runtime.directory.path.name}/{run.checkpoint.id}"


def _extra(run: TaskRun, step: Stage) -> JsonObject:
    return {
        "directory": str(run.runtime.directory.path),
        "task": run.checkpoint.id,
        "step": str(step),
        "attempt": run.checkpoint.attempts + 1,
    }
