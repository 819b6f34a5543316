"""The request file -> its text, bounded and checked against the hash saved at creation."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from fulfillment_cli.domain.errors import SourceError, SourceTooLarge
from fulfillment_cli.domain.order import MAX_SOURCE_BYTES


def source_hash(content: bytes) -> str:
    """SHA-256 of a request text as it is saved with the task, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes.

    Never follows a symlink and never waits on a FIFO or a device: what is opened is what is
    checked and read.

    Args:
        path: The file.
        limit: Most bytes to read, 1 to 65536.

    Raises:
        SourceTooLarge: It is longer; says how long, and whether a larger limit can do.
        SourceError: ``SOURCE_NOT_FOUND``, ``SOURCE_INVALID``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise SourceError(f"{path} is not there.", code="SOURCE_NOT_FOUND") from None
    except OSError as error:
        reason = "is a symbolic link" if path.is_symlink() else error.strerror or "unreadable"
        raise SourceError(f"{path}: {reason}.", code="SOURCE_INVALID") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)  # fdopen would refuse a directory with an error of its own
        raise SourceError(f"{path} is not a regular file.", code="SOURCE_INVALID")
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # One byte more than allowed tells a file that grew since it was measured.
            content = file.read(limit + 1)
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise SourceError(f"{path}: {reason}.", code="SOURCE_INVALID") from None
    finally:
        os.close(descriptor)
    size = max(status.st_size, len(content))
    if size > limit:
        raise SourceTooLarge(limit=limit, required_bytes=size, retryable=size <= MAX_SOURCE_BYTES)
    return content


def decode(content: bytes) -> str:
    """The text of a request.

    Raises:
        SourceError: ``SOURCE_EMPTY`` for nothing but white space; ``SOURCE_INVALID`` where it is
            not UTF-8 or has a NUL character.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(
            f"The request text is not UTF-8 (byte {error.start}).", code="SOURCE_INVALID"
        ) from None
    if not text.strip():
        raise SourceError(code="SOURCE_EMPTY")
    if "\x00" in text:
        raise SourceError("The request text has a NUL character.", code="SOURCE_INVALID")
    return text


def read_source(path: Path, expected_hash: str, limit: int) -> str:
    """Read a task's request text.

    Args:
        path: ``<id>.txt`` of the task.
        expected_hash: What :func:`source_hash` gave at creation.
        limit: Most bytes to read, 1 to 65536.

    Raises:
        SourceTooLarge: See :func:`read_bounded`.
        SourceError: Also ``SOURCE_CHANGED``, and what :func:`decode` raises.
    """
    content = read_bounded(path, limit)
    # An emptied file is a changed one, too; a task never starts with an empty text.
    if source_hash(content) != expected_hash:
        code = "SOURCE_CHANGED" if content else "SOURCE_EMPTY"
        raise SourceError(code=code)
    return decode(content)
