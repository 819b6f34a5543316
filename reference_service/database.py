"""The SQLite file: recognising it, creating it whole, and transactions on it."""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from .errors import StartError

APPLICATION_ID = 0x46554C46  # "FULF"
SCHEMA_VERSION = 1
BUSY_TIMEOUT_MS = 5_000

_MAGIC = b"SQLite format 3\0"
_SCHEMA = Path(__file__).with_name("schema.sql")
_UNREADABLE = {"SQLITE_NOTADB", "SQLITE_CORRUPT"}


def now() -> str:
    """The time as the ledger writes it: UTC, RFC 3339, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Database:
    """Two connections to one file, used by one thread at a time.

    What the ledger promises is committed with ``synchronous=FULL``: it outlives a loss of power.
    The request log has a connection with ``synchronous=NORMAL``, which spares two fsyncs for each
    request: its rows outlive the process, and a loss of power can take only the last of them.
    """

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._ledger = _connect(path, synchronous="FULL")
        try:
            self._log = _connect(path, synchronous="NORMAL")
        except BaseException:
            self._ledger.close()
            raise

    @classmethod
    def open(cls, path: str, stock: Mapping[str, int], *, existing: bool) -> Database:
        """Open the database, or create it with ``stock`` unless it must be ``existing``.

        The caller holds the DatabaseLock. Raises StartError ``DATABASE_MISSING`` (nothing has
        been created) or ``DATABASE_INVALID`` (left as it was), sqlite3.Error and OSError.
        """
        if not _is_created(path):
            if existing:
                raise missing(path)
            _create(path, stock)
        return cls(path)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One durable write transaction; rolled back on whatever exception leaves it."""
        with self._lock:
            connection = self._ledger
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def read(self, sql: str, *parameters: object) -> list[sqlite3.Row]:
        """The rows of one SELECT."""
        with self._lock:
            return self._ledger.execute(sql, parameters).fetchall()

    def log(self, sql: str, *parameters: object) -> int | None:
        """One statement on the request log, and the rowid that it inserted."""
        with self._lock:
            return self._log.execute(sql, parameters).lastrowid

    def close(self) -> None:
        """Wait for the statement in hand, then close; later use is an error."""
        with self._lock:
            self._log.close()
            self._ledger.close()


def missing(path: str) -> StartError:
    """The error where a database must be there and is not."""
    return StartError("DATABASE_MISSING", f"{path} does not exist or is empty")


def unusable(path: str, error: sqlite3.Error | OSError) -> StartError:
    """The error for what SQLite or the system said when the database was opened or recovered."""
    if getattr(error, "sqlite_errorname", None) in _UNREADABLE:
        return _invalid(path, str(error))
    if isinstance(error, IsADirectoryError):
        return _invalid(path, f"{error.filename} is a directory")
    return StartError("DATABASE_UNAVAILABLE", f"{path} cannot be used: {error}")


def is_empty(path: str) -> bool:
    """Whether there is no file, or one without a byte."""
    try:
        return Path(path).stat().st_size == 0
    except FileNotFoundError:
        return True


def _connect(path: str, *, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    # Before anything else: the other pragmas can already meet a lock.
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.row_factory = sqlite3.Row
    return connection


def _is_created(path: str) -> bool:
    """Whether the file holds a ledger; without a single table it is a creation cut short."""
    if is_empty(path):
        return False
    with Path(path).open("rb") as file:
        header = file.read(72)
    # SQLite would write to a foreign file in WAL mode merely by closing it, so what the header
    # already tells is not left to SQLite. A fresh header is all zero until the first checkpoint.
    if header[:16] != _MAGIC:
        raise _invalid(path, "not a SQLite database")
    version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    if (application, version) not in ((0, 0), (APPLICATION_ID, SCHEMA_VERSION)):
        raise _invalid(path, f"application {application:#x}, schema version {version}")
    with closing(_connect(path, synchronous="FULL")) as connection:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if (application, version) == (APPLICATION_ID, SCHEMA_VERSION):
        return True
    if (application, version, tables) == (0, 0, 0):
        return False
    raise _invalid(path, f"application {application:#x}, schema version {version}")


def _create(path: str, stock: Mapping[str, int]) -> None:
    """Tables, ledger id and stock in one transaction: a kill leaves all of it or nothing."""
    schema = _SCHEMA.read_text(encoding="utf-8")
    with closing(_connect(path, synchronous="FULL")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        # executescript commits what is open before it starts, so the BEGIN is inside of it
        connection.executescript(f"BEGIN IMMEDIATE;\n{schema}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("INSERT INTO ledger VALUES (1, ?, ?)", (secrets.token_hex(16), now()))
        connection.executemany(
            "INSERT INTO inventory (sku, quantity, initial_quantity) VALUES (?1, ?2, ?2)",
            stock.items(),
        )
        connection.execute("COMMIT")


def _invalid(path: str, reason: str) -> StartError:
    return StartError(
        "DATABASE_INVALID", f"{path} is not a ledger of schema version {SCHEMA_VERSION}: {reason}."
    )
