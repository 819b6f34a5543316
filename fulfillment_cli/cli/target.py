"""Which task a command is about: one to be made, or one that is there."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fulfillment_cli.adapters.looking import open_to_look
from fulfillment_cli.cli.inputs import read_inventory, read_request
from fulfillment_cli.cli.new_order import new_order
from fulfillment_cli.cli.next_command import DEFAULT_TASK, Place
from fulfillment_cli.domain.errors import TaskNotFound, UsageError
from fulfillment_cli.domain.faults import faults_for
from fulfillment_cli.domain.order import Order, check_task_id
from fulfillment_cli.domain.stages import Flow
from fulfillment_cli.settings import RemoteProvider, Settings

if TYPE_CHECKING:
    from fulfillment_cli.cli.options import FlowOptions

PARENT = ".fulfil-tasks"


@dataclass(frozen=True, slots=True)
class Target:
    """A directory, a task in it, and what is needed where either is new.

    Attributes:
        new_directory: It is made by this command.
        request: Order text of a task to be made; none where none was given.
        stock, faults: Of a ledger to be made.
    """

    directory: Path
    task: str
    new_directory: bool = False
    request: bytes | None = None
    expected: Order | None = None
    stock: dict[str, int] | None = None
    faults: dict[str, bool | int] | None = None

    def place(self, options: FlowOptions) -> Place:
        """What a later command must be told."""
        return Place(
            directory=str(self.directory),
            task=self.task,
            service_url=options.service_url,
            provider=options.provider,
            config=_absolute(options.config),
            env_file=_absolute(options.env_file),
        )


def find_target(options: FlowOptions, flow: Flow, settings: Settings) -> Target:
    """Read the options that say what is to be worked on; makes nothing yet.

    Raises:
        UsageError: They do not go together, or a file that they name is not usable.
    """
    task = check_task_id(DEFAULT_TASK if options.task is None else options.task)
    if options.directory is None:
        return _new_directory(options, flow, settings, task)
    directory = options.directory.absolute()
    if not directory.is_dir():
        raise TaskNotFound(f"There is no directory {directory}.", code="DIRECTORY_NOT_FOUND")
    if _begun(directory):
        return _in_existing(options, directory, task)
    if options.request is None:
        raise TaskNotFound(f"{directory} holds no tasks.")
    return _with_request(options, flow, settings, Target(directory, task))


def require_own_task_id(options: FlowOptions) -> None:
    """Check that a new task in a ledger that others use has an id of its own.

    Raises:
        UsageError: It has the default one.
    """
    if options.service_url is not None and options.task is None:
        raise UsageError(
            "A new task at --service-url needs --task: ids are unique in a ledger.",
            hint="Choose an id that no task of this ledger has.",
        )


def _absolute(path: Path | None) -> str | None:
    """The command is printed to be run from anywhere."""
    return None if path is None else str(path.absolute())


def _begun(directory: Path) -> bool:
    return any((directory / name).exists() for name in ("fixture.json", "tasks.sqlite"))


def _new_directory(options: FlowOptions, flow: Flow, settings: Settings, task: str) -> Target:
    require_own_task_id(options)
    if not os.access(PARENT if os.path.lexists(PARENT) else ".", os.W_OK | os.X_OK):
        raise UsageError(f"{Path.cwd()} cannot be written.", code="DIRECTORY_NOT_WRITABLE")
    directory = Path.cwd() / PARENT / f"cli-{secrets.token_hex(4)}"
    target = Target(directory, task, new_directory=True)
    if options.request is not None:
        return _with_request(options, flow, settings, target)
    if options.service_url is not None:
        raise UsageError(
            "A ledger at --service-url has its own stock; a generated order would not fit it.",
            hint="Give the order text with --request.",
        )
    if options.inventory is not None and "inventory" in options.typed:
        raise UsageError("--inventory needs --request: a generated order has its own stock.")
    _check_provider(options, settings)
    order = new_order()
    return Target(
        directory,
        task,
        new_directory=True,
        request=order.text.encode(),
        expected=order.expected,
        stock=order.stock,
        faults=faults_for(flow, options.fault or ()),
    )


def _with_request(options: FlowOptions, flow: Flow, settings: Settings, target: Target) -> Target:
    """A user's own text, in a directory that has no ledger yet."""
    assert options.request is not None
    if options.service_url is not None:
        require_own_task_id(options)
        _refuse_typed(options, "A ledger at --service-url has its own stock and faults")
        settings.check_origin(options.service_url, bare=True)
        stock, faults = None, {}
    elif options.inventory is None:
        raise UsageError(
            "A ledger that is started here needs its stock.",
            code="INVENTORY_INVALID",
            hint="Give --inventory FILE, or --service-url for a ledger that is up.",
        )
    else:
        stock = read_inventory(options.inventory)
        faults = faults_for(flow, options.fault or ())
    _check_provider(options, settings)
    return Target(
        target.directory,
        target.task,
        new_directory=target.new_directory,
        request=read_request(options.request),
        stock=stock,
        faults=faults,
    )


def _in_existing(options: FlowOptions, directory: Path, task: str) -> Target:
    _refuse_typed(options, f"{directory} has its ledger already")
    if options.request is None:
        return Target(directory, task)
    # From the environment it is a default for new tasks, nothing that one which is there would have
    # to agree with.
    if "request" not in options.typed and _has_task(directory, task):
        return Target(directory, task)
    return Target(directory, task, request=read_request(options.request))


def _has_task(directory: Path, task: str) -> bool:
    try:
        with open_to_look(directory) as store:
            store.load(task)
    except TaskNotFound:
        return False
    return True


def _refuse_typed(options: FlowOptions, reason: str) -> None:
    """What the environment holds is a default for new directories and is passed over here."""
    for name in ("inventory", "fault"):
        if getattr(options, name) and name in options.typed:
            raise UsageError(
                f"{reason}; --{name} is only for a new one.", hint=f"Leave --{name} out."
            )


def _check_provider(options: FlowOptions, settings: Settings) -> None:
    """Tell of a provider that cannot be asked before anything is made for it."""
    provider = settings.select(options.provider)
    if isinstance(provider, RemoteProvider):
        settings.api_key(provider)
    else:
        from fulfillment_cli.adapters.local_model import require_installed

        require_installed(provider)
