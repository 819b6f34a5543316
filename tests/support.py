"""What the tests of the core share: an order, a clock, looks into the databases, real children.

Children are forked from a server process that has imported the program already: a real process
with a pid of its own, in milliseconds. What a child does stands here, because it must be
importable without the test that asks for it.
"""

from __future__ import annotations

import asyncio
import codecs
import importlib
import inspect
import json
import multiprocessing
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from fulfillment_cli.adapters.checkpoints import RecoveryStore
from fulfillment_cli.adapters.clock import Clock
from fulfillment_cli.adapters.holder import Holder
from fulfillment_cli.adapters.source import source_hash
from fulfillment_cli.adapters.task_directory import TaskDirectory
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.domain.order import ContextEntry, Order, Policy, plan_fingerprint
from fulfillment_cli.domain.stages import Flow, Goal, Stage
from fulfillment_cli.runtime import Runtime, open_runtime
from fulfillment_cli.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
DEADLINE = 30.0
"""Seconds after which something that was to happen did not."""

TOKEN = "test-token"
ORDER = Order(sku="SKU-1", quantity=2, address="Dock-North")
TEXT = "Fulfillment request. SKU: SKU-1; quantity: 2; delivery address: Dock-North.\n"
STOCK = {"SKU-1": 10}


class FakeClock(Clock):
    """Stands still until it is moved."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.seconds = now

    def now(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


class ShiftedClock(Clock):
    """The machine's time, so many seconds off."""

    def __init__(self, offset: float) -> None:
        self.offset = offset

    def now(self) -> float:
        return time.time() + self.offset


# -- tasks without a flow ----------------------------------------------------------------------


def first_checkpoint(task_id: str = "task", **facts: Any) -> Checkpoint:
    """A task as it is created."""
    policy = facts.pop("policy", Policy())
    at = facts.pop("at", FakeClock().timestamp())
    values: dict[str, Any] = {
        "id": task_id,
        "task_uid": secrets.token_hex(16),
        "ledger_id": "ledger-1",
        "revision": 1,
        "flow": Flow.CHECKPOINT,
        "policy": policy,
        "requires_approval": policy.requires_approval,
        "goal": Goal.COMPLETED,
        "stage": Stage.QUEUED,
        "source_hash": source_hash(TEXT.encode()),
        "created_at": at,
        "updated_at": at,
    }
    return Checkpoint(**values | facts)


def plan_facts(checkpoint: Checkpoint, order: Order = ORDER) -> dict[str, Any]:
    """What `prepared` saves."""
    return {
        "order": order,
        "context": (
            ContextEntry(kind="request", content=TEXT),
            ContextEntry(kind="order", content=order.to_json()),
        ),
        "plan_fingerprint": plan_fingerprint(
            task_id=checkpoint.id,
            task_uid=checkpoint.task_uid,
            ledger_id=checkpoint.ledger_id,
            source_hash=checkpoint.source_hash,
            flow=checkpoint.flow,
            policy=checkpoint.policy,
            order=order,
        ),
    }


# -- looks from outside ------------------------------------------------------------------------


def rows(database: Path, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Look into a database as an outside tool does."""
    with closing(sqlite3.connect(database, timeout=5)) as connection:
        return connection.execute(sql, parameters).fetchall()


def tamper(directory: Path, sql: str, *parameters: Any) -> None:
    """Change ``tasks.sqlite`` behind the program's back."""
    with closing(sqlite3.connect(directory / "tasks.sqlite", timeout=5)) as connection, connection:
        assert connection.execute(sql, parameters).rowcount != 0


def change_document(
    directory: Path, change: Callable[[dict[str, Any]], object], task_id: str = "task"
) -> None:
    """Change a saved checkpoint behind the program's back."""
    document = saved_document(directory, task_id)
    change(document)
    tamper(directory, "UPDATE tasks SET document = ? WHERE id = ?", json.dumps(document), task_id)


def saved_document(directory: Path, task_id: str = "task") -> dict[str, Any]:
    ((document,),) = rows(
        directory / "tasks.sqlite", "SELECT document FROM tasks WHERE id = ?", task_id
    )
    parsed: dict[str, Any] = json.loads(document)
    return parsed


def event_kinds(directory: Path, task_id: str = "task") -> list[str]:
    """The kinds of a task's events, in order."""
    found = rows(
        directory / "tasks.sqlite",
        "SELECT kind FROM events WHERE task_id = ? ORDER BY seq",
        task_id,
    )
    return [kind for (kind,) in found]


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll until ``condition`` holds."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.005)


async def until_async(condition: Callable[[], bool], what: str) -> None:
    """The same, while other tasks go on."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.005)


class LedgerFiles:
    """What a service has in its database."""

    def __init__(self, database: Path) -> None:
        self.database = database

    def requests(self, *, health: bool = False) -> list[str]:
        """``METHOD /path`` of each request, in order; without the identification."""
        tables = "SELECT name FROM sqlite_master WHERE name = 'requests'"
        if not self.database.exists() or not rows(self.database, tables):
            return []  # the service is just being started for the first time
        found = rows(self.database, "SELECT method, path FROM requests ORDER BY seq")
        return [f"{m} {p}" for m, p in found if health or p != "/healthz"]

    def posts(self) -> list[str]:
        return [request for request in self.requests() if request.startswith("POST")]

    def stock(self, sku: str = "SKU-1") -> int:
        ((quantity,),) = rows(self.database, "SELECT quantity FROM inventory WHERE sku = ?", sku)
        assert isinstance(quantity, int)
        return quantity

    def reservations(self) -> list[tuple[Any, ...]]:
        return rows(self.database, "SELECT key, sku, quantity, status FROM reservations")

    def shipments(self) -> list[tuple[Any, ...]]:
        return rows(self.database, "SELECT key, reservation_key, address FROM shipments")

    def business(self) -> dict[str, list[tuple[Any, ...]]]:
        """All that must not change where nothing is to be done."""
        tables = ("ledger", "inventory", "operations", "reservations", "shipments")
        return {table: rows(self.database, f"SELECT * FROM {table} ORDER BY 1") for table in tables}


class Service(LedgerFiles):
    """A ledger that a person started: it outlives the runners that use it."""

    def __init__(
        self,
        directory: Path,
        stock: dict[str, int] | None = None,
        faults: dict[str, Any] | None = None,
    ) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(directory / "service.sqlite")
        fixture = directory / "service-fixture.json"
        fixture.write_text(json.dumps({"stock": stock or STOCK, "faults": faults or {}}))
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "reference_service"),
                *("--database", str(self.database), "--fixture", str(fixture)),
                *("--die-with-parent", str(os.getpid())),
            ],
            env={"FULFIL_SERVICE_TOKEN": TOKEN, "PATH": os.environ["PATH"]},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        self.origin: str = ready["origin"]
        self.ledger_id: str = ready["ledgerId"]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Shop:
    """A task directory, how to open it, and what one sees in it from outside."""

    def __init__(self, directory: Path, config: Callable[..., dict[str, Any]]) -> None:
        self.directory = directory
        self.config = config
        self.clock = FakeClock()
        self.ledger = LedgerFiles(directory / "service.sqlite")

    def open(
        self,
        *,
        service: Service | Between | None = None,
        stock: dict[str, int] | None = None,
        faults: dict[str, Any] | None = None,
        **options: Any,
    ) -> AbstractAsyncContextManager[Runtime]:
        """A runtime; a new directory's ledger has 10 of SKU-1 unless it is said otherwise."""
        origins = [service.origin] if service else []
        settings = options.pop("settings", None) or Settings.model_validate(self.config(*origins))
        return open_runtime(
            self.directory,
            settings=settings,
            clock=self.clock,
            stock=(STOCK if stock is None else stock) if service is None else None,
            faults=faults,
            service_url=service.origin if service else None,
            **options,
        )

    def events(self, task_id: str = "task") -> list[str]:
        return event_kinds(self.directory, task_id)

    def document(self, task_id: str = "task") -> dict[str, Any]:
        return saved_document(self.directory, task_id)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[asyncio.Server]:
    """A TCP server on a port of its own. Whatever it is doing ends with it."""
    at_work: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        at_work.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await handler(reader, writer)
        at_work.discard(task)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server
    finally:
        server.close()
        await server.wait_closed()
        ending = list(at_work)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending)


def origin_of(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Between:
    """Stands between a runner and a service; passes on every request but those a test catches.

    ``catch["POST /reserve"]`` (a method and the beginning of a path) is the bytes to answer with
    instead of asking the service, or a function that is given the request and answers it, with
    :meth:`forward` or without.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.origin = ""
        self.catch: dict[str, bytes | Callable[[bytes], Awaitable[bytes]]] = {}
        self.seen: list[str] = []

    async def __aenter__(self) -> Self:
        self._serving = serving(self._serve)
        self._server = await self._serving.__aenter__()
        self.origin = origin_of(self._server)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._serving.__aexit__(None, None, None)

    def refuse_connections(self) -> None:
        """From now on; those that are there go on."""
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_message(reader)
        line = " ".join(request.split(b"\r\n", 1)[0].decode().split()[:2]).split("?")[0]
        self.seen.append(line)
        caught = [answer for start, answer in self.catch.items() if line.startswith(start)]
        if not caught:
            answer = await self.forward(request)
        else:
            answer = caught[0] if isinstance(caught[0], bytes) else await caught[0](request)
        writer.write(answer)
        await writer.drain()

    async def forward(self, request: bytes) -> bytes:
        """Ask the service."""
        host = self.service.origin.removeprefix("http://")
        head, _, body = request.partition(b"\r\n\r\n")
        own = (b"host:", b"connection:")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(own)]
        lines += [f"Host: {host}".encode(), b"Connection: close"]
        reader, writer = await asyncio.open_connection(*host.split(":"))
        try:
            writer.write(b"\r\n".join([*lines, b"", body]))
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


async def read_message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = [line for line in head.lower().split(b"\r\n") if b"content-length:" in line]
    body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
    return head + body


def http(status: int, body: Any = b"", *headers: str) -> bytes:
    """An HTTP answer after which the connection is closed; a body that is no bytes is JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", "Connection: close"]
    return "\r\n".join([*head, *headers, "", ""]).encode() + content


# -- children ----------------------------------------------------------------------------------

_context = multiprocessing.get_context("forkserver")
_PRELOAD = [
    "tests.support",
    "fulfillment_cli.adapters.ledger",
    "fulfillment_cli.adapters.model",
    "fulfillment_cli.adapters.service_process",
    *(f"fulfillment_cli.flows.{name}" for name in ("checkpoint", "pause", "session")),
    "openai",
    "encodings.utf_8_sig",  # an ordinary user may not be able to read root's Python
]


class Pipe:
    """A child's way to speak with its test."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def say(self, value: Any) -> None:
        self._connection.send(value)

    def hear(self) -> Any:
        return self._connection.recv()


class Child:
    """A process that runs one function of this module."""

    def __init__(self, target: Callable[..., Any], *arguments: Any) -> None:
        _context.set_forkserver_preload(_PRELOAD)
        self._ours, theirs = _context.Pipe()
        self.process = _context.Process(target=_life, args=(theirs, target, arguments))
        self.process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def say(self, value: Any) -> None:
        self._ours.send(value)

    def hear(self) -> Any:
        """What the child says next: its last word is what its function returned."""
        assert self._ours.poll(DEADLINE), "the child says nothing"
        return self._ours.recv()

    async def hear_async(self) -> Any:
        return await asyncio.to_thread(self.hear)

    def ask(self, value: Any) -> Any:
        self.say(value)
        return self.hear()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, and see that it died of that."""
        self.signal(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def stopped(self) -> bool:
        """Whether it stands still after SIGSTOP."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def stop(self) -> None:
        self.signal(signal.SIGSTOP)
        until(self.stopped, "the child is stopped")

    def wake(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self) -> int:
        self.process.join(DEADLINE)
        assert self.process.exitcode is not None, "the child does not end"
        return self.process.exitcode

    def close(self) -> None:
        """The end, whatever it was doing."""
        self.process.kill()  # does nothing where it has ended
        self.process.join(DEADLINE)
        self.process.close()
        self._ours.close()


def _life(connection: Connection, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """A coded error is something to say; any other ends the child with a traceback."""
    try:
        with connection:
            try:
                value = target(Pipe(connection), *arguments)
            except FulfilError as error:
                value = {"code": error.code, "message": error.message}
            connection.send(value)
    except BrokenPipeError:
        pass  # the test has heard enough


def hold_lease(pipe: Pipe, directory: Path, task_id: str = "task", offset: float = 0.0) -> str:
    """Take a lease and do with it what the test says, until it says ``leave``."""
    clock = ShiftedClock(offset)
    with RecoveryStore(directory, clock) as store, Holder(directory) as holder:
        lease, checkpoint = store.acquire(task_id, holder)
        pipe.say({"token": lease.token, "lock": str(holder.path), "inode": holder.inode})
        while (wanted := pipe.hear()) != "leave":
            try:
                if wanted == "write":
                    checkpoint = store.advance(checkpoint, lease, checkpoint.stage, "noted")
                elif wanted == "renew":
                    store.renew(lease)
                elif wanted == "release":
                    store.release(lease, checkpoint)
            except FulfilError as error:
                pipe.say(error.code)
            else:
                pipe.say("done")
    return "left"


def take_at_once(pipe: Pipe, directory: Path, task_id: str = "task") -> str:
    """Wait for the start, then try to take a task, and keep it until the test has seen all."""
    with RecoveryStore(directory, ShiftedClock(0)) as store, Holder(directory) as holder:
        pipe.say("ready")
        pipe.hear()
        store.acquire(task_id, holder)
        pipe.say("taken")
        pipe.hear()
    return "left"


def create_at_once(pipe: Pipe, directory: Path, task_id: str) -> str:
    """Wait for the start, then create the database and a task in it."""
    pipe.say("ready")
    pipe.hear()
    with RecoveryStore.create_in(directory) as store:
        store.create(first_checkpoint(task_id))
    return "created"


def advance_and_die(pipe: Pipe, directory: Path, target: str) -> None:
    """Be killed in the middle of saving a change."""
    with RecoveryStore(directory) as store, Holder(directory) as holder:
        lease, checkpoint = store.acquire("task", holder)
        wrap(target, "before", lambda: os.kill(os.getpid(), signal.SIGKILL))
        store.advance(checkpoint, lease, Stage.PREPARED, "prepared", **plan_facts(checkpoint))


def hold_ledger(pipe: Pipe, directory: Path) -> str:
    """Be another process's service: hold the directory's ledger until the test says so."""
    from fulfillment_cli.adapters.service_process import running_service

    async def hold() -> None:
        database, fixture = directory / "service.sqlite", directory / "fixture.json"
        async with running_service(database, fixture, existing=True) as service:
            pipe.say({"pid": service.pid, "origin": service.origin, "token": service.token})
            await asyncio.to_thread(pipe.hear)

    asyncio.run(hold())
    return "left"


def run_flow(
    pipe: Pipe,
    function: str,
    directory: Path,
    config: dict[str, Any],
    arguments: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    at: tuple[str, str, str] | None = None,
    offset: float = 0.0,
    gate: bool = False,
) -> dict[str, Any]:
    """Run one flow of the public API.

    Args:
        function: Its name in ``fulfillment_cli``.
        options: Of ``open_runtime``.
        at: ``(target, when, action)``, see :func:`wrap`; the action is ``kill``, ``stop``
            (this process stops itself) or ``meet`` (tell the test and wait for its word).
        offset: Of this process's clock, in seconds.
        gate: Wait for the test's word before the flow starts.
    """
    import fulfillment_cli

    if at is not None:
        target, when, action = at

        def meet() -> None:
            pipe.say("met")
            pipe.hear()

        actions = {
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
            "meet": meet,
        }
        wrap(target, when, actions[action])

    async def run() -> dict[str, Any]:
        async with open_runtime(
            directory,
            settings=Settings.model_validate(config),
            clock=ShiftedClock(offset),
            **options or {},
        ) as runtime:
            if gate:
                pipe.say("ready")
                pipe.hear()
            result = await getattr(fulfillment_cli, function)(runtime, **arguments or {})
            return {"stage": str(result.stage), "questions": result.questions, "note": result.note}

    return asyncio.run(run())


def run_review(
    pipe: Pipe,
    directory: Path,
    config: dict[str, Any],
    action: str,
    target: str,
    when: str,
    now: float,
    new_id: str | None = None,
) -> None:
    """Begin a repair and be killed at ``target``, see :func:`wrap`."""
    from fulfillment_cli.recovery.review import Action, Decision, act

    wrap(target, when, lambda: os.kill(os.getpid(), signal.SIGKILL))

    async def run() -> None:
        async with open_runtime(
            directory, settings=Settings.model_validate(config), clock=FakeClock(now)
        ) as runtime:
            await act(runtime, "task", Decision(Action(action), "anna", "because", None, new_id))

    asyncio.run(run())


def wrap(target: str, when: str, action: Callable[[], object]) -> None:
    """Do ``action`` once, before or after a call of ``module:Class.method`` in this process."""
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    static = inspect.getattr_static(owner, name)
    original = static.__func__ if isinstance(static, classmethod) else static
    left = [action]

    @contextmanager
    def around() -> Any:
        if when == "before" and left:
            left.pop()()
        yield
        if when == "after" and left:
            left.pop()()

    if inspect.iscoroutinefunction(original):

        async def replacement(*arguments: Any, **named: Any) -> Any:
            with around():
                return await original(*arguments, **named)

    else:

        def replacement(*arguments: Any, **named: Any) -> Any:
            with around():
                return original(*arguments, **named)

    setattr(
        owner, name, classmethod(replacement) if isinstance(static, classmethod) else replacement
    )


def as_nobody(pipe: Pipe, action: Callable[..., Any], *arguments: Any) -> Any:
    """Do something as an ordinary user; root may write anywhere."""
    # Loaded when first used, and nobody may not read root's own interpreter.
    codecs.lookup("utf-8-sig")
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    return action(pipe, *arguments)


def create_task(pipe: Pipe, directory: Path) -> str:
    with RecoveryStore.create_in(directory) as store:
        store.create(first_checkpoint())
    return "created"


def make_directory(pipe: Pipe, directory: Path) -> str:
    TaskDirectory.make(directory)
    return "made"


def write_source(pipe: Pipe, directory: Path, content: bytes) -> str:
    TaskDirectory(directory).write_source("task", content)
    return "written"


def hold_creation(pipe: Pipe, directory: Path) -> str:
    """Be in the middle of adding a task until the test says so."""

    async def hold() -> None:
        async with TaskDirectory(directory).creating():
            pipe.say("held")
            await asyncio.to_thread(pipe.hear)

    asyncio.run(hold())
    return "left"


def with_file_size_limit(
    pipe: Pipe, limit: int, action: Callable[..., Any], *arguments: Any
) -> Any:
    """Do something while no file may grow beyond ``limit`` bytes: a disk that is full."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return action(pipe, *arguments)
