"""One service for each database: an exclusive lock on a file beside it."""

from __future__ import annotations

import fcntl
import os
import time

from .errors import StartError

POLL_SECONDS = 0.02


class DatabaseLock:
    """Holds ``<database>.lock`` for the life of the process.

    A lock of the kernel (``flock``) goes when its holder dies, however it dies, so a file that is
    left behind means nothing and is never removed: removing it would let two processes hold
    locks on two inodes of one name. SQLite's own locks cannot do this: they last a transaction.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, database: str, *, timeout: float) -> DatabaseLock:
        """Wait up to ``timeout`` seconds (a killed holder needs a moment to let go).

        Raises StartError ``DATABASE_BUSY`` (exit 5) where another process keeps the lock, and
        OSError where the lock file cannot be opened.
        """
        descriptor = os.open(f"{database}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    raise StartError(
                        "DATABASE_BUSY",
                        f"another service holds {database}; stop it or wait for it",
                        exit_status=5,
                    ) from None
                time.sleep(POLL_SECONDS)
            except BaseException:
                os.close(descriptor)
                raise
            else:
                return cls(descriptor)

    def __enter__(self) -> DatabaseLock:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
