"""Creating, recognising and protecting the SQLite file."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reference_service.database import APPLICATION_ID, Database
from reference_service.errors import StartError
from reference_service.ledger import Ledger
from reference_service.locking import DatabaseLock


def opened(path: Path, stock: dict[str, int] | None = None, *, existing: bool = False) -> Ledger:
    return Ledger(Database.open(str(path), stock or {}, existing=existing))


def test_a_ledger_keeps_its_id_and_its_stock(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with closing(opened(path, {"SKU-1": 3})) as ledger:
        first = ledger.ledger_id
    with closing(opened(path, {"SKU-1": 99}, existing=True)) as ledger:
        assert (ledger.ledger_id, ledger.available("SKU-1")) == (first, 3)
    with closing(opened(tmp_path / "other.sqlite")) as other:
        assert other.ledger_id != first


def test_what_outside_tools_are_told_about_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with closing(opened(path)), closing(sqlite3.connect(path)) as outside:
        pragmas = {
            name: outside.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "user_version", "application_id")
        }
    expected = {"journal_mode": "wal", "user_version": 1, "application_id": APPLICATION_ID}
    assert pragmas == expected


def test_the_ledger_is_written_with_full_synchronisation(tmp_path: Path) -> None:
    database = Database.open(str(tmp_path / "s.sqlite"), {}, existing=False)
    with closing(database), database.transaction() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2
        assert connection.execute("PRAGMA foreign_keys").fetchone()[0] == 1
        assert connection.execute("PRAGMA busy_timeout").fetchone()[0] == 5000


@pytest.mark.parametrize("make", ["nothing", "empty file", "no tables"])
def test_an_existing_ledger_is_never_made(tmp_path: Path, make: str) -> None:
    path = tmp_path / "s.sqlite"
    if make == "empty file":
        path.touch()
    if make == "no tables":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    before = {item.name: item.read_bytes() for item in tmp_path.iterdir()}
    with pytest.raises(StartError) as caught:
        opened(path, existing=True)
    assert caught.value.code == "DATABASE_MISSING"
    assert {item.name: item.read_bytes() for item in tmp_path.iterdir()} == before


KILLED_IN_CREATION = """
import os, signal, sqlite3, sys
from reference_service import database

class Connection(sqlite3.Connection):
    def execute(self, sql, *rest):
        if sql.startswith(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, *rest)

connect = sqlite3.connect
sqlite3.connect = lambda *a, **k: connect(*a, factory=Connection, **k)
database.Database.open(sys.argv[1], {"SKU-1": 3}, existing=False)
"""


@pytest.mark.parametrize(
    "statement",
    ["PRAGMA journal_mode", "PRAGMA application_id = ", "INSERT INTO ledger", "COMMIT"],
)
def test_a_creation_that_was_killed_is_done_by_the_next(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "s.sqlite"
    command = [sys.executable, "-c", KILLED_IN_CREATION, str(path), statement]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert killed.returncode == -9
    with pytest.raises(StartError) as caught:
        opened(path, existing=True)
    assert caught.value.code == "DATABASE_MISSING"
    with closing(opened(path, {"SKU-1": 4})) as ledger:
        assert ledger.available("SKU-1") == 4


def foreign_version(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 2")
    connection.execute("CREATE TABLE inventory (sku TEXT)")


def foreign_application(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA user_version = 1")
    connection.execute("CREATE TABLE inventory (sku TEXT)")


def foreign_tables(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE inventory (sku TEXT)")


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize("make", [foreign_version, foreign_application, foreign_tables])
def test_another_database_is_refused_and_left_as_it_was(
    tmp_path: Path, make: Any, wal: bool
) -> None:
    path = tmp_path / "s.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        if wal:
            connection.execute("PRAGMA journal_mode = WAL")
        make(connection)
        connection.commit()
    before = {item.name: item.read_bytes() for item in tmp_path.iterdir()}
    with pytest.raises(StartError) as caught:
        opened(path)
    assert (caught.value.code, caught.value.exit_status) == ("DATABASE_INVALID", 2)
    assert {item.name: item.read_bytes() for item in tmp_path.iterdir()} == before


@pytest.mark.parametrize("make", [foreign_version, foreign_application])
def test_not_even_the_wal_of_a_crashed_stranger_is_touched(tmp_path: Path, make: Any) -> None:
    original, copy = tmp_path / "original.sqlite", tmp_path / "copies" / "s.sqlite"
    copy.parent.mkdir()
    with closing(sqlite3.connect(original)) as connection:
        make(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        with connection:
            connection.execute("INSERT INTO inventory VALUES ('theirs')")
        for suffix in ("", "-wal"):
            shutil.copy(f"{original}{suffix}", f"{copy}{suffix}")
    before = {item.name: item.read_bytes() for item in copy.parent.iterdir()}
    assert before["s.sqlite-wal"]
    with pytest.raises(StartError):
        opened(copy)
    assert {item.name: item.read_bytes() for item in copy.parent.iterdir()} == before


@pytest.mark.parametrize("content", [b"x", b"not a database at all " * 100, bytes(4096)])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(content)
    with pytest.raises(StartError) as caught:
        opened(path)
    assert caught.value.code == "DATABASE_INVALID"
    assert path.read_bytes() == content


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with closing(Database.open(str(tmp_path / "s.sqlite"), {"a": 1}, existing=False)) as database:
        with pytest.raises(KeyboardInterrupt), database.transaction() as connection:
            connection.execute("UPDATE inventory SET quantity = 0")
            raise KeyboardInterrupt
        assert database.read("SELECT quantity FROM inventory")[0][0] == 1
        with database.transaction() as connection:  # and the next one can begin
            connection.execute("UPDATE inventory SET quantity = 0")
        assert database.read("SELECT quantity FROM inventory")[0][0] == 0


FULL_OPERATION = (
    "INSERT INTO operations (key, kind, state, fingerprint, task_uid, sku, quantity, address,"
    " reservation_key, claimed_at, settled_at)"
    " VALUES ('k', 'reserve', 'committed', 'f', 'u', 'a', 1, 'd', 'k', 't', 't')"
)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE inventory SET quantity = -1",
        "UPDATE inventory SET quantity = quantity + 1",
        "UPDATE inventory SET quantity = 0.5",
        "UPDATE operations SET state = 'rejected', code = 'X'",
        "UPDATE operations SET state = 'pending', settled_at = NULL",
        "UPDATE operations SET address = 'elsewhere'",
        "DELETE FROM operations",
        "UPDATE reservations SET status = 'lost'",
        "UPDATE reservations SET quantity = 0",
        "DELETE FROM reservations",
        "INSERT INTO reservations (key, sku, quantity, task_uid) VALUES ('x', 'a', 1, 'u')",
        "INSERT INTO shipments VALUES ('k', 'nowhere', 'd')",
        "INSERT INTO ledger VALUES (2, 'another', 't')",
    ],
)
def test_the_tables_themselves_refuse_what_must_not_happen(tmp_path: Path, statement: str) -> None:
    with closing(Database.open(str(tmp_path / "s.sqlite"), {"a": 1}, existing=False)) as database:
        with database.transaction() as connection:
            connection.execute(FULL_OPERATION)
            connection.execute("INSERT INTO reservations VALUES ('k', 'a', 1, 'active', 'u')")
        with pytest.raises(sqlite3.IntegrityError), database.transaction() as connection:
            connection.execute(statement)


def test_a_reservation_ends_once_and_is_shipped_once_also_for_the_tables(tmp_path: Path) -> None:
    with closing(Database.open(str(tmp_path / "s.sqlite"), {"a": 1}, existing=False)) as database:
        with database.transaction() as connection:
            connection.execute(FULL_OPERATION)
            connection.execute("INSERT INTO reservations VALUES ('k', 'a', 1, 'shipped', 'u')")
            connection.execute("INSERT INTO shipments VALUES ('k', 'k', 'd')")
            connection.execute(FULL_OPERATION.replace("('k'", "('l'"))
        for statement in (
            "UPDATE reservations SET status = 'released'",
            "INSERT INTO shipments VALUES ('l', 'k', 'd')",
        ):
            with pytest.raises(sqlite3.IntegrityError), database.transaction() as connection:
                connection.execute(statement)


def test_a_lock_is_exclusive_and_its_file_stays_private(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sqlite")
    with DatabaseLock.acquire(path, timeout=0):
        with pytest.raises(StartError) as caught:
            DatabaseLock.acquire(path, timeout=0.05)
        assert (caught.value.code, caught.value.exit_status) == ("DATABASE_BUSY", 5)
    with DatabaseLock.acquire(path, timeout=0):
        assert stat.S_IMODE(Path(f"{path}.lock").stat().st_mode) == 0o600
