"""A sweep: find the unfinished tasks below a root and continue each from its saved plan.

Recovery is not a second algorithm: a task is entered as every command enters it, and the same
steps are taken up to its saved goal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fulfillment_cli.adapters.checkpoint_reader import FILE_NAME, CheckpointReader
from fulfillment_cli.adapters.clock import Clock, to_timestamp
from fulfillment_cli.adapters.looking import open_to_look
from fulfillment_cli.adapters.task_directory import TaskDirectory
from fulfillment_cli.adapters.task_queue import Standing
from fulfillment_cli.domain.errors import FulfilError, LedgerError, StoreError
from fulfillment_cli.domain.order import Issue
from fulfillment_cli.domain.stages import RECOVERABLE, Stage
from fulfillment_cli.flows.creation import ensure_task, find
from fulfillment_cli.flows.task_run import entered
from fulfillment_cli.recovery.attempt import Outcome, Retry, attempt, is_due, outcome_of
from fulfillment_cli.recovery.directories import begun, find_directories
from fulfillment_cli.recovery.dispositions import Disposition, disposition
from fulfillment_cli.recovery.summary import Candidate, Pass
from fulfillment_cli.runtime import Runtime, SharedModel, open_runtime
from fulfillment_cli.settings import Settings

log = logging.getLogger("fulfil.recovery")

_MODEL = "model"
_ALL = 2**31  # more tasks than any directory has
_RESULTS = {
    Disposition.RETRY: "busy",
    Disposition.GIVE_UP: "broken",
    Disposition.LEAVE: "busy",
    Disposition.SKIP: "skipped",
    Disposition.CONFIGURE: "blocked",
    Disposition.BROKEN: "broken",
}


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What one pass may do.

    Attributes:
        root: Where to look.
        limit: Most tasks of a pass, 1 or more.
        jobs: Directories side by side, 1 or more.
        dry_run: Only say what would be done.
        service_url, provider: As every command takes them.
    """

    root: Path
    retry: Retry
    limit: int = 100
    jobs: int = 2
    dry_run: bool = False
    service_url: str | None = None
    provider: str | None = None


class Sweep:
    """Passes over one root.

    Args:
        stopping: Asked before every step; no further one is begun once it says so.
    """

    def __init__(
        self,
        settings: Settings,
        options: SweepOptions,
        clock: Clock | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._options = options
        self._clock = clock or Clock()
        self._stopping = stopping

    async def run_pass(self) -> Pass:
        """Find the unfinished tasks and continue them; holds nothing when it returns.

        Raises:
            TaskNotFound: ``DIRECTORY_NOT_FOUND``: there is no such root.
            UsageError: The ledger that was given cannot be used at all.
        """
        options = self._options
        one = Pass(dry_run=options.dry_run, service_url=options.service_url)
        directories = find_directories(options.root)
        ledger_id = await self._given_ledger(directories)
        candidates: list[Candidate] = []
        for directory in directories:
            candidates += self._look(one, directory, ledger_id)
        one.planned = sorted(candidates)[: options.limit]
        for stage in Stage:
            if stage in RECOVERABLE:
                count = one.found.get(stage, 0)
                log.info("%s: %d interrupted", stage, count, extra={"step": str(stage)})
        if one.planned and not options.dry_run:
            await self._work(one)
        self._count_left(one, directories)
        return one

    async def _given_ledger(self, directories: list[Path]) -> str | None:
        """The id of the ledger at ``--service-url``, which tells its tasks from others'."""
        if self._options.service_url is None or not directories:
            return None
        try:
            async with self._open(directories[0]) as runtime:
                return (await runtime.ledger(None)).ledger_id
        except LedgerError:
            return None  # each task finds out for itself, and is tried again

    def _look(self, one: Pass, directory: Path, ledger_id: str | None) -> list[Candidate]:
        """The directory's tasks that may be continued now."""
        ids: list[tuple[str, str]] = []
        standing = Standing()
        try:
            with self._tasks(directory) as store:
                to_make = self._to_make(directory, store)
                if store is not None:
                    standing = store.standing()
                    if self._has_its_ledger(directory):
                        ids = store.recoverable_ids(_ALL, ledger_id)
        except FulfilError as error:
            one.broken += disposition(error) is Disposition.BROKEN
            _tell(one, str(directory), error, logging.ERROR)
            return []
        for stage, count in standing.due_by_stage.items():
            one.found[stage] = one.found.get(stage, 0) + count
        one.skipped += standing.due - len(ids)
        if to_make is not None:
            one.found[Stage.QUEUED] = one.found.get(Stage.QUEUED, 0) + 1
            ids = [to_make, *ids]
        return [Candidate(updated_at, directory, task) for updated_at, task in ids]

    @contextmanager
    def _tasks(self, directory: Path) -> Iterator[CheckpointReader | None]:
        """The directory's tasks, to look at; none where the first one was only begun."""
        if not (directory / FILE_NAME).exists():
            yield None
            return
        with open_to_look(directory, self._clock) as store:
            yield store

    def _to_make(self, directory: Path, store: CheckpointReader | None) -> tuple[str, str] | None:
        """When the directory's first task was begun, and its id, where it has no row yet."""
        fixture = begun(directory)
        if fixture is None:
            return None
        if store is not None and fixture.task_id in store.task_ids():
            return None
        if (fixture.service_url is None) != (self._options.service_url is None):
            return None  # another sweep's
        at = TaskDirectory(directory).fixture_path.stat().st_mtime
        return to_timestamp(at), fixture.task_id

    def _has_its_ledger(self, directory: Path) -> bool:
        """Whether the directory's tasks can be continued without a ``--service-url``."""
        own = TaskDirectory(directory).service_database
        return self._options.service_url is not None or own.exists()

    async def _work(self, one: Pass) -> None:
        """Do what was planned: directories side by side, the tasks of each in their order."""
        places = asyncio.Semaphore(self._options.jobs)
        tasks: dict[Path, list[str]] = {}
        for candidate in one.planned:
            tasks.setdefault(candidate.directory, []).append(candidate.task)
        async with SharedModel(self._settings, self._options.provider) as model:

            async def work(directory: Path) -> None:
                async with places:
                    if not self._stopping():
                        await self._directory(one, directory, tasks[directory], model)

            await asyncio.gather(*(work(directory) for directory in tasks))

    async def _directory(
        self, one: Pass, directory: Path, tasks: list[str], model: SharedModel
    ) -> None:
        left = list(tasks)
        try:
            async with self._open(directory, model) as runtime:
                await self._open_ledger(runtime)
                while left and not self._stopping():
                    one.outcomes.append(await self._task(one, runtime, left[0]))
                    del left[0]
        except Exception as error:  # noqa: BLE001 - one bad directory must not end the sweep
            self._left_alone(one, directory, left, _coded(error))

    async def _open_ledger(self, runtime: Runtime) -> None:
        """Take a directory's own ledger before any lease in it.

        Of two sweeps that start together, the one that gets the ledger must find the leases
        free; the other one leaves the directory as it is.
        """
        if self._options.service_url is None:
            with suppress(LedgerError):  # each task meets it again, and its attempt is counted
                await runtime.ledger(None)

    async def _task(self, one: Pass, runtime: Runtime, task_id: str) -> Outcome:
        """Continue one task; whatever is wrong with it stays with it."""
        path = runtime.directory.path
        found = None
        try:
            checkpoint = find(runtime, task_id) or await ensure_task(runtime, task_id, None)
            found = checkpoint.stage
            blocked = one.problems.get(_MODEL) if found is Stage.QUEUED else None
            if blocked is not None:
                return Outcome(path, task_id, "blocked", found, found, blocked)
            if not is_due(checkpoint, self._clock.timestamp()):
                return Outcome(path, task_id, "settled", found, found)
            async with entered(runtime, task_id, "recover") as run:
                # Again, under the lease: another sweep may have had it since we looked.
                if not is_due(run.checkpoint, self._clock.timestamp()):
                    return outcome_of(run, found, "settled")
                done = await attempt(run, self._options.retry, self._stopping)
                code = None if done.issue is None else done.issue.code
                runtime.telemetry.attempted(run.checkpoint.flow, done.result, code)
                return done
        except Exception as error:  # noqa: BLE001 - one bad task must not end the sweep
            return self._not_done(one, path, task_id, found, _coded(error))

    def _not_done(
        self, one: Pass, directory: Path, task_id: str, found: Stage | None, error: FulfilError
    ) -> Outcome:
        """Tell of an error that nothing is saved about; it uses no attempt."""
        what = disposition(error)
        where = f"{directory}/{task_id}"
        if what is Disposition.BROKEN:
            one.broken += 1
            _tell(one, where, error, logging.ERROR)
        elif what is Disposition.SKIP:
            one.skipped += 1
            _tell(one, str(directory), error, logging.WARNING)
        elif what is Disposition.CONFIGURE:
            _tell(one, _MODEL if found is Stage.QUEUED else where, error, logging.ERROR)
        else:
            log.info("%s: %s", where, error.message, extra={"task": task_id, "code": error.code})
        issue = Issue(code=error.code, message=error.message)
        return Outcome(directory, task_id, _RESULTS[what], found, found, issue)

    def _left_alone(self, one: Pass, directory: Path, tasks: list[str], error: FulfilError) -> None:
        """Tell once of a directory that could not be worked on."""
        what = disposition(error)
        if what is Disposition.BROKEN:
            one.broken += 1
        if what is Disposition.SKIP:
            one.skipped += len(tasks)
        _tell(one, str(directory), error, logging.WARNING)
        issue = one.problems[str(directory)]
        one.outcomes += [Outcome(directory, task, _RESULTS[what], issue=issue) for task in tasks]

    def _count_left(self, one: Pass, directories: list[Path]) -> None:
        for directory in directories:
            # What cannot be read was told when it was looked at.
            with suppress(FulfilError), self._tasks(directory) as store:
                one.begun += self._to_make(directory, store) is not None
                if store is not None:
                    one.left += store.standing()

    def _open(
        self, directory: Path, model: SharedModel | None = None
    ) -> AbstractAsyncContextManager[Runtime]:
        return open_runtime(
            directory,
            settings=self._settings,
            provider=self._options.provider,
            service_url=self._options.service_url,
            clock=self._clock,
            shared_model=model,
        )


def _coded(error: Exception) -> FulfilError:
    """Any exception as one with a code; an unexpected one as a damaged thing."""
    if isinstance(error, FulfilError):
        return error
    log.debug("unexpected", exc_info=error)
    return StoreError(f"{type(error).__name__}: {error}", code="INTERNAL")


def _tell(one: Pass, where: str, error: FulfilError, level: int) -> None:
    """Log a problem once, and keep it for the summary."""
    if where not in one.problems:
        log.log(level, "%s: %s: %s", where, error.code, error.message, extra={"code": error.code})
        one.problems[where] = Issue(code=error.code, message=error.message)
