"""Opening a directory's tasks only to look at them, also where nothing can be written."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fulfillment_cli.adapters.checkpoint_reader import FILE_NAME, CheckpointReader
from fulfillment_cli.adapters.clock import Clock
from fulfillment_cli.adapters.database import translated
from fulfillment_cli.domain.errors import StoreError, TaskNotFound

_TRIES = 50
_WAL_HEADER_BYTES = 32  # sqlite.org/fileformat, section 4.1: its salts change with every restart


@contextmanager
def open_to_look(directory: Path, clock: Clock | None = None) -> Iterator[CheckpointReader]:
    """The directory's store, to read from; another process may be at work in it.

    Where the directory cannot be written, a copy is read: SQLite opens a database in WAL mode
    without its log there, or not at all, and the newest rows are in the log.

    Raises:
        TaskNotFound: The directory holds no task database.
        UsageError: ``DATABASE_INVALID``.
        StoreError: It cannot be read.
    """
    if os.access(directory, os.W_OK) or not (directory / FILE_NAME).exists():
        with CheckpointReader(directory, clock) as store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="fulfil-look-") as name:
        copy = Path(name) / FILE_NAME
        with translated(directory / FILE_NAME):
            _copy(directory / FILE_NAME, copy)
        with CheckpointReader(directory, clock, database=copy) as store:
            yield store


def _copy(source: Path, target: Path) -> None:
    """Copy a database with its log, both as they were at one moment.

    A log may grow meanwhile: what was not committed in the copied part is passed over when it is
    read. But database and log must not be from before and after a checkpoint of SQLite's.
    """
    log = _beside(source)
    for _ in range(_TRIES):
        before = _state(source)
        shutil.copyfile(source, target)
        target.chmod(0o600)
        _beside(target).unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # then all of it is in the database
            shutil.copyfile(log, _beside(target))
        if _state(source) == before:
            return
        time.sleep(0.02)
    raise StoreError(f"{source} is written to without a pause; it could not be copied.")


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _state(path: Path) -> tuple[int, int, int, bytes]:
    """What changes when SQLite moves the log into the database."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise TaskNotFound(f"{path.parent} holds no tasks.") from None
    try:
        with _beside(path).open("rb") as file:
            header = file.read(_WAL_HEADER_BYTES)
    except FileNotFoundError:
        header = b""
    return found.st_ino, found.st_mtime_ns, found.st_size, header
