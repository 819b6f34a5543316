"""The files of a task directory beside its databases: request texts, fixture, results."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from fulfillment_cli.adapters.holder import in_the_way
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import TaskBusy, UsageError
from fulfillment_cli.domain.order import Frozen, JsonObject, Order, Policy
from fulfillment_cli.domain.stages import Flow, Goal

CREATING_TIMEOUT_SECONDS = 5.0
"""How long to wait for another process that adds a task to the same directory."""


class Fixture(Frozen):
    """``fixture.json``: what a new directory is made from, so that a kill can be made good.

    The spawned service reads ``stock`` and ``faults`` of the same file.

    Attributes:
        task_id: The directory's first task.
        order: The expected order of a generated request; null for a user's own.
        service_url: Origin of a ledger that was there already, or none for a spawned one.
        stock: Opening stock by sku, for a ledger that is spawned.
        faults: The service's fault switches.
    """

    task_id: str
    flow: Flow = Field(strict=False)
    policy: Policy
    goal: Goal = Field(strict=False)
    order: Order | None
    service_url: str | None
    stock: dict[str, int]
    faults: JsonObject


class TaskDirectory:
    """Paths and plain files of one task directory; all files are the owner's alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls, path: Path) -> TaskDirectory:
        """Make the directory (mode 0700) where it is missing.

        Raises:
            UsageError: ``DIRECTORY_NOT_WRITABLE``.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be made ({error.strerror}).", code="DIRECTORY_NOT_WRITABLE"
            ) from None
        return cls(path)

    def source(self, task_id: str) -> Path:
        """The request text of a task."""
        return self.path / f"{task_id}.txt"

    @property
    def fixture_path(self) -> Path:
        return self.path / "fixture.json"

    @property
    def service_database(self) -> Path:
        """The spawned ledger's database, which only the service opens."""
        return self.path / "service.sqlite"

    def result_path(self, task_id: str) -> Path:
        """The readable projection of a task's checkpoint."""
        return self.path / "results" / f"{task_id}.json"

    def write_source(self, task_id: str, content: bytes) -> None:
        """Save a request text; durable when it returns."""
        write_durably(self.source(task_id), content)

    def remove_source(self, task_id: str) -> None:
        """Remove a request text that no row names; durable when it returns."""
        try:
            self.source(task_id).unlink(missing_ok=True)
            _sync_directory(self.path)
        except OSError as error:
            raise _not_writable(self.path, error) from None

    def write_fixture(self, fixture: Fixture) -> None:
        """Save what the directory is made from; durable when it returns."""
        write_durably(self.fixture_path, _pretty(fixture.to_json()))

    def read_fixture(self) -> Fixture:
        """What the directory is made from.

        Raises:
            UsageError: ``TASK_NOT_FOUND`` where there is none; ``CONFIG_INVALID`` where it is
                not a fixture.
        """
        try:
            return Fixture.model_validate_json(self.fixture_path.read_bytes())
        except FileNotFoundError:
            raise UsageError(
                f"{self.path} is not a task directory.", code="TASK_NOT_FOUND"
            ) from None
        except (OSError, ValidationError) as error:
            reason = (
                error.errors(include_url=False, include_input=False)[0]["msg"]
                if isinstance(error, ValidationError)
                else error.strerror
            )
            raise UsageError(f"{self.fixture_path}: {reason}.", code="CONFIG_INVALID") from None

    def write_result(self, checkpoint: Checkpoint) -> None:
        """Project a checkpoint; call it under the task's lease. Skips a file that is right."""
        path = self.result_path(checkpoint.id)
        if self.result_is_current(checkpoint):
            return
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            raise in_the_way(path.parent) from None
        except OSError as error:
            raise UsageError(
                f"{path.parent} cannot be made ({error.strerror}).", code="DIRECTORY_NOT_WRITABLE"
            ) from None
        write_durably(path, _pretty(checkpoint.to_json()))

    def result_is_current(self, checkpoint: Checkpoint) -> bool:
        """Whether the projection is there and shows this very checkpoint."""
        try:
            return self.result_path(checkpoint.id).read_bytes() == _pretty(checkpoint.to_json())
        except OSError:
            return False

    @asynccontextmanager
    async def creating(self) -> AsyncIterator[None]:
        """Hold the directory while a task is added: its text and its row belong together.

        Raises:
            TaskBusy: Another process has been adding one for 5 s.
            UsageError: ``DIRECTORY_NOT_WRITABLE``.
        """
        lock = FileLock(self.path / ".creating.lock", mode=0o600, fallback_to_soft=False)
        time = asyncio.get_running_loop().time
        deadline = time() + CREATING_TIMEOUT_SECONDS
        # Not a blocking wait: the one we wait for may be a task of our own event loop.
        while not _try_lock(lock):
            if time() > deadline:
                raise TaskBusy(f"Another process is adding a task to {self.path}.")
            await asyncio.sleep(0.02)
        try:
            yield
        finally:
            lock.release()


def _try_lock(lock: FileLock) -> bool:
    """Whether the lock is ours now.

    Raises:
        UsageError: ``DIRECTORY_NOT_WRITABLE``.
    """
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    except OSError as error:
        raise _not_writable(Path(lock.lock_file).parent, error) from None
    return True


def _pretty(value: JsonObject) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file so that a reader, or a machine after a crash, sees the old or the new one.

    Raises:
        UsageError: ``DIRECTORY_NOT_WRITABLE``.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)
    except OSError as error:
        raise _not_writable(path, error) from None


def _not_writable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be written ({error.strerror}).", code="DIRECTORY_NOT_WRITABLE"
    )


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
