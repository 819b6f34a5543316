"""Who we are: a file that this process keeps locked for as long as it lives.

A lease names its holder's file and the file's inode. The kernel drops the lock when the process
ends, however it ends, so whoever can lock that very inode knows that the holder is dead. A pid
could be somebody else's by now, and a missing file proves nothing: somebody may have deleted it
under a living process.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from fulfillment_cli.domain.errors import UsageError


def in_the_way(path: Path) -> UsageError:
    """The error where something that is no directory stands in the place of one of ours."""
    return UsageError(
        f"{path} is not a directory.", code="DIRECTORY_NOT_WRITABLE", hint="Move it away."
    )


class Holder:
    """This process's identity in one task directory; lock it once, then take leases in its name.

    Attributes:
        id: Random, never used twice.
        path: The lock file.
        inode: Its inode number.
    """

    def __init__(self, directory: Path) -> None:
        self.id = secrets.token_hex(8)
        self.path = directory / ".holders" / f"{self.id}.lock"
        self.inode = 0
        self._lock = FileLock(self.path, mode=0o600, thread_local=False, fallback_to_soft=False)

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            self._lock.acquire(timeout=0)
            self.inode = self.path.stat().st_ino
        except FileExistsError:
            raise in_the_way(self.path.parent) from None
        except OSError as error:
            raise UsageError(
                f"{self.path.parent.parent} cannot be written ({error.strerror}).",
                code="DIRECTORY_NOT_WRITABLE",
            ) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Leases are released before this. Removing the file while it is locked leaves no moment
        # at which somebody could lock it and take us for dead.
        self.path.unlink(missing_ok=True)
        self._lock.release()


def is_dead(path: Path, inode: int) -> bool:
    """Whether the process that held the lock on this very file has ended.

    Args:
        path: The holder's lock file, as its lease names it.
        inode: The file's inode, as the lease names it.

    Returns:
        True only where the lock on that inode could be acquired; False where it is held, where
        the file is missing, and where another file stands in its place.
    """
    try:
        if path.stat().st_ino != inode:
            return False
    except OSError:
        return False
    opened: list[int] = []
    lock = FileLock(
        path,
        mode=0o600,
        fallback_to_soft=False,
        on_acquired=lambda descriptor: opened.append(os.fstat(descriptor).st_ino),
    )
    try:
        with lock.acquire(timeout=0):
            return opened == [inode]
    except (Timeout, OSError):
        return False


def forget(path: Path) -> None:
    """Remove the lock file of a dead holder that no lease names any more."""
    path.unlink(missing_ok=True)
