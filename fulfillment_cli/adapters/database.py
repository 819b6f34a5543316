"""Opening ``tasks.sqlite``: made whole or not at all, refused where its version is not ours."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

from fulfillment_cli.domain.checkpoint import SCHEMA_VERSION
from fulfillment_cli.domain.errors import FulfilError, StoreError, TaskBusy, UsageError

APPLICATION_ID = 0x66756C66  # "fulf": tells our databases from others of the same version number
BUSY_TIMEOUT_MS = 5000


def create_database(path: Path) -> None:
    """Make the database at ``path`` unless something is there.

    It is built under another name and linked into place, so that no process ever sees half of
    one; of two that do it at once, one wins and both go on with the winner's.
    """
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.draft")
    try:
        with translated(path):
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            connection = _connect(draft, "rw")
            try:
                schema = files("fulfillment_cli.adapters").joinpath("schema.sql").read_text()
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(
                    f"BEGIN IMMEDIATE; {schema}"
                    f"PRAGMA application_id = {APPLICATION_ID};"
                    f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
                )
            finally:
                connection.close()
            # Another process may be faster; its database is as good as ours.
            with suppress(FileExistsError):
                os.link(draft, path)
    finally:
        # SQLite's own files stay where the last close could not write, as on a full disk.
        for suffix in ("", "-wal", "-shm"):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def open_database(path: Path) -> sqlite3.Connection:
    """Connect to an existing task database.

    Raises:
        UsageError: ``DATABASE_INVALID``: not ours, or of another version; not even opened for
            writing, so that it stays byte for byte what it was.
        StoreError: The file cannot be opened.
    """
    with translated(path):
        _check_version(path)
        connection = _connect(path, "rw")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection


def _check_version(path: Path) -> None:
    if not path.is_file():  # opening a pipe would wait
        raise UsageError(f"{path} is not a file.", code="DATABASE_INVALID")
    with path.open("rb") as file:
        header = file.read(100)
    if header[:16] != b"SQLite format 3\0":
        raise UsageError(f"{path} is not a SQLite database.", code="DATABASE_INVALID")
    # The header first (its offsets: sqlite.org/fileformat): even a reader of a database in WAL
    # mode leaves files beside it. What it does not show yet may stand in the log.
    _check_numbers(path, int.from_bytes(header[68:72]), int.from_bytes(header[60:64]))
    connection = _connect(path, "ro")
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    finally:
        connection.close()
    _check_numbers(path, application, version)


def _check_numbers(path: Path, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise UsageError(f"{path} is not a task database.", code="DATABASE_INVALID")
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"{path} has schema version {version}; this program knows {SCHEMA_VERSION}.",
            code="DATABASE_INVALID",
        )


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    # First of all: every statement after it may meet another process's lock.
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """BEGIN IMMEDIATE ... COMMIT; undone on any exception, an interruption included."""
    with translated(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system raise into one coded error."""
    try:
        yield
    except sqlite3.Error as error:
        raise _store_error(path, error) from error
    except FulfilError:
        raise
    except OSError as error:
        reason = error.strerror or "cannot be used"
        raise StoreError(f"{path}: {reason}.", code=_os_code(error)) from error


def _os_code(error: OSError) -> str:
    return (
        "DIRECTORY_NOT_WRITABLE"
        if isinstance(error, PermissionError) or error.errno == 30  # EROFS
        else "DATABASE_FAILED"
    )


def _store_error(path: Path, error: sqlite3.Error) -> FulfilError:
    name: str = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return TaskBusy(f"Another process kept {path.name} locked for {BUSY_TIMEOUT_MS // 1000} s.")
    if name in ("SQLITE_NOTADB", "SQLITE_CORRUPT") or name.startswith("SQLITE_CORRUPT"):
        return UsageError(f"{path} is damaged ({name}).", code="DATABASE_INVALID")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return StoreError(f"{path} cannot be written ({name}).", code="DIRECTORY_NOT_WRITABLE")
    reason = "the disk is full" if name == "SQLITE_FULL" else name
    return StoreError(f"{path}: {reason}; nothing is half-saved.")
