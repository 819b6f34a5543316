"""What this machine offers to a task directory: SQLite, the file system below it."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

SQLITE_NEEDED = (3, 37, 0)
"""The first with STRICT tables."""

# A database in WAL mode shares memory between its processes; over these they need not be on
# one machine (sqlite.org/wal.html).
_NETWORK = re.compile(
    r"nfs\d*|cifs|smb\d*|smbfs|ncpfs|afs|ceph|lustre|gpfs|beegfs|glusterfs|davfs\d*|"
    r"fuse\.(sshfs|glusterfs|ceph.*|s3fs|rclone|davfs\d*|gcsfuse|goofys|juicefs)"
)


def sqlite_version() -> tuple[int, int, int]:
    """Of the library that this Python uses."""
    first, second, third = sqlite3.sqlite_version_info
    return first, second, third


def wal_problem(directory: Path) -> str | None:
    """Why a database in WAL mode does not work in a directory; none where it does."""
    try:
        with tempfile.TemporaryDirectory(prefix=".fulfil-doctor-", dir=directory) as name:
            path = Path(name) / "probe.sqlite"
            with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(path)) as other:
                (mode,) = one.execute("PRAGMA journal_mode = WAL").fetchone()
                one.execute("CREATE TABLE probe (seen INTEGER)")
                one.execute("INSERT INTO probe VALUES (1)")
                one.commit()
                seen = other.execute("SELECT seen FROM probe").fetchone()
    except (sqlite3.Error, OSError) as error:
        return str(error)
    return None if (mode, seen) == ("wal", (1,)) else f"the journal mode is {mode}"


def file_system(path: Path, mounts: str | None = None) -> str | None:
    """Type of the file system that holds ``path``; none where that cannot be told.

    Args:
        mounts: The text of ``/proc/self/mountinfo``; read from there where it is not given.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return None
    where = path.resolve()
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        words = fields.split()
        if len(words) < 5 or not rest:
            continue
        # Spaces and the like stand as octal escapes there (proc(5)).
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), words[4])
        # Of two mounts on one place the later one is what is seen.
        if where.is_relative_to(point) and (best is None or len(point) >= best[0]):
            best = (len(point), rest.split()[0])
    return None if best is None else best[1]


def is_network(kind: str) -> bool:
    """Whether a type of file system is one of a network."""
    return _NETWORK.fullmatch(kind) is not None
