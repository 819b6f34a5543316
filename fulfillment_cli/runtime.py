"""The composition root: settings + directory -> a :class:`Runtime`; only here adapters are made.

The ledger and the model are opened when they are first needed: looking at a finished task, or
deciding about a paused one, starts neither.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fulfillment_cli.adapters.checkpoint_reader import FILE_NAME
from fulfillment_cli.adapters.checkpoints import RecoveryStore
from fulfillment_cli.adapters.clock import Clock
from fulfillment_cli.adapters.holder import Holder
from fulfillment_cli.adapters.task_directory import TaskDirectory
from fulfillment_cli.adapters.telemetry import Telemetry, telemetry_for
from fulfillment_cli.domain.errors import TaskNotFound, UsageError
from fulfillment_cli.settings import SERVICE_TOKEN_VARIABLE, Settings, load_settings

if TYPE_CHECKING:
    from fulfillment_cli.adapters.ledger import Ledger
    from fulfillment_cli.adapters.model import Model

Progress = Callable[[str], None]


def silent(message: str) -> None:
    """Progress that nobody reads."""


class SharedModel:
    """One model for several runtimes, opened by the first that asks; a context manager."""

    def __init__(
        self, settings: Settings, provider: str | None = None, progress: Progress = silent
    ) -> None:
        self._open = (settings, provider, progress)
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._model: Model | None = None

    async def get(self) -> Model:
        """The model; raises what :meth:`Runtime.model` does."""
        async with self._opening:
            if self._model is None:
                from fulfillment_cli.adapters.model import open_model

                self._model = await self._stack.enter_async_context(open_model(*self._open))
        return self._model

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


@dataclass
class Runtime:
    """What a flow works with. Make one with :func:`open_runtime`.

    Attributes:
        directory: The task directory's files.
        settings: The configuration.
        clock: Source of time.
        provider: Name of the model provider, or none for the configured one.
        service_url: Origin of a ledger that is already up, or none for a spawned one.
        stock, faults: For a ledger that is yet to be made.
        progress: Told in short lines what is being done.
        details: Whether the spawned service may log to stderr.
        shared_model: The model of several runtimes, or none for one of its own.
        telemetry: Told what is done, for traces and metrics; to nobody by default.
    """

    directory: TaskDirectory
    settings: Settings
    clock: Clock
    provider: str | None = None
    service_url: str | None = None
    stock: Mapping[str, int] | None = None
    faults: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress = silent
    details: bool = False
    shared_model: SharedModel | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _store: RecoveryStore | None = None
    _holder: Holder | None = None
    _ledger: Ledger | None = None
    _model: Model | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def store(self) -> RecoveryStore:
        """The directory's tasks.

        Raises:
            TaskNotFound: There are none yet.
        """
        if self._store is None:
            self._store = RecoveryStore(self.directory.path, self.clock)
            self._stack.callback(self._store.close)
        return self._store

    @property
    def holder(self) -> Holder:
        """This process's identity here; locked from the first call until the runtime ends.

        Raises:
            UsageError: ``DIRECTORY_NOT_WRITABLE``.
        """
        if self._holder is None:
            self._holder = self._stack.enter_context(Holder(self.directory.path))
        return self._holder

    @property
    def has_tasks(self) -> bool:
        """Whether the directory has a task database with at least one task."""
        return (self.directory.path / FILE_NAME).exists() and bool(self.store.task_ids())

    def create_store(self) -> RecoveryStore:
        """The directory's tasks; an empty database is made where there is none."""
        if self._store is None:
            self._store = RecoveryStore.create_in(self.directory.path, self.clock)
            self._stack.callback(self._store.close)
        return self._store

    async def ledger(self, expected_id: str | None) -> Ledger:
        """The ledger, started or connected to at the first call.

        Args:
            expected_id: The ledger that a task belongs to; none for a task yet to be made.

        Raises:
            UsageError: ``LEDGER_MISMATCH``: it is another one; nothing but its id was asked.
            TaskBusy: Another process holds the directory's ledger.
            LedgerError: It does not start or answer.
        """
        async with self._opening:
            if self._ledger is None:
                self._ledger = await self._open_ledger()
        if expected_id is not None and self._ledger.ledger_id != expected_id:
            raise UsageError(
                f"The task belongs to ledger {expected_id}; "
                f"{self._ledger.origin} is {self._ledger.ledger_id}. Nothing was sent.",
                code="LEDGER_MISMATCH",
            )
        return self._ledger

    async def model(self) -> Model:
        """The model, opened at the first call.

        Raises:
            UsageError: The provider is not usable as it is configured.
            ModelUnavailable: The local model does not start.
        """
        if self.shared_model is not None:
            return await self.shared_model.get()
        async with self._opening:
            if self._model is None:
                from fulfillment_cli.adapters.model import open_model

                self._model = await self._stack.enter_async_context(
                    open_model(self.settings, self.provider, self.progress)
                )
        return self._model

    async def _open_ledger(self) -> Ledger:
        origin, token = await self._service()
        from fulfillment_cli.adapters.ledger import Ledger

        client = Ledger(origin, token, self.telemetry)
        ledger = await self._stack.enter_async_context(client)
        await ledger.identify()
        return ledger

    async def _service(self) -> tuple[str, str]:
        if self.service_url is not None:
            origin = self.settings.check_origin(self.service_url, bare=True)
            token = self.settings.secret(SERVICE_TOKEN_VARIABLE)
            if token is None:
                raise UsageError(
                    f"{SERVICE_TOKEN_VARIABLE} is not set.", code="LEDGER_UNAUTHORIZED"
                )
            return origin, token
        from fulfillment_cli.adapters.service_process import running_service

        existing = self.has_tasks
        if existing and not self.directory.service_database.exists():
            url = self.directory.read_fixture().service_url
            where = f" It was made with --service-url {url}." if url else ""
            raise UsageError(
                f"{self.directory.path} has no ledger of its own.{where}", code="LEDGER_MISMATCH"
            )
        self.progress("starting the ledger service")
        service = await self._stack.enter_async_context(
            running_service(
                self.directory.service_database,
                self.directory.fixture_path,
                existing=existing,
                verbose=self.details,
                meanwhile=_load_client,
            )
        )
        return service.origin, service.token


def _load_client() -> None:
    """Load the HTTP client; done while a spawned service starts, it costs next to nothing."""
    from fulfillment_cli.adapters.ledger import preload

    preload()


@asynccontextmanager
async def open_runtime(
    directory: Path | str,
    *,
    stock: Mapping[str, int] | None = None,
    faults: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    provider: str | None = None,
    service_url: str | None = None,
    progress: Progress = silent,
    details: bool = False,
    clock: Clock | None = None,
    shared_model: SharedModel | None = None,
) -> AsyncIterator[Runtime]:
    """Open a task directory; everything that is started ends with the context.

    Args:
        directory: The task directory. Made (mode 0700) where it is missing and ``stock`` or
            ``service_url`` says what ledger its first task is to have.
        stock: Opening stock by sku of a ledger that is to be made here.
        faults: Fault switches of that ledger's service.
        settings: The configuration; ``ditto.yaml`` and ``.env`` where none is given.
        provider: Name of the model provider to ask; the configured one where none is given.
        service_url: Origin of a ledger that is already up; its token from
            ``FULFIL_SERVICE_TOKEN``, its origin in ``sandbox.network``.
        progress: Told in short lines what is being done.
        details: Whether the spawned service may log to stderr.
        clock: Source of time.
        shared_model: The model of several runtimes; it outlives this one.

    Raises:
        TaskNotFound: ``DIRECTORY_NOT_FOUND``.
        UsageError: The configuration is not valid, or the directory cannot be written.
    """
    path = Path(directory).absolute()
    files = TaskDirectory(path)
    if not path.is_dir():
        if stock is None and service_url is None:
            raise TaskNotFound(f"There is no directory {path}.", code="DIRECTORY_NOT_FOUND")
        files = TaskDirectory.make(path)
    settings = settings or load_settings()
    telemetry = telemetry_for(os.environ, provider or settings.provider)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(telemetry.flush)
        yield Runtime(
            directory=files,
            settings=settings,
            clock=clock or Clock(),
            provider=provider,
            service_url=service_url,
            stock=stock,
            faults=faults or {},
            progress=progress,
            details=details,
            shared_model=shared_model,
            telemetry=telemetry,
            _stack=stack,
        )
