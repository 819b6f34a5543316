"""The spawned service: whose it is, when it ends, what it is not told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.adapters import service_process
from fulfillment_cli.adapters.ledger import Ledger
from fulfillment_cli.adapters.service_process import running_service
from fulfillment_cli.domain.errors import LedgerNotReached, OutcomeUnknown, TaskBusy, UsageError
from fulfillment_cli.domain.operations import Kind, Operation
from tests.support import ORDER, STOCK, Child, hold_ledger, rows, until, until_async

StartChild = Callable[..., Child]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_fixture(tmp_path)
    return tmp_path


def write_fixture(directory: Path, **faults: Any) -> None:
    (directory / "fixture.json").write_text(json.dumps({"stock": STOCK, "faults": faults}))


def service(directory: Path, *, existing: bool = False) -> Any:
    return running_service(
        directory / "service.sqlite", directory / "fixture.json", existing=existing
    )


def alive(pid: int) -> bool:
    """Whether the process runs; a dead one that nobody waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def ledger_id(directory: Path, *, existing: bool) -> str:
    async with (
        service(directory, existing=existing) as running,
        Ledger(running.origin, running.token) as ledger,
    ):
        return await ledger.identify()


async def test_it_ends_with_the_context_and_its_ledger_stays(directory: Path) -> None:
    async with service(directory) as running:
        assert alive(running.pid)
        async with Ledger(running.origin, running.token) as ledger:
            first = await ledger.identify()
            assert await ledger.available("primary", "SKU-1") == 10
    assert not alive(running.pid)
    assert await ledger_id(directory, existing=True) == first


async def test_it_ends_where_the_context_is_left_by_an_error(directory: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with service(directory) as running:
            raise ZeroDivisionError
    assert not alive(running.pid)


async def test_it_ends_where_its_starter_is_cancelled(directory: Path) -> None:
    pids: list[int] = []

    async def use() -> None:
        async with service(directory) as running:
            pids.append(running.pid)
            await asyncio.Event().wait()

    using = asyncio.create_task(use())
    await until_async(lambda: bool(pids), "it is ready")
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert not alive(pids[0])


async def test_it_dies_with_a_parent_that_is_killed(directory: Path, child: StartChild) -> None:
    await ledger_id(directory, existing=False)
    parent = child(hold_ledger, directory)
    pid = parent.hear()["pid"]
    assert alive(pid)
    parent.kill()
    until(lambda: not alive(pid), "the service is dead")
    await ledger_id(directory, existing=True)  # and has let go of its database


async def test_it_ignores_the_terminals_interrupt(directory: Path) -> None:
    async with service(directory) as running:
        assert os.getsid(running.pid) != os.getsid(0)
        os.kill(running.pid, signal.SIGINT)
        async with Ledger(running.origin, running.token) as ledger:
            assert await ledger.identify()


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "emptied"])
async def test_a_ledger_that_went_missing_is_never_made_again(
    directory: Path, content: bytes | None
) -> None:
    if content is not None:
        (directory / "service.sqlite").write_bytes(content)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(UsageError) as error:
        async with service(directory, existing=True):
            pass
    assert error.value.code == "LEDGER_MISMATCH"
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


async def test_a_ledger_that_another_process_holds_is_busy(
    directory: Path, child: StartChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service_process.LOCK_TIMEOUT_SECONDS == 5
    monkeypatch.setattr(service_process, "LOCK_TIMEOUT_SECONDS", 0.1)
    await ledger_id(directory, existing=False)
    other = child(hold_ledger, directory)
    other.hear()
    with pytest.raises(TaskBusy):
        async with service(directory, existing=True):
            pass


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\0" + b"\xff" * 4096])
async def test_a_damaged_ledger_is_refused_and_left_untouched(
    directory: Path, content: bytes
) -> None:
    (directory / "service.sqlite").write_bytes(content)
    with pytest.raises(UsageError) as error:
        async with service(directory, existing=True):
            pass
    assert error.value.code == "LEDGER_INVALID"
    assert (directory / "service.sqlite").read_bytes() == content


@pytest.mark.parametrize("fixture", [b"{", b'{"stock": {"SKU-1": -1}}', b'{"faults": {"x": 1}}'])
async def test_a_fixture_that_is_none_is_refused(directory: Path, fixture: bytes) -> None:
    (directory / "fixture.json").write_bytes(fixture)
    with pytest.raises(UsageError) as error:
        async with service(directory):
            pass
    assert error.value.code == "LEDGER_INVALID"
    assert not (directory / "service.sqlite").exists()


async def test_a_service_that_does_not_start_is_a_coded_error(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_process.sys, "executable", "/bin/false")
    with pytest.raises(LedgerNotReached):
        async with service(directory):
            pass


async def test_a_service_that_does_not_become_ready_is_ended(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sleeper = tmp_path / "sleeper"
    sleeper.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    sleeper.chmod(0o700)
    monkeypatch.setattr(service_process.sys, "executable", str(sleeper))
    monkeypatch.setattr(service_process, "START_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(LedgerNotReached):
        async with service(directory):
            pass
    pid = int((tmp_path / "pid").read_text())
    assert not alive(pid)


async def test_it_is_told_no_key_and_its_token_stands_in_no_argument(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"OPENAI_API_KEY": "sk-secret", "FULFIL_SERVICE_TOKEN": "of-another-service"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    async with service(directory) as running:
        environment = Path(f"/proc/{running.pid}/environ").read_bytes()
        arguments = Path(f"/proc/{running.pid}/cmdline").read_bytes()
    assert running.token.encode() in environment  # the one thing it must be told
    assert running.token.encode() not in arguments
    for name, value in secrets.items():
        assert value.encode() not in environment + arguments, name
    assert b"OPENAI_API_KEY" not in environment


async def test_every_run_has_a_token_of_its_own(directory: Path) -> None:
    tokens = []
    for _ in range(2):
        async with service(directory) as running:
            tokens.append(running.token)
    assert len(set(tokens)) == 2
    assert all(len(token) >= 32 for token in tokens)


async def test_what_a_dead_service_had_claimed_is_finished_before_the_next_is_ready(
    directory: Path, child: StartChild
) -> None:
    write_fixture(directory, reservationDelayMs=600_000)
    await ledger_id(directory, existing=False)
    first = child(hold_ledger, directory)
    held = first.hear()
    operation = Operation(Kind.RESERVE, "task-reserve", "uid-1", ORDER, "task-reserve")
    database = directory / "service.sqlite"
    async with Ledger(held["origin"], held["token"]) as ledger:
        sending = asyncio.create_task(ledger.submit(operation))
        await until_async(
            lambda: rows(database, "SELECT state FROM operations") == [("pending",)], "claimed"
        )
        first.kill()
        with pytest.raises(OutcomeUnknown):
            await sending
    async with service(directory, existing=True):
        assert rows(database, "SELECT state FROM operations") == [("committed",)]
        assert rows(database, "SELECT quantity FROM inventory") == [(8,)]
